"""C12: where the time of each request went, on the response, in the statistics, by scope, and as an event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.events import ResponseParsed
from trawl.http import Fetch, Outcome, Times
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate


class Slow(trawl.Spider):
    name = "slow"
    start_urls = tuple(f"http://a.example/{n}" for n in range(3))
    custom_settings: ClassVar[Any] = {
        "DOWNLOAD_DELAY": 10,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "ROBOTSTXT_OBEY": False,
    }

    async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncIterator[object]:
        await trio.sleep(0.25)
        yield {"url": response.url, "times": response.times}


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", latency=2.0, connect=0.5)
    return web


def rounded(times: Times | None) -> tuple[float, ...]:
    assert times is not None
    return tuple(round(getattr(times, name), 6) for name in times.__struct_fields__)


def test_c12_a_callback_sees_where_the_time_of_its_request_went() -> None:
    ran = simulate(Slow, a_web())
    assert [rounded(item["times"]) for item in ran.items] == [
        (0.0, 0.0, 0.5, 2.0, 0.0),
        (0.0, 10.5, 0.0, 2.0, 0.0),  # the delay counts from the send, which was 0.5 s after the first was granted
        (10.0, 10.5, 0.0, 2.0, 0.0),  # the second was granted a bit early, as connecting had taken time, and waited
    ]


def test_c12_the_statistics_add_them_up_and_a_scope_tells_the_average() -> None:
    ran = simulate(Slow, a_web())
    parts = {name: round(ran.stats[f"{name}_seconds"], 6) for name in ("queued", "throttled", "connecting", "fetching")}
    assert parts == {"queued": 10.0, "throttled": 21.0, "connecting": 0.5, "fetching": 6.0}
    assert round(ran.stats["parsing_seconds"], 6) == 0.75
    (scope,) = ran.report
    assert rounded(scope.times) == (3.333333, 7.0, 0.166667, 2.0, 0.25)


async def test_c12_an_event_tells_them_whole_for_each_response(autojump_clock: MockClock) -> None:
    class Watched(Slow):
        custom_settings: ClassVar[Any] = {**Slow.custom_settings, "WATCHERS": {watch: 1}}

    SEEN.clear()
    await a_web().crawl(Watched)
    assert [round(times.parsing, 6) for times in SEEN] == [0.25] * 3
    assert [round(times.total, 6) for times in SEEN] == [2.75, 12.75, 22.75]


SEEN: list[Times] = []


async def watch(crawl: Any) -> None:
    with crawl.events(ResponseParsed) as events:
        async for event in events:
            assert event.response.times is not None
            SEEN.append(event.response.times)


def test_c12_a_retry_counts_from_the_failure_and_its_own_wait_is_throttled() -> None:
    class Again(Slow):
        start_urls = ("http://a.example/",)
        custom_settings: ClassVar[Any] = {**Slow.custom_settings, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}

        def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:  # type: ignore[override]
            if response.meta.get("is_second"):
                yield {"times": response.times}
            else:
                yield response.request.replace(meta={"delay": 30, "is_second": True}, dont_filter=True)  # type: ignore[union-attr]

    ran = simulate(Again, a_web())
    assert [rounded(item["times"]) for item in ran.items] == [(0.0, 30.0, 0.0, 2.0, 0.0)]


def test_c12_what_fails_has_its_time_counted_too() -> None:
    class Lost(Slow):
        start_urls = ("http://a.example/",)
        custom_settings: ClassVar[Any] = {**Slow.custom_settings, "RETRY_ENABLED": False, "DOWNLOAD_TIMEOUT": 1}

    ran = simulate(Lost, a_web())
    assert ran.stats["download_error_count"] == 1
    assert ran.stats["connecting_seconds"] == pytest.approx(0.5)
    assert ran.stats["fetching_seconds"] == pytest.approx(0.5)


async def test_c12_with_a_job_time_in_the_frontier_counts_and_the_totals_go_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Many(Slow):
        start_urls = tuple(f"http://a.example/{n}" for n in range(60))  # more than are leased ahead of their turn

    settings: dict[str, object] = {"JOB_DIR": str(tmp_path / "job"), "CLOSESPIDER_PAGECOUNT": 30}
    first = await a_web().crawl(Many, settings)
    ran = await a_web().crawl(Many, {**settings, "CLOSESPIDER_PAGECOUNT": 0})
    assert ran.stats["fetching_seconds"] == pytest.approx(60 * 2.0)
    # Connected ahead by up to half a second, a request waits at the wire while the next one waits in its lane.
    overlap = ran.stats["throttled_seconds"] - (first.stats["throttled_seconds"] + 29 * 10.0)
    assert -1.0 <= overlap <= 60 * 0.5
    last = ran.items[-1]["times"]
    assert last.queued + last.throttled == pytest.approx(29 * 10.0, abs=11.0)  # from when this run began


def test_middleware_sees_the_size_of_a_response_whatever_limits_its_scope_has() -> None:
    sizes = []

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: trawl.Request) -> Outcome:
            outcome = await fetch(request)
            sizes.append(outcome.size)
            return outcome

        return send

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(body="x" * 7))
    for limits in ({}, {"bandwidth": 1000}):
        simulate(Slow, web, {"DOWNLOADER_MIDDLEWARES": {middleware: 560}, "THROTTLING_SCOPES": {"a.example": limits}})
    assert sizes == [7] * 6
