"""Events: what a crawl tells while it runs, to whoever reads, at nobody's expense."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import trawl
from trawl.errors import DropItem, SettingsError
from trawl.events import (
    Event,
    Events,
    EventStream,
    ItemDropped,
    ItemFailed,
    ItemScraped,
    RequestDropped,
    RequestFailed,
    RequestScheduled,
    RequestSent,
    ResponseAccepted,
    ResponseReceived,
    ScopeBackedOff,
    SpiderError,
)
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate


class Pages(trawl.Spider):
    name = "pages"
    start_urls = ("http://a.example/",)
    allowed_domains = ("a.example", "nowhere.example")
    custom_settings: ClassVar[Any] = {
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
    }

    def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
        yield {"url": response.url}
        yield from response.follow_all(css="a")
        if response.url.endswith("/broken"):
            raise ValueError("no")


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    links = ["/", "/1", "/busy", "/broken", "http://b.example/", "http://nowhere.example/"]
    web.add_page("http://a.example/", links=links)
    web.add_page("http://a.example/1", links=[])
    web.add_page("http://a.example/broken", links=[])
    web.add_page("http://a.example/busy", status=429, body="")
    return web


class Reader:
    """A watcher that keeps what it reads."""

    def __init__(self, *kinds: type[Event], most: int = 1000, pause: float = 0.0) -> None:
        self.kinds = kinds
        self.most = most
        self.pause = pause
        self.seen: list[Event] = []
        self.dropped = 0
        self.has_ended = False

    async def watch(self, crawl: Any) -> None:
        with crawl.events(*self.kinds, most=self.most) as events:
            async for event in events:
                self.seen.append(event)
                if self.pause:
                    await trio.sleep(self.pause)
            self.dropped = events.dropped
            await trio.lowlevel.checkpoint()  # there is time for what comes after
            self.has_ended = True

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.seen if type(event) is kind]


def watched(reader: Reader, **settings: object) -> Any:
    return simulate(Pages, a_web(), {"WATCHERS": {reader: 0}, **settings}, errors="collect")


def test_all_that_happens_is_told_in_order_and_the_loop_ends_with_the_crawl() -> None:
    reader = Reader()
    sim = watched(reader)
    assert reader.has_ended
    assert [event.at for event in reader.seen] == sorted(event.at for event in reader.seen)
    first = [type(event) for event in reader.seen[:4]]
    assert first == [RequestScheduled, RequestSent, ResponseReceived, ResponseAccepted]
    assert len(reader.of(RequestSent)) == sim.stats["request_count"]
    assert next(event.scopes for event in reader.of(RequestSent)) == ["a.example"]
    assert {event.response.status for event in reader.of(ResponseReceived)} == {200, 429}
    scraped = reader.of(ItemScraped)
    assert [event.item for event in scraped] == sim.items
    assert all(event.response.url == event.item["url"] for event in scraped)
    dropped = {(event.request.url, event.reason) for event in reader.of(RequestDropped)}
    assert dropped == {("http://a.example/", "dupefilter_filtered"), ("http://b.example/", "offsite_filtered")}
    assert [event.request.url for event in reader.of(RequestFailed)] == ["http://nowhere.example/"]
    (failed,) = reader.of(SpiderError)
    assert (failed.request.url, str(failed.error)) == ("http://a.example/broken", "no")
    backed_off = [event for event in reader.of(ScopeBackedOff) if event.scope == "a.example"]
    assert [(event.step, event.reason) for event in backed_off] == [(1, "429 of http://a.example/busy")]


def test_only_what_is_asked_for_is_told() -> None:
    reader = Reader(ItemScraped)
    sim = watched(reader)
    assert [event.item for event in reader.seen if isinstance(event, ItemScraped)] == sim.items
    assert len(reader.seen) == len(sim.items)


def test_a_slow_reader_loses_the_oldest_and_the_crawl_is_not_slower_for_it() -> None:
    quick, slow = Reader(), Reader(most=3, pause=0.75)
    fast, held = watched(quick), watched(slow)
    assert [send.time for send in held.sends] == [send.time for send in fast.sends]
    assert slow.dropped > 0
    assert len(slow.seen) + slow.dropped == len(quick.seen)
    assert type(slow.seen[-1]) is type(quick.seen[-1])
    assert slow.has_ended


async def test_tasks_that_share_a_stream_share_its_events(autojump_clock: MockClock) -> None:
    events = Events()
    seen: list[Any] = []

    async def read(stream: EventStream[ItemScraped]) -> None:
        async for event in stream:
            seen.append(event.item)

    with trio.fail_after(1), events.stream([ItemScraped], 10) as stream:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(read, stream)
            for n in range(3):
                await wait_all_tasks_blocked()
                events.emit(ItemScraped(n, None))
            await wait_all_tasks_blocked()
            events.is_over = True
            stream.wake()
    assert seen == [0, 1, 2]


def test_a_reader_that_never_ends_has_a_limited_time() -> None:
    reader = Reader(RequestSent, pause=100.0)
    sim = watched(reader)
    assert sim.reason == "finished"
    assert not reader.has_ended


class Pipeline:
    def process_item(self, item: Any, spider: object) -> Any:
        if item["url"].endswith("/1"):
            raise DropItem("too small")
        if item["url"].endswith("/broken"):
            raise RuntimeError("disk")
        return {**item, "seen": True}


def test_what_the_pipelines_make_of_items_is_told() -> None:
    reader = Reader(ItemScraped, ItemDropped, ItemFailed)
    watched(reader, ITEM_PIPELINES={Pipeline: 1})
    assert [event.item for event in reader.of(ItemScraped)] == [{"url": "http://a.example/", "seen": True}]
    assert [event.reason for event in reader.of(ItemDropped)] == ["too small"]
    assert [str(event.error) for event in reader.of(ItemFailed)] == ["disk"]


def test_a_request_that_robots_txt_forbids_is_told() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /", handler=lambda request: SimulatedResponse())
    reader = Reader(RequestDropped)
    simulate(Pages, web, {"WATCHERS": {reader: 0}, "ROBOTSTXT_OBEY": True})
    assert [event.reason for event in reader.of(RequestDropped)] == ["robots_forbidden"]


async def test_items_are_told_with_a_job_too(tmp_path: Any, autojump_clock: MockClock) -> None:
    reader = Reader(ItemScraped)
    settings = {"WATCHERS": {reader: 0}, "JOB_DIR": str(tmp_path / "job"), "ITEM_PIPELINES": {Pipeline: 1}}
    sim = await a_web().crawl(Pages, settings, errors="collect")
    assert [event.item for event in reader.of(ItemScraped)] == sim.items


def test_nobody_who_reads_costs_nothing() -> None:
    events = Events()
    assert events.wanted == {}
    with events.stream((RequestSent,), 1):
        assert list(events.wanted) == [RequestSent]
    assert events.wanted == {}


async def test_events_are_read_inside_their_block_only() -> None:
    events = Events()
    stream = events.stream((RequestSent,), 1)
    with pytest.raises(RuntimeError, match="inside their block"):
        await anext(stream)


def test_what_is_no_kind_of_event_is_refused() -> None:
    with pytest.raises(TypeError, match="choose from RequestScheduled"):
        Events().stream((dict,), 1)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="of at least 1"):
        Events().stream((RequestSent,), 0)


def test_an_event_is_a_frozen_value() -> None:
    event = ScopeBackedOff("a.example", 1, 2.0, 1.0, "429", at=3.0)
    assert event == ScopeBackedOff("a.example", 1, 2.0, 1.0, "429", at=3.0)
    with pytest.raises(AttributeError):
        event.step = 2  # type: ignore[misc]


def test_a_watcher_that_fails_is_told_and_the_crawl_goes_on() -> None:
    async def broken(crawl: Any) -> None:
        raise ValueError("mine")

    sim = simulate(Pages, a_web(), {"WATCHERS": {broken: 0}}, errors="collect")
    assert (sim.reason, sim.stats["watcher_exceptions"]) == ("finished", 1)


def test_a_watcher_is_a_function_or_a_class_or_left_out() -> None:
    begun: list[str] = []

    class Beat:
        @classmethod
        def from_crawler(cls, crawl: Any) -> Beat:
            begun.append(crawl.spider.name)
            return cls()

        async def watch(self, crawl: Any) -> None:
            begun.append("watching")

    async def later(crawl: Any) -> None:
        begun.append("later")

    simulate(Pages, a_web(), {"WATCHERS": {later: 2, Beat: 1, "no.such": None}}, errors="collect")
    assert begun[0] == "pages"
    assert set(begun[1:]) == {"watching", "later"}


async def giving(crawl: Any) -> AsyncGenerator[int, None]:
    yield 1


async def of_nothing() -> None:
    return None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("no.such.thing", "can't be imported"),
        (object(), "is not a watcher"),
        (giving, "giving is not a watcher"),
        (of_nothing, "of_nothing is not a watcher"),
        ("none", "no installed package"),
    ],
)
def test_what_is_no_watcher_is_refused(entry: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        simulate(Pages, a_web(), {"WATCHERS": {entry: 1}})


def test_a_watcher_that_is_no_async_function_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def plain(crawl: Any) -> int:
        return 5

    result = simulate(Pages, a_web(), {"WATCHERS": {plain: 1}}, errors="collect")
    assert result.stats["watcher_exceptions"] == 1
    [told] = [record for record in caplog.records if record.name == "trawl.engine" and "watch" in record.getMessage()]
    assert told.getMessage().endswith("plain does not watch: it is no async function, and gave 5")
    assert told.exc_info is None


async def test_the_items_of_an_open_crawl_and_its_events_side_by_side(autojump_clock: MockClock) -> None:
    class Started(trawl.Spider):
        name = "started"

        async def start(self) -> AsyncGenerator[Any, None]:
            await is_read.wait()
            yield {"n": 1}

    seen: list[Any] = []
    is_read = trio.Event()

    async def begun(crawl: trawl.OpenCrawl) -> Any:
        while True:
            try:
                return crawl.running
            except RuntimeError:
                await trio.sleep(0.01)

    async def read(crawl: Any) -> None:
        with (await begun(crawl)).events(ItemScraped) as events:
            is_read.set()
            async for event in events:
                seen.append((event.item, event.response))

    async with trawl.open_crawl(Started) as crawl, trio.open_nursery() as nursery:
        nursery.start_soon(read, crawl)
        assert [item async for item in crawl] == [{"n": 1}]
    assert seen == [({"n": 1}, None)]
