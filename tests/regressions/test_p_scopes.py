"""P5-P8, P10, P15, P17: what is charged to which scope, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, crawled, found_at_once, page, shown, spider_of, times
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

A = "http://a.example"


@pytest.mark.parametrize("herd", [2, 8, 16])
def test_p5_a_herd_of_429s_is_one_incident_and_one_step(herd: int) -> None:
    left = iter([429] * herd)
    web = a_web("a.example", latency=1.0, handler=lambda request: SimulatedResponse(next(left, 200)))
    limits = {"a.example": {"concurrency": herd, "delay": 0.0, "delay_per_slot": 0.0}}
    requests = [trawl.Request(f"{A}/{number}") for number in range(herd + 3)]
    settings = {**FREE, "THROTTLING_SCOPES": limits, "BACKOFF_WINDOW": 1e6}
    sim = simulate(found_at_once(lambda: requests), web, settings=settings)
    # All at 0.0, all refused at 1.0; base 0 steps once, to 1.0 s (B05), and not 2 ** herd times.
    assert times(sim)[: herd + 3] == [0.0] * herd + [2.0, 3.0, 4.0]
    assert sim.gaps("a.example")[herd:] == [1.0] * (herd + 2)


def test_p6_async_get_scopes_groups_right_however_long_each_takes() -> None:
    class Slow:
        async def get_scopes(self, request: trawl.Request) -> str:
            number = int(request.url.rpartition("/")[2])
            await trio.sleep((7 - number % 7) / 10.0)  # later requests are looked up faster
            return f"group {number % 2}"

    limits = {"group 0": {"delay": 2.0}, "group 1": {"delay": 3.0}}
    requests = [trawl.Request(f"{A}/{number}") for number in range(10)]
    sim = crawled(
        lambda: requests, a_web("a.example", latency=0.1), FREE, THROTTLING_MANAGER=Slow, THROTTLING_SCOPES=limits
    )
    for send in sim.sends:
        assert list(send.scopes) == [f"group {int(send.url.rpartition('/')[2]) % 2}"]
    assert len(sim.sends) == 10
    assert min(sim.gaps("group 0")) == 2.0
    assert min(sim.gaps("group 1")) == 3.0


def test_p7_over_a_chain_of_redirects_each_host_is_charged_for_its_own_step() -> None:
    web = a_web("a.example", "b.example", "c.example", latency=0.1)
    web.add_redirect(f"{A}/0", "http://b.example/1")
    web.add_redirect("http://b.example/1", "http://c.example/2")
    web.add_redirect("http://c.example/2", f"{A}/3")
    sim = crawled(lambda: [trawl.Request(f"{A}/0")], web, EXACT, DOWNLOAD_DELAY=5.0)
    assert [(send.time, list(send.scopes), send.slot) for send in sim.sends] == [
        (0.0, ["a.example"], 1), (0.1, ["b.example"], 1), (0.2, ["c.example"], 1), (5.0, ["a.example"], 1),
    ]  # fmt: skip


def test_p7_scopes_that_the_user_set_survive_the_whole_chain() -> None:
    web = a_web("a.example", "b.example", latency=0.1)
    web.add_redirect(f"{A}/0", "http://b.example/1")
    web.add_redirect("http://b.example/1", f"{A}/2")
    limits = {"mine": {"delay": 4.0}}
    sim = crawled(lambda: [page(f"{A}/0", {"mine": 2.0})], web, EXACT, THROTTLING_SCOPES=limits)
    assert [(send.time, dict(send.scopes)) for send in sim.sends] == [
        (0.0, {"mine": 2.0}), (4.0, {"mine": 2.0}), (8.0, {"mine": 2.0}),
    ]  # fmt: skip


def test_p7_so_it_is_with_direct_fetches() -> None:
    web = a_web("a.example", "b.example", latency=0.1)
    web.add_redirect(f"{A}/0", "http://b.example/1")

    async def parse(spider: trawl.Spider, response: trawl.Response) -> Any:
        answer = await spider.fetch(trawl.Request(f"{A}/0"))
        return {"url": answer.url}

    spider = spider_of(lambda: [trawl.Request("http://start.example/", meta={"throttling_scopes": []})], parse)
    sim = simulate(spider, web, settings=EXACT)
    assert sim.items == [{"url": "http://b.example/1"}]
    assert [list(send.scopes) for send in sim.sends[1:]] == [["a.example"], ["b.example"]]


def test_p8_what_waits_for_a_scope_is_never_orphaned_when_scopes_are_forgotten() -> None:
    hosts = [f"h{number}.example" for number in range(200)]
    requests = [trawl.Request(f"http://{host}/{number}") for number in range(3) for host in hosts]
    settings = {**EXACT, "THROTTLING_SCOPE_LIMIT": 1, "THROTTLING_SCOPE_MAX_IDLE": 0.0, "CONCURRENT_REQUESTS": 0}
    sim = simulate(found_at_once(lambda: requests), a_web(*hosts, latency=0.1), settings=settings)
    assert len(sim.sends) == 601
    assert {gap for host in hosts for gap in sim.gaps(host)} == {1.0}


def test_p10_without_a_job_a_delayed_request_is_sent_once_when_its_time_comes() -> None:
    web = SimulatedWeb()
    answers = iter([503, 200])
    web.add_host("a.example", latency=0.1, handler=lambda request: SimulatedResponse(next(answers, 200)))
    sim = crawled(lambda: [trawl.Request(f"{A}/late", meta={"delay": 60.0})], web, EXACT)
    # Its delay is not waited out again when it is sent again: what holds it then is the backoff, of 2 s.
    assert times(sim) == [60.0, 62.1]


def test_p15_behind_rotating_proxies_the_sites_throttle_holds_and_each_proxys() -> None:
    def requests() -> Iterator[trawl.Request]:
        for number in range(24):
            yield page(f"{A}/{number}", ["a.example", f"proxy:{number % 3}"])

    limits: dict[str, dict[str, float]] = {f"proxy:{number}": {"delay": 2.0} for number in range(3)}
    sim = simulate(
        found_at_once(requests), a_web("a.example", latency=0.1), settings={**EXACT, "THROTTLING_SCOPES": limits}
    )
    assert sim.gaps("a.example") == [1.0] * 23  # three proxies at 0.5/s could do 1.5/s
    for number in range(3):
        assert min(sim.gaps(f"proxy:{number}")) >= 2.0
    slow = {**limits, "proxy:0": {"delay": 10.0}}
    sim = simulate(
        found_at_once(requests), a_web("a.example", latency=0.1), settings={**EXACT, "THROTTLING_SCOPES": slow}
    )
    assert min(sim.gaps("a.example")) >= 1.0
    assert min(sim.gaps("proxy:0")) >= 10.0


@pytest.mark.parametrize("latency", [0.0, 0.1, 0.999, 3.0])
def test_p17_one_url_after_another_keeps_the_spacing(latency: float) -> None:
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        number = int(response.url.rpartition("/")[2])
        if number < 6:
            yield trawl.Request(f"{A}/{number + 1}")

    spider = spider_of(lambda: [trawl.Request(f"{A}/0")], parse)
    sim = simulate(spider, a_web("a.example", latency=latency), settings=EXACT)
    assert sim.gaps("a.example") == [max(1.0, latency)] * 6


def test_p17_also_when_start_yields_one_at_a_time_or_awaits_in_between() -> None:
    class Pausing(trawl.Spider):
        name = "pausing"

        async def start(self) -> Any:
            for number in range(4):
                yield trawl.Request(f"{A}/{number}")
                await trio.sleep(0.3)

    assert shown(simulate(Pausing, a_web("a.example"), settings=EXACT, errors="collect")) == [
        (0.0, "0"), (1.0, "1"), (2.0, "2"), (3.0, "3"),
    ]  # fmt: skip


def test_p17_also_when_the_scope_is_forgotten_in_between() -> None:
    # A host that is left alone for a while is not hit twice within its delay, whatever is forgotten meanwhile.
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        if response.url == f"{A}/0":
            for number in range(50):
                yield trawl.Request(f"http://h{number}.example/")
            yield trawl.Request(f"{A}/1", meta={"delay": 50.0})

    web = a_web("a.example", *(f"h{number}.example" for number in range(50)))
    settings = {**EXACT, "DOWNLOAD_DELAY": 100.0, "THROTTLING_SCOPE_LIMIT": 2, "THROTTLING_SCOPE_MAX_IDLE": 1.0}
    sim = simulate(spider_of(lambda: [trawl.Request(f"{A}/0")], parse), web, settings=settings)
    assert sim.times("a.example") == [0.0, 100.0]
