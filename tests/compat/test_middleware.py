"""Downloader middleware written for Scrapy runs as it is."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.errors import ConnectFailed, IgnoreRequest, SettingsError
from trawl.http import Request, Response
from trawl.middleware.factory import make_instance
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


class Page(trawl.Spider):
    """One page, and whatever became of it."""

    name = "page"

    async def start(self) -> Any:
        yield Request(f"{HOST}/", errback=self.failed)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url, "body": response.text}

    def failed(self, error: Exception) -> Any:
        return {"error": type(error).__name__}


def crawled(middleware: object, spider: type[trawl.Spider] = Page, **settings: object) -> Any:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(body=request.headers.get("X-Token", "page")))
    return simulate(spider, web, {**FREE, "DOWNLOADER_MIDDLEWARES": {middleware: 543}, **settings}, errors="collect")


def test_a_request_is_changed_on_its_way_by_a_method_with_or_without_spider() -> None:
    class WithSpider:
        def process_request(self, request: Request, spider: trawl.Spider) -> None:
            request.headers["X-Token"] = spider.name

    class Without:
        async def process_request(self, request: Request) -> None:
            request.headers["X-Token"] = "async"

    assert crawled(WithSpider).items == [{"url": f"{HOST}/", "body": "page"}]  # the page says what it was sent
    assert crawled(Without).items == [{"url": f"{HOST}/", "body": "async"}]


def test_a_class_is_made_by_from_crawler_with_settings_stats_and_spider() -> None:
    class Made:
        def __init__(self, agent: str, stats: Any) -> None:
            self.agent, self.stats = agent, stats

        @classmethod
        def from_crawler(cls, crawler: Any) -> Any:
            assert crawler.spider.name == "page"
            return cls(crawler.settings.get("USER_AGENT"), crawler.stats)

        def process_response(self, request: Request, response: Response, spider: Any) -> Response:
            self.stats.inc_value("mine")
            assert request.headers["User-Agent"] == self.agent
            return response

    sim = crawled(Made, USER_AGENT="me")
    assert sim.stats["mine"] == 1


def test_a_response_from_process_request_takes_the_place_of_the_wire() -> None:
    class Answers:
        def process_request(self, request: Request, spider: Any) -> Response:
            return Response(request.url, body=b"mine")

    sim = crawled(Answers)
    assert sim.sends == ()
    assert sim.items == [{"url": f"{HOST}/", "body": "mine"}]


def test_a_request_that_is_returned_takes_the_place_of_the_other() -> None:
    class Moves:
        def process_request(self, request: Request, spider: Any) -> Request | None:
            return None if request.url.endswith("/moved") else request.replace(url=f"{HOST}/moved")

    class Again:
        def process_response(self, request: Request, response: Response, spider: Any) -> Response | Request:
            if request.meta.get("again"):
                return response
            return request.replace(meta={"again": True}, dont_filter=True)

    sim = crawled(Moves)
    assert [send.url for send in sim.sends] == [f"{HOST}/moved"]
    assert sim.stats["reschedule_count"] == 1
    assert len(crawled(Again).sends) == 2


@pytest.mark.parametrize("method", ["process_request", "process_response"])
def test_ignore_request_goes_to_the_errback(method: str) -> None:
    def refuse(self: object, *arguments: object) -> None:
        raise IgnoreRequest("no")

    sim = crawled(type("Refuses", (), {method: refuse}))
    assert sim.items == [{"error": "IgnoreRequest"}]
    assert len(sim.sends) == (method == "process_response")


def test_an_error_may_be_answered() -> None:
    class Mends:
        def process_exception(self, request: Request, exception: Exception, spider: Any) -> Response | None:
            return Response(request.url, body=b"mended") if isinstance(exception, ConnectFailed) else None

    class Elsewhere(Page):
        async def start(self) -> Any:
            yield Request("http://nowhere.example/", errback=self.failed)

    sim = crawled(Mends, Elsewhere, RETRY_ENABLED=False)
    assert sim.items == [{"url": "http://nowhere.example/", "body": "mended"}]
    assert crawled(type("Looks", (), {"process_exception": lambda *_: None}), Elsewhere, RETRY_TIMES=0).items == [
        {"error": "NameNotResolved"}
    ]


@pytest.mark.parametrize(
    ("method", "answer", "sentence"),
    [
        ("process_request", "text", "process_request returned str: it may return a Response, a Request or None"),
        ("process_response", None, "process_response returned None"),
        ("process_response", 5, "process_response returned int: it may return a Response or a Request"),
    ],
)
def test_an_answer_that_means_nothing_is_told(
    method: str, answer: object, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    sim = crawled(type("Odd", (), {method: lambda *_: answer}))
    assert sim.stats["middleware_exceptions"] == 1
    assert sentence in caplog.text


class Notes:
    """Further inside than any other: notes what it is shown, and answers nothing."""

    seen: list[str]

    def process_request(self, request: Request, spider: Any) -> None:
        self.seen.append("request")

    def process_response(self, request: Request, response: Response, spider: Any) -> Response:
        self.seen.append(f"response {response.text}")
        return response

    def process_exception(self, request: Request, exception: Exception, spider: Any) -> None:
        self.seen.append(type(exception).__name__)


def noted(outside: type) -> tuple[Any, list[str]]:
    inside = type("Inside", (Notes,), {"seen": []})
    sim = crawled(outside, DOWNLOADER_MIDDLEWARES={outside: 543, inside: 700})
    return sim, inside.seen  # type: ignore[attr-defined]


def test_what_process_request_answers_is_shown_to_those_further_inside() -> None:
    class Canned:
        def process_request(self, request: Request, spider: Any) -> Response:
            return Response(request.url, body=b"canned")

    sim, seen = noted(Canned)
    assert sim.items == [{"url": f"{HOST}/", "body": "canned"}]
    assert (seen, sim.sends) == (["response canned"], ())


def test_so_is_what_it_raises() -> None:
    class Refuses:
        def process_request(self, request: Request, spider: Any) -> None:
            raise IgnoreRequest("no")

    sim, seen = noted(Refuses)
    assert (sim.items, seen) == ([{"error": "IgnoreRequest"}], ["IgnoreRequest"])


def test_an_error_of_process_request_may_be_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    class Mends:
        def process_request(self, request: Request, spider: Any) -> None:
            raise ValueError("no token")

        def process_exception(self, request: Request, exception: Exception, spider: Any) -> Response | None:
            return Response(request.url, body=b"mended") if isinstance(exception, ValueError) else None

    sim, seen = noted(Mends)
    assert sim.items == [{"url": f"{HOST}/", "body": "mended"}]
    assert seen == ["ValueError", "response mended"]
    assert "Mends.process_request failed" in caplog.text


def test_unanswered_it_reaches_the_errback() -> None:
    class Fails:
        def process_request(self, request: Request, spider: Any) -> None:
            raise ValueError("no token")

    assert noted(Fails)[0].items == [{"error": "ValueError"}]


def test_what_is_further_inside_is_asked_first_and_its_replacement_ends_the_matter() -> None:
    seen: list[str] = []

    class Inside:
        def process_response(self, request: Request, response: Response, spider: Any) -> Response:
            seen.append(f"inside {response.status}")
            return response

    class Outside:
        def process_response(self, request: Request, response: Response, spider: Any) -> Response:
            seen.append(f"outside {response.status}")
            return response

    answers = iter([500, 200])
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(status=next(answers)))
    simulate(Page, web, {**FREE, "DOWNLOADER_MIDDLEWARES": {Outside: 100, Inside: 800}})
    assert seen == ["inside 500", "inside 200", "outside 200"]  # the retry, between them, took the first


@pytest.mark.parametrize("setting", ["DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "ITEM_PIPELINES", "EXTENSIONS"])
def test_a_part_of_a_package_that_extends_scrapy_is_refused_with_what_to_use_instead(setting: str) -> None:
    with pytest.raises(SettingsError, match=r"scrapy_deltafetch\.DeltaFetch does not run here: copy its middleware"):
        make_instance("scrapy_deltafetch.DeltaFetch", setting, None)


def test_a_class_without_methods_does_nothing_in_a_moved_crawl_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Misspelled:
        def process_requests(self, request: Request, spider: Any) -> None: ...

    assert crawled(Misspelled, SCRAPY_COMPAT=True, SPIDER_MIDDLEWARES={Misspelled: 500}).items
    told = [record.getMessage() for record in caplog.records if "does nothing, as in Scrapy" in record.getMessage()]
    assert [line.partition(":")[0] for line in told] == ["SPIDER_MIDDLEWARES", "DOWNLOADER_MIDDLEWARES"]
    with pytest.raises(SettingsError, match="is not middleware"):
        crawled(Misspelled)
