"""Headers of moved crawls: values that are equal to their bytes, and Scrapy's reading of fields that came twice."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.cli.load import load_spider
from trawl.compat.messages import HeaderText, ScrapyHeaders, show_headers
from trawl.feeds.to_json import to_json
from trawl.frontier.record_format import portable
from trawl.http import Headers, HtmlResponse, Request, Response
from trawl.testing import SimulatedWeb, simulate

HTML: Any = HeaderText("text/html; charset=utf-8")


def test_a_value_is_equal_to_its_text_and_to_its_bytes() -> None:
    assert HTML == b"text/html; charset=utf-8" == HTML
    assert HTML == "text/html; charset=utf-8"
    assert (HTML != b"text/html; charset=utf-8") is False
    assert HTML != b"text/html"
    assert HTML in [b"text/html; charset=utf-8"]
    assert {"text/html; charset=utf-8": 1}[HTML] == 1
    assert b"html" in HTML
    assert "html" in HTML
    assert b"json" not in HTML


@pytest.mark.parametrize(
    ("of_bytes", "expected"),
    [
        (lambda value: value.split(b";")[0].strip(), b"text/html"),
        (lambda value: value.partition(b";")[2], b" charset=utf-8"),
        (lambda value: value.replace(b"html", b"x").upper(), b"TEXT/X; CHARSET=UTF-8"),
        (lambda value: value.startswith((b"text/", b"image/")), True),
        (lambda value: value.find(b"html"), 5),
        (lambda value: value[:9], b"text/html"),
        (lambda value: value + b"!", b"text/html; charset=utf-8!"),
        (lambda value: b"Type: " in ("Type: " + value), True),
        (lambda value: value.decode(), "text/html; charset=utf-8"),
        (lambda value: value.decode("ascii").split(";")[0], "text/html"),
        (bytes, b"text/html; charset=utf-8"),
    ],
)
def test_what_is_done_to_bytes_can_be_done_to_it(of_bytes: Callable[[Any], object], expected: object) -> None:
    assert of_bytes(HTML) == expected


def test_other_letters_are_those_of_the_wire() -> None:
    sent = Headers.from_wire([(b"X-Name", "Käse".encode())])
    value: Any = ScrapyHeaders(sent)["X-Name"]
    assert value == "Käse".encode()
    assert value.decode() == "Käse"
    assert HeaderText("日本").decode() == "日本"


def test_it_is_written_and_stored_as_plain_text() -> None:
    assert json.loads(to_json({"type": HTML})) == {"type": HTML}
    assert type(portable(HTML, "meta['type']")) is str
    assert type(pickle.loads(pickle.dumps(HTML))) is str
    assert copy.deepcopy({"type": HTML}) == {"type": HTML}
    assert type(Headers({"Accept": HTML}).getlist("accept")[0]) is str


CAME = [(b"set-cookie", b"a=1"), (b"ETag", b'"x"'), (b"Set-Cookie", b"b=2"), (b"content-type", b"text/html")]


def test_a_field_that_came_twice_gives_its_last_value_and_getlist_all() -> None:
    headers: Any = ScrapyHeaders(Headers.from_wire(CAME))
    assert headers.get("Set-Cookie") == headers[b"set-cookie"] == b"b=2"
    assert headers.getlist("Set-Cookie") == [b"a=1", b"b=2"]
    assert headers.get("Age") is None
    assert headers.get("Age", b"0").decode() == "0"
    assert headers.get("Age", ["1", "2"]) == b"2"
    assert headers.getlist("Age") == []
    assert headers.getlist("Age", "0") == [b"0"]
    assert list(headers) == [b"Set-Cookie", b"Etag", b"Content-Type"]
    assert {name.decode(): values[0].decode() for name, values in headers.items()} == {
        "Set-Cookie": "a=1",
        "Etag": '"x"',
        "Content-Type": "text/html",
    }
    assert headers.values() == [b"b=2", b'"x"', b"text/html"]
    assert headers.copy().pop("Set-Cookie") == [b"a=1", b"b=2"]
    assert headers.pop("Age", None) is None
    assert ScrapyHeaders({"Accept": None}).get("Accept", b"x") is None
    with pytest.raises(KeyError):
        headers["Age"]


def test_scrapys_methods_are_there_for_all_headers() -> None:
    headers = Headers.fromkeys(["A", b"b"], "1")
    headers.appendlist("a", "2")
    headers.setlist("C", (3, b"4"))
    headers.setlistdefault("C", ["5"])
    headers.setlistdefault("D", ["6"])
    assert headers.items_list() == [("A", "1"), ("A", "2"), ("b", "1"), ("C", "3"), ("C", "4"), ("D", "6")]
    assert dict(headers.to_unicode_dict()) == {"A": "1,2", "B": "1", "C": "3,4", "D": "6"}
    assert headers.to_unicode_dict()["c"] == "3,4"
    assert headers.to_string() == b"A: 1\r\nA: 2\r\nB: 1\r\nC: 3\r\nC: 4\r\nD: 6"


SPIDER = """
import trawl{alias}

class Stamp:
    def process_request(self, request, spider):
        assert request.headers["X-Own"] == {own!r}

    def process_response(self, request, response, spider):
        response.flags.append(repr(response.headers.get("Set-Cookie") == b"b=2"))
        return response

class Shop(trawl.Spider):
    name = "shop"
    custom_settings = {{"DOWNLOADER_MIDDLEWARES": {{Stamp: 950}}, "ROBOTSTXT_OBEY": False}}

    def start_requests(self):
        yield trawl.Request("http://a.example/", headers={{"X-Own": "1"}})
        yield trawl.Request("http://a.example/404", headers={{"X-Own": "1"}}, errback=self.failed)

    async def parse(self, response):
        direct = await self.fetch(trawl.Request("http://a.example/2", headers={{"X-Own": "1"}}))
        yield {{
            "flags": response.flags,
            "type": b"html" in response.headers.get("Content-Type"),
            "agent": response.request.headers["User-Agent"].decode(),
            "direct": direct.headers["Set-Cookie"],
        }}

    def failed(self, failure):
        yield {{"failed": failure.value.response.headers["Set-Cookie"] == b"b=2"}}
"""


def site() -> SimulatedWeb:
    web = SimulatedWeb()
    fields: Any = {"Set-Cookie": ["a=1", "b=2"], "Content-Type": "text/html"}
    web.add_host("a.example", headers=fields)
    web.add_page("http://a.example/404", status=404, headers=fields)
    return web


def test_a_moved_crawl_shows_them_to_callbacks_errbacks_middleware_and_fetches(tmp_path: Path) -> None:
    text = SPIDER.format(alias="\nimport trawl as scrapy", own=b"1")
    (tmp_path / "shop.py").write_text(text)
    sim = simulate(load_spider(str(tmp_path / "shop.py")), site(), {"USER_AGENT": "me"})
    page = {"flags": ["True"], "type": True, "agent": "me", "direct": "b=2"}
    assert sorted(map(repr, sim.items)) == sorted(map(repr, [page, {"failed": True}]))


def test_a_native_crawl_has_text(tmp_path: Path) -> None:
    (tmp_path / "native.py").write_text(SPIDER.format(alias="", own="1"))
    sim = simulate(load_spider(str(tmp_path / "native.py")), site(), errors="collect")
    assert sim.items == [{"failed": False}]  # "in" of bytes raises


def test_a_request_made_of_another_keeps_its_fields() -> None:
    request = Request("http://a.example/", headers=ScrapyHeaders({"A": ["1", "2"]}))
    assert type(request.replace().headers) is Headers
    assert request.replace().headers.getlist("a") == ["1", "2"]


@pytest.mark.parametrize(
    ("href", "plain", "moved"),
    [
        ("a b.png", "http://a.example/x/a%20b.png", "http://a.example/x/a b.png"),
        ("/ü?q=ä", "http://a.example/%C3%BC?q=%C3%A4", "http://a.example/ü?q=ä"),
        ("../c", "http://a.example/c", "http://a.example/c"),
        ("//b.example/d", "http://b.example/d", "http://b.example/d"),
        ("", "http://a.example/x/y", "http://a.example/x/y"),
    ],
)
def test_a_moved_response_joins_urls_as_they_are_written(href: str, plain: str, moved: str) -> None:
    response = Response("http://a.example/x/y", headers={"Content-Type": "text/html"}, body=b"<p>")
    assert response.urljoin(href) == plain
    show_headers(response)
    assert response.urljoin(href) == moved
    assert response.follow(href).url == plain  # what is sent stays the same
    assert isinstance(response, HtmlResponse)
    assert response.replace(body=b"<p>2").urljoin(href) == moved


@pytest.mark.parametrize("href", ["mailto:a@b.example", "javascript:void(0)", "tel:1"])
def test_a_moved_response_refuses_to_follow_what_scrapy_takes_for_no_url(href: str) -> None:
    response = Response("http://a.example/x/y", headers={"Content-Type": "text/html"}, body=b"<a href='/z'>z</a>")
    assert response.follow(href).url == href
    show_headers(response)
    with pytest.raises(ValueError, match=f"Missing scheme in request url: {href[:4]}"):
        response.follow(href)
    requests = response.follow_all(["/1", href, "/2"], priority=1)
    assert next(requests).url == "http://a.example/1"
    with pytest.raises(ValueError, match="Missing scheme"):
        next(requests)
    assert [request.url for request in response.follow_all(css="a")] == ["http://a.example/z"]
    assert response.follow("data:,x").url == "data:,x"


WITHOUT_PATHS = """
import trawl{alias}

class Shop(trawl.Spider):
    name = "shop"
    custom_settings = {{"ROBOTSTXT_OBEY": False, "JOB_DIR": {job!r}}}

    def start_requests(self):
        yield trawl.Request("http://a.example")
        yield trawl.Request("http://moved.example")
        yield trawl.Request("http://a.example/missing", errback=self.failed)
        yield trawl.Request("http://none.example", errback=self.failed)

    def parse(self, response):
        yield {{"url": response.url, "asked": response.request.url}}
        if response.request.depth < 2:
            yield response.follow("//b.example", cookies={{"a": "1"}})
            yield response.request.replace(dont_filter=True)

    def failed(self, failure):
        yield {{"failed": failure.request.url}}
"""


@pytest.mark.parametrize("has_job", [False, True])
def test_a_moved_crawl_shows_urls_without_a_path_as_they_were_written(tmp_path: Path, has_job: bool) -> None:
    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_page(f"http://{host}/", body="<p>")
    web.add_page("http://moved.example/", status=301, headers={"Location": "http://b.example"})
    web.add_page("http://a.example/missing", status=404)
    job = str(tmp_path / "job") if has_job else ""
    seen = {}
    for alias in ("\nimport trawl as scrapy", ""):
        file = tmp_path / f"shop{len(alias)}.py"
        file.write_text(WITHOUT_PATHS.format(alias=alias, job=job and f"{job}{len(alias)}"))
        sim = simulate(load_spider(str(file)), web, errors="collect")
        seen[alias] = {value for item in sim.items for value in item.values()}
    plain = {"http://a.example/", "http://b.example/", "http://none.example/", "http://a.example/missing"}
    assert seen[""] == plain
    moved, alias = {url.removesuffix("/") for url in plain}, "\nimport trawl as scrapy"
    assert seen[alias] == moved


RUSSIAN = (
    "<h1>\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440: "
    "\u0446\u0435\u043d\u044b \u0440\u0430\u0441\u0442\u0443\u0442</h1>"
)


def test_a_moved_response_that_is_no_text_has_none() -> None:
    body, image = b"\x89PNG\r\n\x1a\n\0\0", {"Content-Type": "image/png"}
    assert Response("http://a.example/x/y.png", body=body, headers=image).css("title::text").get() is None
    response = Response("http://a.example/x/y.png", body=body, headers=image)
    show_headers(response)
    for name in ("text", "encoding", "selector"):
        assert not hasattr(response, name)
    for select in (response.css, response.xpath, response.jmespath):
        with pytest.raises(AttributeError, match="Response content isn't text"):
            select("a")
    assert response.urljoin("z") == "http://a.example/x/z"
    assert response.follow("z?q=\u00fc").url == "http://a.example/x/z?q=%C3%BC"
    assert [request.url for request in response.follow_all(["z"])] == ["http://a.example/x/z"]
    assert response.body == body
    plain = Response("http://a.example/y.pdf", body=b"plain", headers={"Content-Type": "application/pdf"})
    show_headers(plain)
    assert plain.text == "plain"


@pytest.mark.parametrize(
    ("kind", "body", "codec"),
    [
        ("text/html", b"<p>x", "cp1252"),
        ("application/json", b"{}", "cp1252"),
        ("text/html", "<p>\u00fc".encode(), "utf-8"),
        ("text/html; charset=utf-8", b"<p>x", "utf-8"),
        ("text/html", b"<meta charset=utf-8><p>x", "utf-8"),
        ("text/xml", b"<?xml version='1.0' encoding='utf-8'?><a/>", "utf-8"),
    ],
)
def test_plain_ascii_that_names_no_charset_has_the_encoding_that_scrapy_tells(
    kind: str, body: bytes, codec: str
) -> None:
    response = Response("http://a.example/", body=body, headers={"Content-Type": kind})
    assert response.encoding == "utf-8"
    show_headers(response)
    assert response.replace().encoding == codec


def test_a_charset_that_nothing_names_is_guessed() -> None:
    response = Response("http://a.example/", body=RUSSIAN.encode("cp1251"), headers={"Content-Type": "text/html"})
    show_headers(response)
    assert (response.encoding, response.text) == ("cp1251", RUSSIAN)


def test_other_spiders_read_it_as_browsers_do() -> None:
    response = Response("http://a.example/", body=RUSSIAN.encode("cp1251"), headers={"Content-Type": "text/html"})
    assert response.encoding == "cp1252"


@pytest.mark.parametrize(
    ("codec", "kind"),
    [("utf-8", "text/html"), ("cp1251", "text/html; charset=windows-1251"), ("koi8-r", "text/html; charset=koi8-r")],
)
def test_a_charset_that_is_named_is_not(codec: str, kind: str) -> None:
    response = Response("http://a.example/", body=RUSSIAN.encode(codec), headers={"Content-Type": kind})
    show_headers(response)
    assert response.text == RUSSIAN


def test_the_headers_of_new_requests_and_responses_are_scrapys_in_a_moved_crawl() -> None:
    class Own(trawl.Spider):
        name = "own"
        start_urls = ("http://one.example/",)

        def parse(self, response: Any, **kwargs: Any) -> Any:
            request: Any = Request("http://one.example/a", headers={"X": ["a", "b"]})
            request.headers["Y"] = "c"
            page: Any = HtmlResponse("http://one.example/", headers={"Z": "d"})
            yield {"moved": [request.headers["X"] == b"b", request.headers.get("Y") == b"c", page.headers["Z"] == b"d"]}

    web = SimulatedWeb()
    web.add_page("http://one.example/", body="x")
    for is_moved in (True, False):
        sim = simulate(Own, web, {"SCRAPY_COMPAT": is_moved})
        assert sim.items == [{"moved": [is_moved] * 3}]
    assert type(Request("http://one.example/", headers={"X": "1"}).headers) is Headers
