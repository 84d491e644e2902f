"""Counts that end a crawl: never one page, item or error too many, and nothing that was found is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.errors import SettingsError
from trawl.exceptions import DropItem
from trawl.frontier import MemoryFrontier
from trawl.http import Outcome, Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, Uniform, simulate
from trawl.transport import OnSent, Transport

FREE: Mapping[str, object] = {
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "ROBOTSTXT_OBEY": False,
}


class Follows(trawl.Spider):
    """Two items a page, and every link."""

    name = "follows"
    start_urls: tuple[str, ...] = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")
        yield {"again": response.url}


def site(pages: int = 300) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_site("a.example", pages, latency=Uniform(0.05, 0.5))
    return web


@pytest.mark.parametrize("most", [1, 2, 7, 8, 9, 50])
def test_so_many_pages_are_sent_and_not_one_more(most: int) -> None:
    sim = simulate(Follows, site(), {**FREE, "CLOSESPIDER_PAGECOUNT": most})
    assert sim.reason == "closespider_pagecount"
    assert len(sim.sends) == sim.stats["response_count"] == most
    assert len(sim.items) == 2 * most  # what their callbacks gave is there: this is an end, not a cut


def test_robots_txt_is_no_page() -> None:
    sim = simulate(Follows, site(), {**FREE, "ROBOTSTXT_OBEY": True, "CLOSESPIDER_PAGECOUNT": 5})
    assert [send.url for send in sim.sends].count("http://a.example/robots.txt") == 1
    assert len(sim.sends) == 6


def test_redirects_failures_and_repeated_tries_are_no_pages_and_hold_none_back() -> None:
    def answer(request: Request) -> SimulatedResponse:
        number = int(request.url.rsplit("/", 1)[1])
        if number % 4 == 1:
            return SimulatedResponse(301, headers={"Location": f"/{number + 1000}"})
        if number % 4 == 2:
            raise trawl.exceptions.ResponseBroken("gone")
        return SimulatedResponse(500 if number % 4 == 3 else 200)

    class Many(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(100):
                yield Request(f"http://a.example/{number}")

    web = SimulatedWeb()
    web.add_host("a.example", latency=Uniform(0.05, 0.5), handler=answer)
    settings = {**FREE, "CLOSESPIDER_PAGECOUNT": 10, "RETRY_DELAY": 0.1, "BACKOFF_EXCEPTIONS": [], "RETRY_TIMES": 1}
    sim = simulate(Many, web, settings)
    assert sim.reason == "closespider_pagecount"
    whole = [send.url for send in sim.sends if send.status == 200]
    failed = Counter(send.url for send in sim.sends if send.status == 500)
    assert len(whole) + sum(tries == 2 for tries in failed.values()) == 10  # RETRY_TIMES is 1: the second try is a page
    assert {301, None} <= {send.status for send in sim.sends}


def test_direct_fetches_are_pages_and_a_callback_that_wants_one_more_gives_its_page_back() -> None:
    class Asks(Follows):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            for number in range(3):
                await self.fetch(Request(f"{response.url}detail{number}"))
            return {"url": response.url}

    reason, items, frontier = crawled(Asks, {**FREE, "CLOSESPIDER_PAGECOUNT": 3})
    assert reason == "closespider_pagecount"
    assert items == []
    assert frontier.statistics().pending == 1


def crawled(
    spider: type[trawl.Spider], settings: Mapping[str, object], transport: Transport | None = None
) -> tuple[str, list[Any], MemoryFrontier]:
    """The reason, the items and the frontier of a crawl of a site, or of what else a transport answers."""
    frontier = MemoryFrontier()

    async def main() -> trawl.CrawlResult:
        return await crawl_with(
            spider,
            load(Layer("test", settings)),
            transport=transport or site().transport(),
            blocking=InlineBlocking(),
            frontier=frontier,
            seed=0,
            collect=True,
        )

    result = trio.run(main, clock=MockClock(autojump_threshold=0))
    return result.reason, result.items or [], frontier


@pytest.mark.parametrize("most", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("pipelines", [{}, {"Slow": 1}])
def test_so_many_items_are_delivered_and_not_one_more(most: int, pipelines: Mapping[str, int]) -> None:
    class Slow:
        async def process_item(self, item: Any, spider: trawl.Spider) -> Any:
            await trio.sleep(0.3)
            return item

    settings = {**FREE, "CLOSESPIDER_ITEMCOUNT": most, "ITEM_PIPELINES": {Slow: 1} if pipelines else {}}
    sim = simulate(Follows, site(), settings)
    assert sim.reason == "closespider_itemcount"
    assert len(sim.items) == sim.stats["item_scraped_count"] == most


def test_an_item_that_a_pipeline_drops_is_not_counted() -> None:
    class Odd:
        def process_item(self, item: Any, spider: trawl.Spider) -> Any:
            if "again" in item:
                raise DropItem("seen")
            return item

    sim = simulate(Follows, site(), {**FREE, "CLOSESPIDER_ITEMCOUNT": 9, "ITEM_PIPELINES": {Odd: 1}})
    assert len(sim.items) == 9
    assert not [item for item in sim.items if "again" in item]


@pytest.mark.parametrize("kind", ["generator", "async generator", "list", "in a nursery"])
def test_the_page_at_which_the_items_were_full_is_given_back_with_what_else_it_had(kind: str) -> None:
    class Gives(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            if kind == "generator":
                return self.plain(response)
            if kind == "list":
                return list(self.plain(response))
            return self.asynchronous(response) if kind == "async generator" else self.nursery(response)

        def plain(self, response: Response) -> Any:
            for number in range(5):
                yield {"url": response.url, "number": number}
            yield Request("http://a.example/more")

        async def asynchronous(self, response: Response) -> Any:
            for output in self.plain(response):
                yield output

        async def nursery(self, response: Response) -> Any:
            async with trio.open_nursery():
                for output in self.plain(response):
                    yield output  # noqa: ASYNC119 - as users do

    reason, items, frontier = crawled(Gives, {**FREE, "CLOSESPIDER_ITEMCOUNT": 3})
    assert reason == "closespider_itemcount"
    assert [item["number"] for item in items] == [0, 1, 2]
    statistics = frontier.statistics()
    assert (statistics.pending, statistics.leased) == (1, 0)  # the page itself, and nothing of what it did not get to


def test_items_of_start_are_counted_too() -> None:
    class Starts(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(10):
                yield {"number": number}

    sim = simulate(Starts, site(), {**FREE, "CLOSESPIDER_ITEMCOUNT": 4})
    assert sim.reason == "closespider_itemcount"
    assert [item["number"] for item in sim.items] == [0, 1, 2, 3]


Runs = Callable[..., trawl.CrawlResult]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs one job of a spider again and again, with a feed in ``out.jsonl`` unless ``feed`` is false."""

    def run(spider: type[trawl.Spider], settings: Mapping[str, object], *, feed: bool = True) -> trawl.CrawlResult:
        feeds = {str(tmp_path / "out.jsonl"): {"format": "jsonl"}} if feed else {}
        values = load(Layer("test", {**FREE, "JOB_DIR": str(tmp_path / "job"), "FEEDS": feeds, **settings}))

        async def main() -> trawl.CrawlResult:
            transport = site(30).transport()
            return await crawl_with(
                spider, values, transport=transport, blocking=InlineBlocking(), seed=0, collect=True
            )

        return trio.run(main, clock=MockClock(autojump_threshold=0))

    return run


class Three(Follows):
    async def parse(self, response: Response, **kwargs: Any) -> Any:
        for number in range(3):
            await trio.sleep(0.01)
            yield {"url": response.url, "number": number}
        for request in response.follow_all(css="a"):
            yield request


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@pytest.mark.parametrize("most", [1, 4, 7, 10])
def test_with_a_job_so_many_items_are_delivered_and_the_next_run_begins_with_the_rest(
    tmp_path: Path, runs: Runs, most: int
) -> None:
    counts, feed = [0], tmp_path / "out.jsonl"
    for settings in [{"CLOSESPIDER_ITEMCOUNT": most}] * 3 + [{"CLOSESPIDER_PAGECOUNT": 2}, {}]:
        result = runs(Three, settings)
        assert result.reason == next((name.lower() for name in settings), "finished")
        assert len(set(lines(feed))) == len(lines(feed)) == result.stats["item_scraped_count"]
        counts.append(len(lines(feed)))
        assert len(result.items or []) == counts[-1] - counts[-2]
    assert counts[:4] == [0, most, 2 * most, 3 * most]
    assert counts[-1] == 90
    assert result.stats["response_count"] == 30  # no page was sent again


@pytest.mark.parametrize("format", ["jsonl", "csv", "json", "xml"])
def test_with_a_job_every_feed_has_so_many_items_in_each_run(tmp_path: Path, runs: Runs, format: str) -> None:
    other = tmp_path / f"other.{format}"
    feeds = {str(tmp_path / "out.jsonl"): {"format": "jsonl"}, str(other): {"format": format}}
    for n in range(1, 4):
        runs(Three, {"CLOSESPIDER_ITEMCOUNT": 5, "FEEDS": feeds})
        assert len(lines(tmp_path / "out.jsonl")) == 5 * n
        assert len(re.findall(r"http://a\.example", other.read_text("utf-8"))) == 5 * n


def test_with_a_job_and_no_feed_each_run_counts_and_collects_so_many(runs: Runs) -> None:
    collected = [runs(Three, {"CLOSESPIDER_ITEMCOUNT": 7}, feed=False) for _ in range(3)]
    assert [result.stats["item_scraped_count"] for result in collected] == [7, 14, 21]
    found = [item for result in collected for item in result.items or []]
    assert len({tuple(item.values()) for item in found}) == len(found) == 21
    found += runs(Three, {"CLOSESPIDER_ITEMCOUNT": 70}, feed=False).items or []
    assert len({tuple(item.values()) for item in found}) == len(found) == 90
    assert runs(Three, {}, feed=False).stats["item_scraped_count"] == 90


def test_with_a_job_an_item_that_can_not_be_written_is_lost_and_takes_no_place(tmp_path: Path, runs: Runs) -> None:
    class Mixed(trawl.Spider):
        name = "mixed"
        start_urls: tuple[str, ...] = ("http://a.example/",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            for number in range(8):
                yield {"number": object() if number in {1, 5, 6} else number}

    found: list[object] = []
    feed = tmp_path / "out.jsonl"
    for most, written in ((3, [0, 2, 3]), (1, [0, 2, 3, 4]), (9, [0, 2, 3, 4, 7])):
        result = runs(Mixed, {"CLOSESPIDER_ITEMCOUNT": most})
        found += [item["number"] for item in result.items or []]
        assert lines(feed) == [f'{{"number":{number}}}' for number in written]
        assert found == written
        assert result.stats["item_scraped_count"] == len(written)
    assert result.stats["item_lost_count"] == 3


def test_with_a_job_items_of_start_are_counted_too(tmp_path: Path, runs: Runs) -> None:
    class Starts(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(10):
                yield {"number": number}

    feed = tmp_path / "out.jsonl"
    assert runs(Starts, {"CLOSESPIDER_ITEMCOUNT": 4}).reason == "closespider_itemcount"
    assert len(lines(feed)) == 4
    assert runs(Starts, {"CLOSESPIDER_ITEMCOUNT": 20}).reason == "finished"
    assert lines(feed) == [f'{{"number":{number}}}' for number in range(10)]


@pytest.mark.interpreted
def test_with_a_job_a_page_without_an_end_is_cut_off_and_waits_c4(
    tmp_path: Path, runs: Runs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.limits.MAX_BEYOND", 5)
    asked: list[int] = []

    class Long(trawl.Spider):
        name = "long"
        start_urls: tuple[str, ...] = ("http://a.example/",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            for number in range(2000):
                asked.append(number)
                yield {"number": number}

    assert runs(Long, {"CLOSESPIDER_ITEMCOUNT": 3}).reason == "closespider_itemcount"
    assert asked == list(range(3 + 5 + 1))
    assert lines(tmp_path / "out.jsonl") == []
    assert "http://a.example/ gives more than 5 items beyond the 3 of CLOSESPIDER_ITEMCOUNT" in caplog.text
    caplog.clear()
    assert runs(Long, {"CLOSESPIDER_ITEMCOUNT": 1995}).reason == "closespider_itemcount"
    assert len(lines(tmp_path / "out.jsonl")) == 1995
    assert runs(Long, {}).reason == "finished"
    assert lines(tmp_path / "out.jsonl") == [f'{{"number":{number}}}' for number in range(2000)]
    assert "gives more" not in caplog.text


def test_so_many_failed_callbacks_end_the_crawl() -> None:
    class Fails(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield from response.follow_all(css="a")
            raise LookupError("no title")

    sim = simulate(
        Fails, site(), {**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "CLOSESPIDER_ERRORCOUNT": 4}, errors="collect"
    )
    assert sim.reason == "closespider_errorcount"
    assert sim.stats["spider_exceptions"] == len(sim.sends) == 4


class Cache:
    """A transport that has everything already."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        await trio.lowlevel.checkpoint()
        return Outcome(request, Response(request.url, body=b"kept", request=request), is_cached=True)

    async def aclose(self) -> None:
        """Nothing is open."""


def test_a_cached_answer_is_a_page_of_the_crawl_and_none_of_its_hosts() -> None:
    class Many(Follows):
        start_urls = tuple(f"http://a.example/{number}" for number in range(20))

    reason, items, _ = crawled(Many, {**FREE, "CLOSESPIDER_PAGECOUNT": 6, "PAGES_PER_DOMAIN": 2}, Cache())
    assert reason == "closespider_pagecount"
    assert len(items) == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLOSESPIDER_ITEMCOUNT", -1),
        ("CLOSESPIDER_PAGECOUNT", "many"),
        ("CLOSESPIDER_PAGECOUNT", 1.5),
        ("CLOSESPIDER_ERRORCOUNT", None),
        ("CLOSESPIDER_TIMEOUT", -0.1),
        ("CLOSESPIDER_TIMEOUT_NO_ITEM", [1]),
        ("MEMUSAGE_LIMIT_MB", -5),
        ("MEMUSAGE_WARNING_MB", "lots"),
        ("MEMUSAGE_CHECK_INTERVAL_SECONDS", 0),
        ("DIRECT_FETCHES_LIMIT", 0),
        ("PAGES_PER_DOMAIN", -1),
        ("SHUTDOWN_TIMEOUT", -1),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name):
        simulate(Follows, site(), {name: value})


@pytest.mark.parametrize("value", [0, -1, 2.5, "all", True])
def test_a_budget_that_is_none_is_refused_by_its_entry(value: object) -> None:
    with pytest.raises(SettingsError, match=r"THROTTLING_SCOPES\['a.example'\]\['pages'\]"):
        simulate(Follows, site(), {"THROTTLING_SCOPES": {"a.example": {"pages": value}}})
