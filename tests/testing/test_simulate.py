"""A spider on a simulated web: the real engine, exact times."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.errors import NameNotResolved, SettingsError
from trawl.testing import NotSimulated, RateLimit, SimulatedResponse, SimulatedWeb, Stuck, Uniform, simulate

EXACT = {
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
}


class Pages(trawl.Spider):
    """Ten pages of each host."""

    name = "pages"
    hosts = ("a.example",)
    pages = 10

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for number in range(self.pages):
            for host in self.hosts:
                yield trawl.Request(f"http://{host}/{number}")

    def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
        yield {"url": response.url}


class Links(trawl.Spider):
    """Follows every link."""

    name = "links"
    start_urls = ("http://a.example/",)

    def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
        yield from response.follow_all(css="a")


def a_web(**options: object) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", **options)  # type: ignore[arg-type]
    return web


def test_a08_two_slots_send_at_0_and_0_3_and_1_and_nothing_at_0_6() -> None:
    settings = {
        **EXACT,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
        "DOWNLOAD_DELAY": 0.3,
        "DOWNLOAD_DELAY_PER_SLOT": 1.0,
    }
    sim = simulate(Pages, a_web(latency=0.5), settings=settings)
    assert [(send.time, send.slot) for send in sim.sends][:5] == [(0.0, 1), (0.3, 2), (1.0, 1), (1.3, 2), (2.0, 1)]
    first = sim.sends[0]
    assert (first.finished, first.url, first.host, first.status) == (0.5, "http://a.example/0", "a.example", 200)
    assert (dict(first.scopes), dict(first.slots)) == ({"a.example": 1.0}, {"a.example": 1})


def test_items_statistics_reason_and_virtual_time_are_told() -> None:
    sim = simulate(Pages, a_web(latency=1.5), settings=EXACT, pages=3)
    assert sim.items == [{"url": f"http://a.example/{number}"} for number in range(3)]
    assert sim.stats["request_count"] == sim.stats["response_status_count/200"] == 3
    assert (sim.reason, sim.elapsed) == ("finished", 4.5)
    assert sim.report[0].scope == "a.example"
    assert sim.report[0].sends == 3


def test_a01_hosts_go_side_by_side_and_the_seed_decides_the_jitter() -> None:
    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_host(host, latency=Uniform(0.1, 0.3))
    settings = {"DOWNLOAD_DELAY": 1.0, "ROBOTSTXT_OBEY": False}
    sims = [simulate(Pages, web, settings, seed, hosts=("a.example", "b.example")) for seed in (1, 1, 2)]
    assert sims[0].sends == sims[1].sends != sims[2].sends
    assert all(0.5 <= gap <= 1.5 for gap in sims[0].gaps("a.example"))
    assert sims[0].times("b.example")[0] == 0.0


SCRIPT = """
from tests.testing.test_simulate import Links
from trawl.testing import RateLimit, SimulatedWeb, Uniform, simulate
web = SimulatedWeb()
for host in "abcd":
    web.add_site(f"{host}.example", 20, links=4, latency=Uniform(0.1, 0.9), connect=0.2, limit=RateLimit(3, 2))
web.add_page("http://a.example/", [*"123", *(f"http://{host}.example/" for host in "bcd")])
settings = {"DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
print(repr(simulate(Links, web, settings, seed=7).sends))
"""


@pytest.mark.long
def test_the_same_seed_gives_the_same_sends_in_another_process_with_another_hash_seed() -> None:
    root = Path(__file__).parents[2]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
            timeout=300,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("Send(") > 80


def test_a_web_serves_several_runs_and_buckets_are_full_at_the_start_of_each() -> None:
    web = a_web(limit=RateLimit(rate=0, burst=2, status=403))
    for _ in range(2):
        sim = simulate(Pages, web, settings=EXACT, pages=3)
        assert [send.status for send in sim.sends] == [200, 200, 403]
    assert web.latest is not None
    assert web.latest.sends == sim.sends


async def test_inside_a_test_with_autojump_clock_the_same_happens(autojump_clock: MockClock) -> None:
    settings = {"DOWNLOAD_DELAY": 1.0, "ROBOTSTXT_OBEY": False}
    await trio.sleep(12.5)
    sim = await a_web(latency=0.1).crawl(Pages, settings=settings, seed=3)
    assert sim.times("a.example")[0] == 0.0
    assert sim.elapsed == pytest.approx(trio.current_time() - 12.5)
    again = await trio.to_thread.run_sync(lambda: simulate(Pages, a_web(latency=0.1), settings, 3))
    assert again.gaps("a.example") == pytest.approx(sim.gaps("a.example"))


async def test_c2_crawls_side_by_side_in_one_program_do_not_disturb_each_other(autojump_clock: MockClock) -> None:
    sims = []

    async def run(latency: float) -> None:
        sims.append(await a_web(latency=latency).crawl(Pages, settings=EXACT))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, 1.0)
        nursery.start_soon(run, 3.0)
    assert [sim.elapsed for sim in sims] == [10.0, 30.0]


async def test_a_real_clock_is_refused() -> None:
    with pytest.raises(RuntimeError, match="autojump_clock"):
        await a_web().crawl(Pages)


async def test_starting_trio_inside_trio_is_refused_with_what_to_do(autojump_clock: MockClock) -> None:
    with pytest.raises(RuntimeError, match=r"await web\.crawl"):
        simulate(Pages, a_web())


def test_an_unknown_host_is_a_name_that_does_not_resolve() -> None:
    class Lost(trawl.Spider):
        name = "lost"
        start_urls = ("http://nowhere.example/",)

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            yield trawl.Request("http://nowhere.example/", errback=self.failed)

        def failed(self, error: Exception) -> Iterator[object]:
            yield {"error": type(error)}

    sim = simulate(Lost, a_web(), settings={"ROBOTSTXT_OBEY": False, "RETRY_TIMES": 0}, errors="collect")
    assert sim.items == [{"error": NameNotResolved}]
    assert sim.sends == ()


def test_r5_f09_everything_on_the_wire_is_a_send_robots_and_redirects_too() -> None:
    web = a_web(robots="User-agent: *\nAllow: /")
    web.add_redirect("http://a.example/", "/new")
    sim = simulate(Links, web, settings={**EXACT, "ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 2.0})
    assert [(send.time, send.url, send.status) for send in sim.sends] == [
        (0.0, "http://a.example/robots.txt", 200),
        (2.0, "http://a.example/", 302),
        (4.0, "http://a.example/new", 200),
    ]


def test_d02_r7_the_wall_clock_starts_in_2025_and_moves_with_the_virtual_one() -> None:
    web = a_web(limit=RateLimit(rate=0.05, burst=1, retry_after="date"), latency=1.0)
    sim = simulate(Pages, web, settings={**EXACT, "BACKOFF_JITTER": 0}, pages=2)
    assert [(send.time, send.status) for send in sim.sends] == [(0.0, 200), (1.0, 429), (20.0, 200)]


def test_settings_are_checked_and_nothing_around_the_test_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAWL_DOWNLOAD_DELAY", "5")
    assert simulate(Pages, a_web(), settings=EXACT, pages=2).elapsed == 0.0
    with pytest.raises(SettingsError, match="did you mean DOWNLOAD_DELAY"):
        simulate(Pages, a_web(), settings={"DOWNLOAD_DELEY": 1})


@pytest.mark.parametrize("way", ["socket", "thread", "trio"])
def test_a_crawl_that_would_touch_the_world_fails_loudly(way: str, caplog: pytest.LogCaptureFixture) -> None:
    class Leaky(Pages):
        async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncIterator[object]:  # type: ignore[override]
            if way == "socket":
                socket.create_connection(("127.0.0.1", 9))
            elif way == "thread":
                await trio.to_thread.run_sync(int)
            else:
                await trio.open_tcp_stream("127.0.0.1", 9)
            yield {}

    caplog.set_level(logging.CRITICAL)
    with pytest.raises(NotSimulated, match="would use a real"):
        simulate(Leaky, a_web(), settings=EXACT)


def test_a_crawl_that_waits_for_ever_is_told() -> None:
    class Waits(Pages):
        async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncIterator[object]:  # type: ignore[override]
            await trio.Event().wait()
            yield {}

    with pytest.raises(Stuck, match="can't continue"):
        simulate(Waits, a_web(), settings=EXACT, pages=1)


def test_a_handlers_bug_is_not_taken_for_the_networks(caplog: pytest.LogCaptureFixture) -> None:
    def buggy(request: trawl.Request) -> SimulatedResponse:
        raise KeyError("the test's own bug")

    caplog.set_level(logging.CRITICAL)
    for options in ({"handler": buggy}, {"latency": buggy}, {"connect": buggy}):
        with pytest.raises(KeyError, match="own bug"):
            simulate(Pages, a_web(**options), settings=EXACT, pages=1)


async def test_cancelling_a_simulated_crawl_cancels_it(autojump_clock: MockClock) -> None:
    with trio.move_on_after(2.5) as scope:
        await a_web(latency=1.0).crawl(Pages, settings=EXACT)
    assert scope.cancelled_caught
    assert trio.current_time() == 2.5


def test_exports_are_real(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    simulate(Pages, a_web(), settings={**EXACT, "FEEDS": {str(path): {"format": "jsonl"}}}, pages=2)
    assert path.read_text() == '{"url":"http://a.example/0"}\n{"url":"http://a.example/1"}\n'
