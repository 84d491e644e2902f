"""Each request ends once: in its callback, in its errback, or counted, as the guide's table "Which end it is" says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.errors import ConnectFailed, ConnectTimeout, DownloadTimeout, ReadTimeout, ResponseBroken, TLSFailed
from trawl.exceptions import DownloadError, HostGivenUp, HttpError, NameNotResolved
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "callbacks.md"
A = "a.example"
COUNT = 3
STATISTICS = ("robots_forbidden", "offsite_filtered", "dupefilter_filtered")


class Ends(trawl.Spider):
    """Counts the ends of its requests."""

    name = "ends"
    allowed_domains = [A]
    ends: Counter[tuple[str, str]]
    errors: list[Any]

    async def start(self) -> Any:
        type(self).ends, type(self).errors = Counter(), []
        yield trawl.Request(
            "http://a.example/first", self.first, errback=self.first, meta={"dont_obey_robotstxt": True}
        )

    def first(self, _: object) -> Iterator[trawl.Request]:
        for number in range(COUNT):
            yield trawl.Request(self.url.format(number), errback=self.failed, meta=dict(self.meta))

        if self.others:
            yield trawl.Request("http://a.example/other/0", self.other)

    url = "http://a.example/{}"
    meta: Mapping[str, Any] = {}
    others = 0
    """Further pages, which the host serves, one after the other."""

    def other(self, response: trawl.Response) -> Iterator[trawl.Request]:
        number = int(response.url.rpartition("/")[2]) + 1
        if number < self.others:
            yield trawl.Request(f"http://a.example/other/{number}", self.other)

    def parse(self, response: trawl.Response) -> None:
        self.ends[response.meta.get("redirect_urls", [response.url])[0], "callback"] += 1

    def failed(self, error: Any) -> None:
        self.ends[error.request.url, "errback"] += 1
        self.errors.append(error)


Case = tuple[Callable[[SimulatedWeb], object], Mapping[str, Any], dict[str, Any], type[Exception] | None, int | None]


def answering(status: int, **headers: str) -> Callable[[SimulatedWeb], object]:
    """A host that responds with this status, but serves its first page and others."""
    return failing(SimulatedResponse(status, headers={name.replace("_", "-"): text for name, text in headers.items()}))


def failing(answer: SimulatedResponse, **host: Any) -> Callable[[SimulatedWeb], object]:
    def handler(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse() if request.url.endswith("/first") or "/other/" in request.url else answer

    return lambda web: web.add_host(A, handler=handler, **host)


def down(answer: SimulatedResponse, robots: Any = "") -> Callable[[SimulatedWeb], object]:
    return lambda web: web.add_host(A, handler=lambda request: answer, robots=robots)


def case(
    web: Callable[[SimulatedWeb], object],
    error: type[Exception] | None = None,
    status: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Case:
    return web, settings or {}, attributes, error, status


def broken(error: type[Exception]) -> SimulatedResponse:
    return SimulatedResponse(error=error)  # type: ignore[arg-type]


ROBOTS_503 = SimulatedResponse(503, "no robots")
ROWS: dict[str, list[Case]] = {
    "a status of 2xx": [case(answering(200)), case(answering(204))],
    "another status": [
        *[case(answering(status), HttpError, status) for status in (404, 403, 500, 304)],
        *[case(answering(status), HttpError, status, others=30) for status in (503, 429)],
        case(answering(403, Retry_After="20"), HttpError, 403, others=30),
        case(answering(503), HttpError, 503, {"RETRY_TIMES": 0}),
    ],
    "another status that `handle_httpstatus_list` contains": [
        case(answering(status), meta={"handle_httpstatus_list": [status]}, others=30) for status in (404, 503)
    ],
    "no response: timeout, unknown host name, connection refused or broken": [
        *[
            case(failing(broken(error)), error, others=30)
            for error in (ConnectFailed, ConnectTimeout, ReadTimeout, DownloadTimeout, ResponseBroken, TLSFailed)
        ],
        # A host that never responded does not exist.
        case(down(broken(ConnectFailed)), ConnectFailed, None, {"ROBOTSTXT_OBEY": False, "BACKOFF_MAX_DELAY": 9.0}),
        case(lambda web: web.add_host(A, connect_error=ConnectFailed), ConnectFailed),
        case(lambda web: None, NameNotResolved),
        case(lambda web: web.add_host(A, connect_error=ConnectFailed), ConnectFailed, None, {"RETRY_TIMES": 0}),
    ],
    "its host was given up, because for 15 minutes there were only 429s, 503s or broken connections": [
        *[case(down(SimulatedResponse(status, "busy")), HostGivenUp, status) for status in (429, 503)],
        case(down(SimulatedResponse(403, headers={"Retry-After": "50"})), HostGivenUp, 403),
        *[case(failing(broken(error)), HostGivenUp) for error in (ConnectFailed, ConnectTimeout, ReadTimeout)],
    ],
    "the robots.txt of its host could not be read": [
        case(failing(SimulatedResponse(), robots=ROBOTS_503), HostGivenUp, 503),
        case(failing(SimulatedResponse(), robots=ROBOTS_503), HostGivenUp, 503, {"ROBOTSTXT_RETRY_TIMES": 0}),
        case(failing(SimulatedResponse(), robots=ROBOTS_503), HostGivenUp, 503, {"ROBOTSTXT_RETRY_TIMES": 1}),
        case(failing(SimulatedResponse(), robots=broken(ResponseBroken)), HostGivenUp),
        case(failing(SimulatedResponse(), robots=broken(ReadTimeout)), HostGivenUp),
        case(lambda web: web.add_host(A, connect_error=ConnectFailed), ConnectFailed),
    ],
    "disallowed by robots.txt, outside `allowed_domains`, or seen before": [
        case(failing(SimulatedResponse(), robots="User-agent: *\nDisallow: /")),
        case(answering(200), url="http://b.example/{}"),
        case(answering(200), url="http://a.example/first#{}"),
    ],
}
CASES = [
    pytest.param(row, *each, id=f"{row.split(':')[0][:30]}-{number}")
    for row, cases in ROWS.items()
    for number, each in enumerate(cases)
]
ENDS = {"callback": "callback", "the callback": "callback", "neither": "neither"}


def table() -> dict[str, str]:
    """The table of the guide: what happened, and where it goes."""
    text = GUIDE.read_text(encoding="utf-8").partition("## Callback or errback")[2].partition("\n\nBefore ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {what.strip(): where.strip() for what, where in lines[1:]}


def test_each_row_of_the_guide_is_tried() -> None:
    assert list(table()) == list(ROWS)


@pytest.mark.parametrize(("row", "add", "settings", "attributes", "error", "status"), CASES)
def test_each_request_has_exactly_the_end_that_the_guide_says(
    row: str,
    add: Callable[[SimulatedWeb], object],
    settings: Mapping[str, Any],
    attributes: dict[str, Any],
    error: type[Exception] | None,
    status: int | None,
) -> None:
    web = SimulatedWeb()
    add(web)
    spider: Any = type("Ends", (Ends,), attributes)
    sim = simulate(spider, web, settings, errors="collect")
    assert sim.reason == "finished"
    ends = Counter(end for (_, end), times in spider.ends.items() for _ in range(times))
    ends["neither"] = sum(sim.stats.get(name, 0) for name in STATISTICS)
    if error is HostGivenUp:
        ends["neither"] -= sim.stats.get("robots_forbidden", 0)  # counted so, too
    where = table()[row]
    expected = next(end for end in ("callback", "errback", "neither") if end in where)
    assert +ends == Counter({expected: COUNT})
    assert len(spider.ends) == (COUNT if expected != "neither" else 0)
    assert [type(each) for each in spider.errors] == [error] * len(spider.errors)
    for each in spider.errors:
        assert (each.response.status if each.response is not None else None) == status
    if error is HostGivenUp:
        assert COUNT <= sim.stats["given_up_count"] <= COUNT + 1  # the first page, too


def test_a_host_that_is_given_up_has_the_cause_and_the_last_response_in_the_error() -> None:
    web = SimulatedWeb()
    web.add_host(A, handler=lambda request: SimulatedResponse(503, "busy"))
    web.add_host("b.example", handler=lambda request: SimulatedResponse(error=ReadTimeout))
    heard: dict[str, Any] = {}

    class Both(trawl.Spider):
        name = "both"

        async def start(self) -> Any:
            for host in (A, "b.example"):
                yield trawl.Request(f"http://{host}/", errback=self.failed, cb_kwargs={"host": host})

        def failed(self, error: DownloadError) -> None:
            heard[error.request.cb_kwargs["host"]] = error

    simulate(Both, web, {"ROBOTSTXT_OBEY": False})
    busy, slow = heard[A], heard["b.example"]
    assert str(busy) == (
        "GET http://a.example/: its host was given up: no good response for 900 s; last attempt: answered 503"
    )
    assert (busy.response.status, busy.response.text) == (503, "busy")
    assert isinstance(busy.__cause__, HttpError)
    assert slow.response is None
    assert isinstance(slow.__cause__, ReadTimeout)


def test_a_direct_fetch_of_a_host_that_was_given_up_raises_the_same_error() -> None:
    web = SimulatedWeb()
    web.add_host(A)
    web.add_host("b.example", handler=lambda request: SimulatedResponse(503))

    class Fetches(trawl.Spider):
        name = "fetches"
        start_urls = [f"http://{A}/"]

        async def parse(self, response: trawl.Response) -> Any:
            try:
                await self.fetch(trawl.Request("http://b.example/"))
            except HostGivenUp as error:
                yield {"status": error.response.status}

    sim = simulate(Fetches, web, {"ROBOTSTXT_OBEY": False})
    assert sim.items == [{"status": 503}]
