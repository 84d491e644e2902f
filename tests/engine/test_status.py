"""The status of a running crawl: ``crawl.status()``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

import trawl
from trawl.engine import Crawl
from trawl.engine.status import SHARE, SLICE, StatusKeeper
from trawl.engine.steering import View
from trawl.http import Request, Response
from trawl.observe import CrawlStatus, ScopeStatus, estimate_words
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.throttling import Reason

SETTINGS = {
    "DOWNLOAD_DELAY": 1.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
}


@attrs.define
class Book:
    title: str


def looked_at(
    look: Callable[[Crawl], Any], settings: dict[str, Any] | None = None, *, pages: int = 30, at: float = 10.25
) -> Any:
    """Return what ``look`` sees ``at`` seconds after the first request for a status."""
    found: list[Any] = []

    class Books(trawl.Spider[Any]):
        name = "books"

        async def start(self) -> AsyncIterator[Request]:
            for number in range(pages):
                yield Request(f"http://a.example/{number}")

        def parse(self, response: Response) -> Iterator[Any]:
            if response.url.endswith("/3"):
                raise ValueError("no <b>price</b>")
            yield Book("x") if response.url.endswith("/1") else {"url": response.url}

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(0.5)  # between two sends
        crawl.status()
        await trio.sleep(at)
        found.append(look(crawl))
        crawl.cancel()

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda _: SimulatedResponse(body="12345", latency=0.3))
    simulate(Books, web, {**SETTINGS, **(settings or {}), "WATCHERS": {watch: 0}}, errors="collect")
    return found[0]


def test_the_status_has_the_figures_the_rates_and_the_types_of_items() -> None:
    status: CrawlStatus = looked_at(lambda crawl: crawl.status())
    assert (status.spider, status.state, status.pages, status.in_flight) == ("books", "running", 11, 0)
    assert status.queued == 19
    assert status.statuses == {"200": 11}
    assert status.item_types == {"dict": 9, "Book": 1}
    assert status.rates.pages.ten_seconds == pytest.approx(1.0, rel=0.1)
    assert status.rates.pages.whole == pytest.approx(1.0, rel=0.1)
    assert status.health.scopes == 1


def test_the_status_says_what_requests_wait_for_and_when_they_end() -> None:
    status: CrawlStatus = looked_at(lambda crawl: crawl.status())
    assert status.limits == {"delay": 19}
    assert [(group.count, group.words.partition(" ")[0]) for group in status.waiting] == [(19, "a.example")]
    assert status.estimate is not None
    assert status.estimate.scope == "a.example"
    assert status.estimate.reason == "delay 1.0 s, configuration"
    assert 18.0 <= status.estimate.seconds <= 19.0


def test_the_estimate_is_kept() -> None:
    def look(crawl: Crawl) -> float:
        status = crawl.status()
        assert status.estimate is not None
        return status.at + status.estimate.seconds

    assert looked_at(look, at=5.0) == pytest.approx(looked_at(look, at=20.0), abs=1.0)
    assert looked_at(look, at=5.0) == pytest.approx(29.0, abs=1.0)  # 30 pages, one a second from 0 on


def test_the_last_error_of_each_kind_comes_with_its_traceback() -> None:
    status: CrawlStatus = looked_at(lambda crawl: crawl.status())
    (error,) = status.last_errors
    assert (error.kind, error.count) == ("callback ValueError", 1)
    assert error.message == "http://a.example/3: no <b>price</b>"
    assert 'raise ValueError("no <b>price</b>")' in error.traceback


def test_of_many_errors_only_the_last_of_each_kind_is_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[BaseException] = []
    monkeypatch.setattr("trawl.engine.status._traceback_of", formatted.append)

    class Wrong(trawl.Spider[Any]):
        name = "wrong"
        start_urls = tuple(f"http://a.example/{number}" for number in range(9))

        def parse(self, response: Response) -> None:
            raise (KeyError if response.url.endswith("5") else ValueError)(response.url)

    async def watch(crawl: Crawl) -> None:
        crawl.status()
        with crawl.stay_open():
            await trio.sleep(2.25)
            found.extend(crawl.status().last_errors)

    found: list[Any] = []
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    simulate(Wrong, web, {**SETTINGS, "DOWNLOAD_DELAY": 0.09, "WATCHERS": {watch: 0}}, errors="collect")
    assert {error.kind: error.count for error in found} == {"callback ValueError": 8, "callback KeyError": 1}
    assert len(formatted) == 2


def test_a_scope_has_its_responses_bytes_latencies_and_next_send() -> None:
    (scope,) = looked_at(lambda crawl: list(crawl.status_keeper.scopes.values()))
    assert (scope.scope, scope.sends, scope.queued, scope.limit) == ("a.example", 11, 19, "delay")
    assert scope.statuses == (0, 11, 0, 0, 0, 0)
    assert scope.size == 55
    assert scope.latency == (0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0)
    assert 0.0 <= scope.next_send <= 1.0
    assert scope.seconds == pytest.approx(18.5, abs=0.1)


def test_a_paused_crawl_says_so() -> None:
    def look(crawl: Crawl) -> Reason | None:
        crawl.pause()
        return crawl.why("http://a.example/20")

    assert "paused" in looked_at(look).source


def test_why_takes_the_url_of_a_pending_request() -> None:
    reason = looked_at(lambda crawl: crawl.why("http://a.example/20"))
    assert (reason.scope, reason.limit) == ("a.example", "delay")


def test_why_finds_a_url_that_no_scope_delays() -> None:
    class Links(trawl.Spider[Any]):
        name = "links"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response) -> AsyncIterator[Any]:
            if response.url.endswith("/1"):
                await trio.sleep(0.01)  # until the next request is in flight
                assert self.crawl is not None
                yield {"reason": self.crawl.why("http://a.example/9"), "other": self.crawl.why("http://b.example/")}
            for request in response.follow_all(css="a"):
                yield request

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    web.add_page("http://a.example/", links=[f"/{number}" for number in range(1, 10)])
    settings = {**SETTINGS, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    (item,) = simulate(Links, web, settings).items
    assert (item["reason"].limit, item["reason"].source) == ("places", "CONCURRENT_REQUESTS")
    assert item["other"] is None


def test_a_crawl_that_is_looked_at_ends_when_its_last_page_does() -> None:
    class Page(trawl.Spider[Any]):
        name = "page"
        start_urls = ["http://a.example/"]

        def parse(self, response: Response) -> None:
            self.crawl.status()

    web = SimulatedWeb()
    web.add_host("a.example", latency=1.5)
    assert simulate(Page, web, SETTINGS).elapsed == 1.5


def test_nothing_runs_until_a_status_is_requested() -> None:
    class One(trawl.Spider[Any]):
        name = "one"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response) -> None: ...

    web, made = SimulatedWeb(), []
    web.add_host("a.example")

    async def watch(crawl: Crawl) -> None:
        made.append(crawl._status_keeper)

    simulate(One, web, {"WATCHERS": {watch: 0}})
    assert made == [None]


async def test_all_scopes_are_read_in_slices_with_a_share_of_the_time(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, steps = 0, 300

    class Busy(StatusKeeper):
        def __init__(self) -> None:
            self._due = 0.0

        def _steps(self) -> Iterator[None]:  # type: ignore[override]
            nonlocal rounds
            for _ in range(steps):
                mock_clock.jump(SLICE / 10)
                yield
            rounds += 1

    monkeypatch.setattr("trawl.engine.status.thread_time", trio.current_time)
    mock_clock.autojump_threshold = 0
    started_at = trio.current_time()
    with trio.move_on_after(60.0):
        await Busy()._go_round()
    assert rounds >= 10
    assert rounds * steps * SLICE / 10 / (trio.current_time() - started_at) <= SHARE


NO_VIEW = """
import sys, trawl, trawl.cli.app

class Page(trawl.Spider):
    name = "page"
    start_urls = ["http://127.0.0.1:9/"]

trawl.run(Page, {"RETRY_ENABLED": False, "ROBOTSTXT_OBEY": False})
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_without_a_view_nothing_of_it_is_imported() -> None:
    modules = [
        "trawl.engine.status",
        "trawl.engine.steering",
        "trawl.panel",
        "trawl.telemetry",
        "trawl.testing.receipt",
    ]
    modules += ["starlette", "hypercorn", "prometheus_client", "opentelemetry"]
    done = subprocess.run([sys.executable, "-c", NO_VIEW, *modules], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_page_of_the_scopes_is_sorted_once_a_round_and_computed_anew_once_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []

    def status_of(scope: Any, now: float, queued: int) -> ScopeStatus:
        computed.append(scope.id)
        return ScopeStatus(scope=scope.id, sends=1000, queued=queued)

    def ids(offset: int) -> list[str]:
        rows, total = keeper.page(View(text="1", offset=offset, count=3))
        assert total == 19
        return [row.scope for row in rows if row.sends == 1000]

    monkeypatch.setattr("trawl.engine.status.status_of", status_of)
    monkeypatch.setattr("trawl.engine.status.MAX_FRESH", 5)
    keeper: Any = StatusKeeper.__new__(StatusKeeper)
    keeper.scopes = {f"h{number}": ScopeStatus(scope=f"h{number}", sends=number) for number in range(100)}
    keeper._orders, keeper._fresh = {}, {}
    keeper._throttle = SimpleNamespace(
        table=SimpleNamespace(get=lambda id: None if id == "h81" else SimpleNamespace(id=id))
    )

    async def look() -> None:
        assert ids(0) == ["h91", "h71"]  # h81 is gone
        assert ids(0) == ["h91", "h71"]
        assert ids(3) == ["h61", "h51"]  # the third is of the last round
        assert len(keeper._orders) == 1

    trio.run(look)
    assert computed == ["h91", "h71", "h61", "h51"]


def estimated(
    settings: dict[str, Any], *, pages: int = 100, hosts: int = 1, robots: str = "", scopes: Sequence[str] = ()
) -> tuple[Any, float]:
    """Return the estimate after 10 s of a crawl whose first page has all links, and the seconds that it really took."""
    found: list[Any] = []
    names = [f"{number}.example" for number in range(hosts)]

    class Linked(trawl.Spider[Any]):
        name = "linked"
        start_urls = ("http://0.example/start",)

        def parse(self, response: Response) -> Iterator[Request]:
            if response.url.endswith("/start"):
                for number in range(pages):
                    for name in names:
                        meta = {"throttling_scopes": [name, *scopes]} if scopes else {}
                        yield Request(f"http://{name}/{number}", meta=meta)

    async def watch(crawl: Crawl) -> None:
        crawl.status()
        await trio.sleep(10.0)
        found.append(crawl.status().estimate)

    web = SimulatedWeb()
    for name in names:
        web.add_host(name, latency=0.5, robots=robots, handler=lambda _: SimulatedResponse(200, "x" * 10_000))
    own = {**SETTINGS, "DOWNLOAD_DELAY": 0.0, "ROBOTSTXT_OBEY": bool(robots), "WATCHERS": {watch: 0}, **settings}
    return found, simulate(Linked, web, own).elapsed - 10.0


def limited(**limits: Any) -> dict[str, Any]:
    return {"THROTTLING_SCOPES": {"0.example": limits}}


@pytest.mark.parametrize(
    ("crawl", "decides"),
    [
        ({"settings": {"DOWNLOAD_DELAY": 2.0}}, "0.example (delay 2.0 s"),
        ({"settings": {"DOWNLOAD_DELAY": 2.0, "RANDOMIZE_DOWNLOAD_DELAY": True}, "pages": 200}, "delay 2.0 s"),
        ({"settings": {"DOWNLOAD_DELAY_PER_SLOT": 2.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}}, "delay per slot 2.0 s"),
        ({"settings": {"CONCURRENT_REQUESTS_PER_DOMAIN": 2}}, "concurrency 2"),
        ({"settings": {"CONCURRENT_REQUESTS": 4}, "pages": 30, "hosts": 10}, "CONCURRENT_REQUESTS 4"),
        ({"settings": {}, "robots": "User-agent: *\nCrawl-delay: 7", "pages": 30}, "Crawl-delay 7 of robots.txt"),
        ({"settings": limited(bandwidth=2500)}, "bandwidth 2500"),
        ({"settings": limited(rate=2.0)}, "delay 0.5 s"),
        ({"settings": limited(quota=30, window=60)}, "quota 30"),
        ({"settings": limited(quota=30, window=60, sliding=True)}, "quota 30"),
        ({"settings": limited(quota=90, window=600, delay=1.0)}, "quota 90"),
        ({"settings": limited(quota=900, window=900, delay=1.0)}, "delay 1.0 s"),
        (
            {"settings": {"THROTTLING_SCOPES": {"api": {"delay": 3.0}}}, "hosts": 2, "scopes": ["api"]},
            "api (delay 3.0 s",
        ),
    ],
)
def test_the_estimate_is_within_a_tenth_of_what_the_crawl_takes(crawl: dict[str, Any], decides: str) -> None:
    (estimate,), seconds = estimated(**crawl)
    assert estimate.seconds == pytest.approx(seconds, rel=0.1)
    assert decides in estimate_words(estimate)
