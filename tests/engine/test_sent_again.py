"""A safe request whose old connection turns out dead goes to the wire twice: the second is a send like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.transport.http11.memory import CLOSES, Script, Servers
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.settings.load import Layer, load
from trawl.testing.receipt import Checker
from trawl.throttling.reasons import ScopeReport
from trawl.transport import Http11Transport, TransportSettings
from trawl.transport.base import needs_new_connection

HOST = "a.example"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
FREE: dict[str, Any] = {"delay": 0.0, "delay_per_slot": 0.0, "concurrency": 4}
SETTINGS = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "RETRY_TIMES": 0}


class Pages(trawl.Spider):
    """Asks for pages, one after the other."""

    name = "pages"
    count = 3

    def start_requests(self) -> Iterator[Request]:
        for number in range(self.count):
            yield Request(f"http://{HOST}/{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"path": response.url.rpartition("/")[2]}


async def crawled(
    scope: dict[str, Any],
    scripts: list[Script],
    *,
    spider: type[Pages] = Pages,
    count: int = 3,
    reports: list[ScopeReport] | None = None,
    middleware: Mapping[Middleware, int] | None = None,
) -> tuple[Any, list[tuple[float, str]]]:
    """A crawl over scripted connections; and when which request line went to the wire."""

    async def watch(crawl: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if reports is not None:
                reports.extend(crawl.report())

    servers = Servers(scripts, connect_seconds=0.1)
    lines: list[tuple[float, str]] = []
    seen: dict[int, int] = {}
    begun_at = trio.current_time()

    async def note() -> None:
        for number, data in enumerate(servers.sent):
            for line in data[seen.get(number, 0) :].split(b"\r\n"):
                if line.startswith(b"GET "):
                    lines.append((round(trio.current_time() - begun_at, 6), line.split(b" ")[1].decode()))
            seen[number] = len(data)

    servers.send_hook = note
    result = await crawl_with(
        type("Those", (spider,), {"count": count}),
        load(
            Layer(
                "test",
                {
                    **SETTINGS,
                    "THROTTLING_SCOPES": {HOST: {**FREE, **scope}},
                    "DOWNLOADER_MIDDLEWARES": middleware or {},
                },
            )
        ),
        transport=Http11Transport(TransportSettings(), connect=servers.connect),
        blocking=InlineBlocking(),
        collect=True,
        watchers=[watch],
    )
    assert servers.left_open == 0
    return result, lines


async def test_a05_it_keeps_the_delay_from_the_send_that_met_a_dead_connection(autojump_clock: MockClock) -> None:
    reports: list[ScopeReport] = []
    result, lines = await crawled({"delay": 1.0}, [[PAGE, CLOSES], [PAGE], [PAGE]], reports=reports)
    # page 1 goes out at 1.1 on the connection of page 0, which is dead; a new one is there at 1.2, for whoever is next;
    # it connects ahead by most of the tenth of a second that connecting took
    assert lines[:4] == [(0.1, "/0"), (1.1, "/1"), (2.1, "/2"), (3.106152, "/1")]
    assert sorted(item["path"] for item in result.items) == ["0", "1", "2"]
    assert result.stats["held_count"] == 1
    assert result.stats["request_count"] == len(lines) == 4
    assert result.stats.get("retry_count", 0) == 0
    assert [(report.requests, report.sends) for report in reports] == [(3, 4)]


async def test_who_gets_the_page_does_not_see_that_it_went_twice(autojump_clock: MockClock) -> None:
    class Looks(Pages):
        def parse(self, response: Response) -> Iterator[Any]:
            yield {"path": response.url.rpartition("/")[2], "meta": set(response.meta)}

    result, lines = await crawled({"delay": 1.0}, [[PAGE, CLOSES], [PAGE]], spider=Looks, count=2)
    assert [path for _, path in lines] == ["/0", "/1", "/1"]
    assert result.items[1]["meta"] == result.items[0]["meta"]


@pytest.mark.parametrize("scope", [{"delay_per_slot": 1.0}, {"quota": 2.0, "window": 10.0}])
async def test_a06_f04_it_rests_and_is_charged_like_any_other_send(
    autojump_clock: MockClock, scope: dict[str, Any]
) -> None:
    result, lines = await crawled({**scope, "concurrency": 1}, [[PAGE, CLOSES], [PAGE], [PAGE]], count=2)
    times = [time for time, path in lines if path == "/1"]
    assert times[1] - times[0] >= (1.0 if "delay_per_slot" in scope else 9.5)
    assert len(result.items) == 2


async def test_where_nothing_is_counted_by_sends_it_goes_again_at_once(autojump_clock: MockClock) -> None:
    reached: list[str] = []
    reports: list[ScopeReport] = []

    class Listens(Pages):
        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(
                lambda request: reached.append(request.url[-2:]), trawl.signals.request_reached_downloader
            )
            return spider

    result, lines = await crawled(
        {"concurrency": 1}, [[PAGE, CLOSES], [PAGE]], count=2, spider=Listens, reports=reports
    )
    assert lines == [(0.1, "/0"), (0.1, "/1"), (0.2, "/1")]
    assert reached == [path for _, path in lines]
    assert reports[0].sends == 3
    assert reports[0].rate == pytest.approx(20.0)
    assert len(result.items) == 2
    assert result.stats["request_count"] == 3
    assert "held_count" not in result.stats


async def test_d01_a_hold_that_came_since_its_first_send_holds_the_second(autojump_clock: MockClock) -> None:
    class Two(Pages):
        count = 1

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"path": response.url.rpartition("/")[2]}
            if response.url.endswith("/0"):
                once_more = {"max_retry_times": 1}
                yield from (Request(f"http://{HOST}/{number}", meta=once_more) for number in (1, 2))

    no_delay = {"backoff": {"min_delay": 0.0}, "concurrency": 2}  # so that nothing is counted by sends
    result, lines = await crawled(
        no_delay, [[PAGE, 1.0, CLOSES], [0.3, REFUSED, PAGE, PAGE], [PAGE, PAGE]], spider=Two, count=1
    )
    # of the two, which go in any order, one meets a dead connection at 1.1, the other is refused at 0.5
    assert [time for time, _ in lines[:3]] == [0.1, 0.1, 0.2]
    assert sorted(path for _, path in lines[3:]) == ["/1", "/2"]
    assert min(time for time, _ in lines[3:]) >= 5.5
    assert len(result.items) == 3
    assert result.stats["held_count"] == 1


async def test_a23_bytes_that_arrived_since_its_first_send_are_paid_for_before_the_second(
    autojump_clock: MockClock,
) -> None:
    class Two(Pages):
        def parse(self, response: Response) -> Iterator[Any]:
            yield {"path": response.url.rpartition("/")[2]}
            if response.url.endswith("/0"):
                yield from (Request(f"http://{HOST}/{number}") for number in (1, 2))

    # Each page costs 10 s. Pages 1 and 2 may be sent at 10.1. One meets a dead connection at 11.1, after the other was
    # received at 10.5.
    scope = {"bandwidth": len(PAGE) / 10.0, "concurrency": 2}
    result, lines = await crawled(scope, [[PAGE, 1.0, CLOSES], [0.3, PAGE, PAGE], [PAGE]], spider=Two, count=1)
    assert [time for time, _ in lines] == [0.1, 10.1, 10.2, 20.2]
    assert len(result.items) == 3
    assert result.stats["held_count"] == 1


async def test_it_leaves_nothing_in_the_meta(autojump_clock: MockClock) -> None:
    def copying(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            return await fetch(request.replace())

        return send

    class Copied(Pages):
        def parse(self, response: Response) -> Iterator[Any]:
            yield {"meta": set(response.meta)}

    result, lines = await crawled(
        {"delay": 1.0}, [[PAGE, CLOSES], [PAGE]], spider=Copied, count=2, middleware={copying: 540}
    )
    assert [path for _, path in lines] == ["/0", "/1", "/1"]
    assert result.items[1]["meta"] == result.items[0]["meta"]


async def test_an_exempt_request_goes_again_at_once(autojump_clock: MockClock) -> None:
    class Exempt(Pages):
        def start_requests(self) -> Iterator[Request]:
            yield Request(f"http://{HOST}/0")

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"path": response.url.rpartition("/")[2]}
            if response.url.endswith("/0"):
                yield Request(f"http://{HOST}/1", meta={"dont_throttle": True})

    _, lines = await crawled({"delay": 1.0}, [[PAGE, CLOSES], [PAGE]], spider=Exempt)
    assert lines == [(0.1, "/0"), (0.1, "/1"), (0.2, "/1")]


async def test_r13_a_server_that_lets_no_connection_be_used_twice_starves_nobody(autojump_clock: MockClock) -> None:
    result, lines = await crawled({"delay": 1.0}, [[PAGE, CLOSES]], count=20)
    assert len(result.items) == 20
    assert max(sum(path == f"/{number}" for _, path in lines) for number in range(20)) <= 2
    assert min(round(later - earlier, 6) for (earlier, _), (later, _) in pairwise(lines)) >= 1.0


async def test_r13_a_server_that_answers_nothing_any_more_is_no_endless_tale(autojump_clock: MockClock) -> None:
    result, lines = await crawled({"delay": 1.0, "backoff": {"exceptions": []}}, [[PAGE, CLOSES], [CLOSES]], count=3)
    assert [item["path"] for item in result.items] == ["0"]
    # the one that finds the connection dead which the other left to it may go again, too, but no more
    assert [path for _, path in lines] == ["/0", "/1", "/2", "/1", "/2"]
    assert result.stats["download_error_count"] == 2


class Deaf:
    """A transport whose first connection of each URL is dead; notes which sends asked for a new one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    async def send(self, request: Request, on_sent: Any) -> Outcome:
        path = request.url.rpartition("/")[2]
        is_first = path not in dict(self.asked)
        self.asked.append((path, needs_new_connection(on_sent)))
        started_at = trio.current_time()
        await trio.lowlevel.checkpoint()
        if on_sent() or (is_first and on_sent()):
            return Outcome(request, started_at=started_at, ended_at=started_at)  # held: to go again is another send
        return Outcome(request, Response(request.url, request=request), sent_at=started_at, ended_at=started_at)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_request_that_is_led_elsewhere_after_a_dead_connection_still_gets_a_new_one(
    autojump_clock: MockClock,
) -> None:
    def leading(fetch: Fetch) -> Fetch:
        turns: list[str] = []

        async def send(request: Request) -> Outcome:
            turns.append(request.url)
            if len(turns) > 1:
                request.meta["session"] = "anna"
            return await fetch(request)

        return send

    transport = Deaf()
    scopes = {HOST: {**FREE, "delay": 1.0}}
    settings = {**SETTINGS, "THROTTLING_SCOPES": scopes, "DOWNLOADER_MIDDLEWARES": {leading: 540}}
    result = await crawl_with(
        type("One", (Pages,), {"count": 1}),
        load(Layer("test", settings)),
        transport=transport,
        blocking=InlineBlocking(),
        collect=True,
    )
    assert (result.stats["held_count"], result.stats["diverted_count"]) == (1, 1)
    assert transport.asked == [("0", False), ("0", True)]
    assert len(result.items or ()) == 1


async def test_a_request_that_is_answered_needs_no_new_connection_when_it_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    def trying(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            if outcome.response is not None and not request.meta_get("is_second"):
                outcome.then = Replace(request.replace(meta={**request.meta, "is_second": True}))
            return outcome

        return send

    transport = Deaf()
    scopes = {HOST: {**FREE, "delay": 1.0}}
    settings = {**SETTINGS, "THROTTLING_SCOPES": scopes, "DOWNLOADER_MIDDLEWARES": {trying: 540}}
    await crawl_with(
        type("One", (Pages,), {"count": 1}),
        load(Layer("test", settings)),
        transport=transport,
        blocking=InlineBlocking(),
    )
    assert transport.asked == [("0", False), ("0", True), ("0", False)]


async def test_a_receipt_counts_both_sends(autojump_clock: MockClock) -> None:
    checker = Checker()
    result = await crawl_with(
        type("One", (Pages,), {"count": 1}),
        load(Layer("test", {**SETTINGS, "THROTTLING_SCOPES": {HOST: FREE}})),
        transport=Deaf(),
        blocking=InlineBlocking(),
        recorder=checker.record,
    )
    (scope,) = checker.receipt("test").scopes
    assert result.stats["request_count"] == scope.sends == 2
    assert (scope.most_in_flight, scope.shortest_gap) == (1, 0.0)
