"""examples/many_hosts.py, which the how-to "Check many hosts" shows, against 300 hosts with every kind of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trawl
from examples.many_hosts import ManyHosts
from trawl.exceptions import ConnectFailed, ConnectTimeout, DownloadTimeout, ReadTimeout, ResponseBroken, TLSFailed
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOSTS = 300
TIMEOUT = ManyHosts.custom_settings["DOWNLOAD_TIMEOUT"]
PLACES = ManyHosts.custom_settings["CONCURRENT_REQUESTS"]
LATER = {"Retry-After": "3600"}
SPENT = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3600"}

Add = Callable[[SimulatedWeb, str], object]


def host(**facts: Any) -> Add:
    return lambda web, name: web.add_host(name, **facts)


def answering(answer: SimulatedResponse, **facts: Any) -> Add:
    return host(handler=lambda request: answer, **facts)


def at_first(answer: SimulatedResponse) -> Add:
    """A host that fails once, and serves each later request."""

    def add(web: SimulatedWeb, name: str) -> None:
        answers = iter([answer])
        web.add_host(name, handler=lambda request: next(answers, SimulatedResponse()))

    return add


def redirect(request: trawl.Request) -> SimulatedResponse:
    return SimulatedResponse(302, headers={"Location": request.url + "x", "Retry-After": "100"})


def ring(request: trawl.Request) -> SimulatedResponse:
    return SimulatedResponse(302, headers={"Location": request.url})


KINDS: dict[str, tuple[Add, int | None]] = {
    "good": (host(latency=0.5), 200),
    **{
        f"status{status}": (host(status=status), status)
        for status in (400, 403, 404, 410, 418, 429, 500, 502, 503, 504)
    },
    "later403": (answering(SimulatedResponse(403, headers=LATER)), 403),
    "later503": (answering(SimulatedResponse(503, headers=LATER)), 503),
    "spent": (answering(SimulatedResponse(403, headers=SPENT)), 403),
    "once503": (at_first(SimulatedResponse(503)), 503),
    "once429": (at_first(SimulatedResponse(429, headers=LATER)), 429),
    "oncebroken": (at_first(SimulatedResponse(error=ResponseBroken)), None),
    "nowhere": (lambda web, name: None, None),
    "refuses": (host(connect_error=ConnectFailed, connect=0.1), None),
    "unreachable": (host(connect_error=ConnectTimeout, connect=TIMEOUT), None),
    "tls": (host(connect_error=TLSFailed), None),
    "silent": (host(latency=1e6), None),
    "slow": (answering(SimulatedResponse(latency=1e6), robots=SimulatedResponse(404)), None),
    "stalls": (answering(SimulatedResponse(error=ReadTimeout, latency=TIMEOUT / 2)), None),
    "late": (answering(SimulatedResponse(error=DownloadTimeout, latency=TIMEOUT)), None),
    "breaks": (answering(SimulatedResponse(error=ResponseBroken)), None),
    "robots503": (host(robots=SimulatedResponse(503)), 503),
    "robots503later": (host(robots=SimulatedResponse(503, headers=LATER)), 503),
    "robots429": (host(robots=SimulatedResponse(429)), 200),
    "robots429later": (host(robots=SimulatedResponse(429, headers=LATER)), 200),
    "robots403later": (host(robots=SimulatedResponse(403, headers=LATER)), 200),
    "robotsbroken": (host(robots=SimulatedResponse(error=ResponseBroken)), None),
    "robotssilent": (host(robots=SimulatedResponse(latency=1e6)), None),
    "forbidden": (host(robots="User-agent: *\nDisallow: /\n"), 0),  # no line
    "redirects": (host(handler=redirect), None),
    "ring": (host(handler=ring), None),
}


def test_each_of_300_hosts_has_one_line_in_the_time_that_the_how_to_names(tmp_path: Path) -> None:
    web, hosts = SimulatedWeb(), {}
    for number in range(HOSTS):
        kind = list(KINDS)[number % len(KINDS)]
        hosts[f"{kind}-{number}.example"] = kind
        KINDS[kind][0](web, f"{kind}-{number}.example")
    (tmp_path / "hosts.txt").write_text("\n".join(hosts), encoding="utf-8")
    sim = simulate(ManyHosts, web, file=str(tmp_path / "hosts.txt"), errors="collect")
    assert sim.reason == "finished"
    forbidden = [name for name, kind in hosts.items() if kind == "forbidden"]
    lines = {item["host"]: item for item in sim.items}
    assert len(lines) == len(sim.items)
    assert sorted([*lines, *forbidden]) == sorted(hosts)
    for name, item in lines.items():
        assert item["status"] == KINDS[hosts[name]][1], item
        assert bool(item["why"]) is (item["status"] != 200), item
    # R12, B20: nothing is sent twice
    sent = Counter(send.url for send in sim.sends if "ring" not in send.url and "redirects" not in send.url)
    assert set(sent.values()) == {1}
    assert sim.elapsed <= HOSTS / PLACES * 2 * TIMEOUT + ManyHosts.custom_settings["BACKOFF_MAX_DELAY"] * 1.1


@pytest.mark.long
def test_2000_hosts_of_which_most_are_dead_take_no_longer_than_their_timeouts(tmp_path: Path) -> None:
    web = SimulatedWeb()
    names = [f"host-{number}.example" for number in range(2000)]
    for number, name in enumerate(names):
        if number % 4 == 0:
            web.add_host(name, latency=0.5)
        elif number % 4 == 1:
            web.add_host(name, status=503)
        elif number % 4 == 2:
            web.add_host(name, connect_error=ConnectTimeout, connect=TIMEOUT)
    (tmp_path / "hosts.txt").write_text("\n".join(names), encoding="utf-8")
    sim = simulate(ManyHosts, web, file=str(tmp_path / "hosts.txt"), errors="collect")
    assert len(sim.items) == len(names)
    assert sim.elapsed <= 500 / PLACES * TIMEOUT + 60.0
