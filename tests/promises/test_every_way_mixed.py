"""Mixtures of all the ways on which a request comes to another host, checked by what the hosts see."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import trio

import trawl
from trawl.engine import Crawl
from trawl.exceptions import DownloadError, IgnoreRequest
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOSTS = [f"h{number}.example" for number in range(4)]
PROXIES = ["http://p0.example:80", "http://p1.example:80"]


class ByProxy(trawl.throttling.ThrottlingManager):
    """Charges to the host, and the proxy if there is one."""

    async def get_scopes(self, request: Request) -> Any:
        host = await super().get_scopes(request)
        proxy = request.meta.get("proxy")
        return trawl.throttling.add_scope(host, f"proxy:{proxy[7:9]}") if proxy else host


def moved(request: Request, chance: random.Random) -> Request:
    """The same page of another host, or in another session, or through another proxy."""
    change = chance.random()
    if change < 0.6:
        path = request.url.split("/", 3)[3]
        return request.replace(url=f"http://{chance.choice(HOSTS)}/{path}")
    if change < 0.8:
        return request.replace(meta={**request.meta, "session": chance.choice(["one", "two"])})
    return request.replace(meta={**request.meta, "proxy": chance.choice(PROXIES)})


def mixing(chance: random.Random) -> Middleware:
    """Does to each request, each time, whatever it is told by lot."""

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if request.url.endswith("robots.txt"):
                return await fetch(request)
            what = chance.random()
            if what < 0.25:
                return await fetch(moved(request, chance))
            if what < 0.4:
                other = moved(request, chance)
                request.url = other.url
                request.meta.update(other.meta)
            outcome = await fetch(request)
            if outcome.then is None and outcome.response is not None and 0.6 < what < 0.75:
                outcome.then = Replace(moved(request, chance), chance.choice([0.0, 3.0]), is_new_target=what < 0.65)
            return outcome

        return send

    return around


@pytest.mark.parametrize("seed", range(12))
def test_f09_nothing_goes_past_the_throttle_however_requests_are_led_about(seed: int) -> None:
    chance = random.Random(seed)
    has_manager = seed % 3 == 0
    delays = {host: chance.choice([0.0, 0.5, 2.0, 5.0]) for host in HOSTS}
    scopes = {
        **{host: {"delay": delay, "concurrency": chance.choice([1, 4])} for host, delay in delays.items()},
        "session:one": {"delay": 1.0},
        "session:two": {"concurrency": 1},
        "proxy:p0": {"rate": 0.5},
    }
    sends: dict[str, list[tuple[float, str, Any]]] = {}

    def answer(request: Any) -> SimulatedResponse:
        host, path = request.url.split("/", 3)[2:4]
        sends.setdefault(host, []).append((trio.current_time(), path, dict(request.meta)))
        fate = chance.random()
        if fate < 0.1:
            return SimulatedResponse(302, "", {"Location": f"http://{chance.choice(HOSTS)}/{path}"})
        return SimulatedResponse(chance.choice([429, 503, 500]) if fate < 0.2 else 200, latency=chance.random())

    class Mixed(trawl.Spider):
        name = "mixed"

        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(40):
                yield Request(f"http://{HOSTS[number % 4]}/{number}", dont_filter=True, errback=self.failed)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            if "direct" not in response.url and int(response.url.rpartition("/")[2]) % 5 == 0:
                with suppress(DownloadError, IgnoreRequest):
                    await self.fetch(Request(f"http://{chance.choice(HOSTS)}/direct/{response.url[-1]}"))
            yield {"number": response.url.rpartition("/")[2]}

        def failed(self, error: Exception) -> Any:
            yield {"failed": error}

    async def faster(crawl: Crawl) -> None:
        await trio.sleep(20.0)
        crawl.throttling.set("session:one", delay=0.5)

    web = SimulatedWeb()
    for host in HOSTS:
        web.add_host(host, handler=answer, robots="User-agent: *\nDisallow: /7$\nDisallow: /13$")
    settings = {
        "RANDOMIZE_DOWNLOAD_DELAY": seed % 2 == 0 and [0.0, 0.5],
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
        "THROTTLING_SCOPES": scopes,
        "DOWNLOADER_MIDDLEWARES": {mixing(chance): 545},
        "WATCHERS": {faster: 1},
        **({"THROTTLING_MANAGER": ByProxy} if has_manager else {}),
    }
    sim = simulate(Mixed, web, settings, seed=seed)
    assert sim.reason == "finished"
    asked = {send.host: send.time for send in reversed(sim.sends) if send.url.endswith("robots.txt")}
    for host, seen in sends.items():
        assert not {"7", "13"} & {path for _, path, _ in seen}, host
        times = sorted(at for at, _, _ in seen)
        assert all(later - sooner >= delays[host] - 1e-9 for sooner, later in pairwise(times)), host
        assert min(times) >= asked[host]
    everything = [one for seen in sends.values() for one in seen]
    slowest = {"session": ("one", 0.5), **({"proxy": (PROXIES[0], 2.0)} if has_manager else {})}
    for key, (value, apart) in slowest.items():
        times = sorted(at for at, _, meta in everything if meta.get(key) == value)
        assert all(later - sooner >= apart - 1e-9 for sooner, later in pairwise(times)), key
    ended = len(sim.items) + sim.stats.get("robots_forbidden", 0) + sim.stats.get("dupefilter_filtered", 0)
    assert ended >= 40
