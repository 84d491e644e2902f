"""Scrapy's middleware classes as bases of a project's own, and None for the built-in ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.cli.load import load_spider
from trawl.compat import HttpProxyMiddleware, RedirectMiddleware, RetryMiddleware, UserAgentMiddleware
from trawl.errors import ConnectFailed, IgnoreRequest, SettingsError
from trawl.http import Request, Response
from trawl.settings import load, of_spider
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.utils import get_crawler

URL = "http://a.example/"
USER_AGENT = "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware"
RETRY = "scrapy.downloadermiddlewares.retry.RetryMiddleware"


class Echo(trawl.Spider[Any]):
    """Gives what its request had in its fields."""

    name = "echo"
    start_urls: tuple[str, ...] = (URL,)

    def parse(self, response: Response) -> Any:
        yield {"url": response.url, "said": response.text, "status": response.status}


def crawled(
    middleware: dict[Any, float | None], web: SimulatedWeb | None = None, spider: Any = Echo, **settings: Any
) -> Simulation:
    if web is None:
        web = SimulatedWeb()
        web.add_host("a.example", handler=lambda request: SimulatedResponse(body=request.headers.get("User-Agent", "")))
    values = {"DOWNLOADER_MIDDLEWARES": middleware, "ROBOTSTXT_OBEY": False, "USER_AGENT": "built in", **settings}
    return simulate(spider, web, values)


class RandomUserAgent:
    def process_request(self, request: Request, spider: object) -> None:
        request.headers.setdefault("User-Agent", "random")


class SetUserAgent:
    def process_request(self, request: Request, spider: object) -> None:
        request.headers["User-Agent"] = "random"


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [
        ({USER_AGENT: None, RandomUserAgent: 543}, "random"),
        ({USER_AGENT: None, RandomUserAgent: 400}, "random"),
        ({RandomUserAgent: 450}, "random"),
        ({RandomUserAgent: 499}, "random"),
        ({RandomUserAgent: 543}, "built in"),
        ({SetUserAgent: 543}, "random"),
        ({USER_AGENT: None}, ""),
        ({"trawl.downloadermiddlewares.useragent.UserAgentMiddleware": None, RandomUserAgent: 543}, "random"),
        ({UserAgentMiddleware: None, RandomUserAgent: 543}, "random"),
        ({UserAgentMiddleware: 600, RandomUserAgent: 543}, "random"),
    ],
)
def test_a_user_agent_of_a_middleware_wins_as_in_scrapy(middleware: dict[Any, float | None], expected: str) -> None:
    assert crawled(middleware).items[0]["said"] == expected


def test_a_user_agent_among_the_default_headers_is_set_at_their_number() -> None:
    fields = {"User-Agent": "default"}
    assert crawled({RandomUserAgent: 450}, DEFAULT_REQUEST_HEADERS=fields).items[0]["said"] == "default"
    assert crawled({RandomUserAgent: 399}, DEFAULT_REQUEST_HEADERS=fields).items[0]["said"] == "random"


class Rotating(UserAgentMiddleware):
    def __init__(self, user_agent: str = "") -> None:
        super().__init__(user_agent)
        self.given = user_agent

    def process_request(self, request: Request, spider: Any = None) -> None:
        self.user_agent = f"{self.given}, rotated for {spider.name}"
        super().process_request(request, spider)


def test_a_subclass_of_the_user_agents_middleware_is_made_with_the_setting() -> None:
    assert crawled({USER_AGENT: None, Rotating: 543}).items[0]["said"] == "built in, rotated for echo"

    class Own(Echo):
        user_agent = "own"

    class Plain(UserAgentMiddleware):
        pass

    assert crawled({USER_AGENT: None, Plain: 500}, spider=Own).items[0]["said"] == "own"


class Retrying(RetryMiddleware):
    """As projects write it: with the spider, an attribute changed, and a status of its own."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler.settings)
        self.crawler = crawler
        self.max_retry_times = 3

    @classmethod
    def from_crawler(cls, crawler: Any) -> Retrying:
        return cls(crawler)

    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        if response.status == 418:
            return self._retry(request, "teapot", spider) or response
        return super().process_response(request, response, spider)


def failing(status: int) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", status=status)
    return web


@pytest.mark.parametrize("status", [418, 500, 503, 429])
def test_a_subclass_of_the_retries_middleware_decides_what_is_sent_again(status: int) -> None:
    class Handles(Echo):
        handle_httpstatus_all = True

    sim = crawled({RETRY: None, Retrying: 550}, failing(status), Handles)
    assert len(sim.times("a.example")) == 4
    assert [item["status"] for item in sim.items] == [status]
    assert (sim.stats["retry_count"], sim.stats["retry_given_up_count"]) == (3, 1)


def test_it_retries_errors_that_may_pass() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect_error=ConnectFailed)
    sim = crawled({RETRY: None, Retrying: 550}, web)
    assert sim.stats["retry_count"] == 3
    crawled({RETRY: None, Retrying: 550}, failing(200))
    assert crawled({RETRY: None, Retrying: 550}, web, RETRY_ENABLED=False).stats.get("retry_count", 0) == 0


class Watching(RedirectMiddleware):
    def process_response(self, request: Request, response: Response, spider: Any = None) -> Any:
        answer = super().process_response(request, response, spider)
        if isinstance(answer, Request):
            answer.meta["seen"] = response.status
        return answer


def test_a_subclass_of_the_redirects_middleware_sees_the_targets_request() -> None:
    class Seen(Echo):
        def parse(self, response: Response) -> Any:
            yield {"url": response.url, "seen": response.meta["seen"], "from": response.meta["redirect_urls"]}

    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_page(URL, status=302, headers={"Location": "/there"})
    built_in = "scrapy.downloadermiddlewares.redirect.RedirectMiddleware"
    sim = crawled({built_in: None, Watching: 600}, web, Seen)
    assert sim.items == [{"url": f"{URL}there", "seen": 302, "from": [URL]}]
    web.add_page(f"{URL}there", status=302, headers={"Location": "/round"})
    assert not crawled({built_in: None, Watching: 600}, web, Seen, REDIRECT_MAX_TIMES=1).items


def test_a_subclass_of_the_proxies_middleware_sets_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxied(HttpProxyMiddleware):
        def process_request(self, request: Request, spider: Any = None) -> Any:
            if request.url.endswith("/own"):
                request.meta["proxy"] = "http://own.example:1"
            return super().process_request(request, spider)

    class Through(Echo):
        start_urls = (URL, f"{URL}own")

        def parse(self, response: Response) -> Any:
            yield {"proxy": response.meta["proxy"]}

    monkeypatch.setenv("http_proxy", "http://env.example:2")
    built_in = "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware"
    sim = crawled({built_in: None, Proxied: 750}, failing(200), Through)
    assert sorted(item["proxy"] for item in sim.items) == ["http://env.example:2", "http://own.example:1"]


@pytest.mark.parametrize(
    ("setting", "path", "name", "value"),
    [
        ("DOWNLOADER_MIDDLEWARES", "downloadermiddlewares.robotstxt.RobotsTxtMiddleware", "ROBOTSTXT_OBEY", False),
        (
            "DOWNLOADER_MIDDLEWARES",
            "downloadermiddlewares.httpcompression.HttpCompressionMiddleware",
            "COMPRESSION_ENABLED",
            False,
        ),
        ("SPIDER_MIDDLEWARES", "spidermiddlewares.httperror.HttpErrorMiddleware", "HTTPERROR_ALLOW_ALL", True),
        ("SPIDER_MIDDLEWARES", "spidermiddlewares.referer.RefererMiddleware", "REFERER_ENABLED", False),
        ("SPIDER_MIDDLEWARES", "spidermiddlewares.urllength.UrlLengthMiddleware", "URLLENGTH_LIMIT", 0),
        ("SPIDER_MIDDLEWARES", "spidermiddlewares.depth.DepthMiddleware", "DEPTH_LIMIT", 0),
    ],
)
def test_none_for_a_middleware_of_scrapys_sets_what_it_did(
    caplog: pytest.LogCaptureFixture, setting: str, path: str, name: str, value: object
) -> None:
    for root in ("scrapy", "trawl"):
        spider = type("Off", (Echo,), {"custom_settings": {setting: {f"{root}.{path}": None}, "USER_AGENT": "x"}})
        assert load(of_spider(spider))[name] == value
        assert len(simulate(spider, failing(200)).items) == 1
    chosen = not value if isinstance(value, bool) else 7
    both = type("Both", (Echo,), {"custom_settings": {setting: {f"scrapy.{path}": None}, name: chosen}})
    assert load(of_spider(both))[name] == value
    assert "no effect" not in caplog.text


def test_the_offsite_middleware_is_not_taken_out_while_a_spider_has_domains(caplog: pytest.LogCaptureFixture) -> None:
    offsite: dict[Any, float | None] = {"scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None}

    class Bound(Echo):
        allowed_domains = ("a.example",)

    with pytest.raises(SettingsError, match="remove allowed_domains from the spider, or set meta allow_offsite"):
        crawled(offsite, spider=Bound)
    assert crawled(offsite).items


def test_a_project_imports_them_from_compat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\n"
        "from trawl.compat import RetryMiddleware\n"
        "class Mine(RetryMiddleware):\n"
        "    max_retries = 1\n"
        "class Shop(scrapy.Spider):\n"
        "    name = 'shop'\n"
        f"    start_urls = ['{URL}']\n"
        f"    custom_settings = {{'DOWNLOADER_MIDDLEWARES': {{RetryMiddleware: None, Mine: 550}}}}\n"
        "    def parse(self, response):\n"
        "        yield {'url': response.url}\n"
    )
    with caplog.at_level(logging.DEBUG, "trawl.middleware"):
        sim = simulate(load_spider(str(tmp_path / "shop.py")), failing(200))
    assert sim.items == [{"url": URL}]
    (line,) = (line for line in caplog.messages if line.startswith("middleware, outermost first"))
    assert "retry 550" not in line
    assert "Mine 550" in line


def test_what_is_advised_instead_of_a_subclass_acts() -> None:
    class Instead:
        def process_request(self, request: Request, spider: Any) -> None:
            if request.url.endswith("/not"):
                raise IgnoreRequest
            request.cookies = {"sid": "1"}
            request.headers["Authorization"] = "Token x"
            request.headers.setdefault("X-Api", "2")
            request.meta["download_timeout"] = 7

    class Beside:
        def process_spider_output(self, response: Response, result: Any, spider: Any) -> Any:
            for each in result:
                if isinstance(each, Request):
                    if len(each.url) > 30:
                        continue
                    each.headers["Referer"] = f"http://b.example/{response.meta['depth']}"
                yield each

    class Asking(trawl.Spider):
        name = "asking"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response) -> Any:
            for path in ("/yes", "/not", f"/{'x' * 40}"):
                yield response.follow(path, self.parse_page)

        def parse_page(self, response: Response) -> Any:
            sent = response.sent_headers
            assert sent is not None
            yield {
                "path": response.url[16:],
                "sent": [sent[name] for name in ("Cookie", "Authorization", "X-Api", "Referer")],
                "timeout": response.meta["download_timeout"],
            }

    web = SimulatedWeb()
    web.add_host("a.example")
    settings = {"DOWNLOADER_MIDDLEWARES": {Instead: 543}, "SPIDER_MIDDLEWARES": {Beside: 543}}
    sim = simulate(Asking, web, settings)
    assert sim.items == [
        {"path": "/yes", "sent": ["sid=1", "Token x", "2", "http://b.example/0"], "timeout": 7},
    ]


def test_one_is_tried_with_a_tests_crawler() -> None:
    crawler = get_crawler(Echo, {"RETRY_TIMES": 1, "REDIRECT_MAX_TIMES": 1})
    request = Request("http://a.example/old")
    moved = Response("http://a.example/old", status=302, headers={"Location": "/new"})
    middleware = RedirectMiddleware.from_crawler(crawler)
    target = middleware.process_response(request, moved)
    assert (target.url, target.meta["redirect_times"]) == ("http://a.example/new", 1)
    with pytest.raises(IgnoreRequest, match="redirected more than 1 times"):
        middleware.process_response(target, moved)
    spider = Echo.from_crawler(crawler)
    assert crawler.spider is spider
    retry = RetryMiddleware.from_crawler(crawler)
    busy = Response("http://a.example/old", status=503)
    again = retry.process_response(request, busy, spider)
    assert again.meta["retry_times"] == 1
    assert retry.process_response(again, busy) is busy
    assert retry.process_exception(request, ConnectFailed("no", url=request.url, method="GET")).meta["retry_times"] == 1
    assert crawler.stats.get_value("retry/count") == 2
    crawler.spider.handle_httpstatus_list = [302]
    assert middleware.process_response(request, moved) is moved
