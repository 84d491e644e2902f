"""The site of ``trawl demo``, as a host of a simulated web."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import trio
from PIL import Image

import trawl
from trawl.http import Request
from trawl.settings import SECTIONS, load
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.testing.demo import DEMO_HOST, ROBOTS, DemoSite, all_authors, all_quotes
from trawl.throttling import ThrottlingSettings

SITE = f"http://{DEMO_HOST}"


def demo_web(**options: Any) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host(DEMO_HOST, handler=DemoSite(trio.current_time), robots=ROBOTS, **options)
    return web


class Everything(trawl.Spider[Any]):
    """Every quote, every author, every tag's quotes."""

    name = "everything"
    start_urls = [f"{SITE}/", f"{SITE}/private/"]
    custom_settings = {"DOWNLOAD_DELAY": 0.01, "DOWNLOAD_DELAY_PER_SLOT": 0.01}

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        for quote in response.css("div.quote"):
            text, author = quote.css("span.text::text").get(""), quote.css("small.author::text").get("")
            yield {"text": text.strip("“”"), "author": author, "tags": tuple(quote.css("a.tag::text").getall())}
        yield from response.follow_all(css="li.next a, a.tag")
        yield from response.follow_all(css="small.author + a", callback=self.author)

    def author(self, response: trawl.Response) -> Iterator[Any]:
        yield {"name": response.css("h3.author-title::text").get(), "born": response.css("span::text").get()}


def asked(site: DemoSite, path: str, **options: Any) -> SimulatedResponse:
    return site(Request(f"{SITE}{path}", **options))


def test_there_are_a_hundred_quotes_by_fifty_authors() -> None:
    assert len(all_quotes()) == len({quote.text for quote in all_quotes()}) == 100
    assert len(all_authors()) == 50
    assert {quote.author for quote in all_quotes()} == {author.name for author in all_authors().values()}
    assert all(author.born and author.place for author in all_authors().values())
    assert all(quote.tags and quote.source for quote in all_quotes())


class Shop(trawl.Spider[Any]):
    """Every book, from its page; where it is in the lists; and its cover."""

    name = "shop"
    start_urls = [f"{SITE}/books/", f"{SITE}/books/shelf/poetry/"]
    custom_settings = {"DOWNLOAD_DELAY": 0.01, "DOWNLOAD_DELAY_PER_SLOT": 0.01}

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        yield from response.follow_all(css="article.product_pod h3 a", callback=self.book)
        yield from response.follow_all(css="li.next a")

    def book(self, response: trawl.Response) -> Iterator[Any]:
        where = "ul.breadcrumb li:nth-child(3) a::text, h1::text, p.author::text, table td::text"
        facts = response.css(where).getall()
        yield {"facts": facts}
        yield response.follow(response.css("article img::attr(src)").get(""), self.cover, cb_kwargs={"facts": facts})

    def cover(self, response: trawl.Response, facts: list[str]) -> Iterator[Any]:
        with Image.open(io.BytesIO(response.body)) as picture:
            yield {"title": facts[1], "size": picture.size}


def test_the_shop_has_a_page_and_a_cover_for_the_book_of_each_quote() -> None:
    sim = simulate(Shop, demo_web())
    assert {send.status for send in sim.sends} == {200}
    books = {item["facts"][1]: item["facts"] for item in sim.items if "facts" in item}
    assert {*books} == {quote.source for quote in all_quotes()}
    assert {item["title"]: item["size"] for item in sim.items if "size" in item} == dict.fromkeys(books, (120, 180))
    shelf, _, author, upc, price, stock = books["Emma"]
    assert (shelf, author, stock[:10]) == ("novels", "Jane Austen", "In stock (")
    assert len({facts[3] for facts in books.values()}) == len(books) == 86
    assert (len(upc), price[0], 5 <= float(price[1:]) < 60) == (16, "£", True)


def test_what_the_shop_has_not_is_missing() -> None:
    site = DemoSite(lambda: 0.0)
    paths = ("no-such-book/", "page/99/", "page/0/", "shelf/no-such/", "shelf/poetry/page/9/", "covers/no.png")
    assert {asked(site, f"/books/{path}").status for path in paths} == {404}
    assert asked(site, "/books").status == 200


def test_a_crawl_finds_all_of_it_and_not_what_robots_txt_refuses() -> None:
    sim = simulate(Everything, demo_web())
    assert not [send for send in sim.sends if "/private/" in send.url]
    assert {send.status for send in sim.sends} == {200}
    quotes = {(item["text"], item["author"], item["tags"]) for item in sim.items if "text" in item}
    assert quotes == {(quote.text, quote.author, quote.tags) for quote in all_quotes()}
    assert len([item for item in sim.items if "name" in item]) == 50


def test_the_same_request_gets_the_same_answer_in_each_run() -> None:
    for path in ("/", "/page/2/", "/tag/love/", "/author/Jane-Austen", "/login", "/api/authors", "/sitemap.xml"):
        assert asked(DemoSite(lambda: 0.0), path) == asked(DemoSite(lambda: 0.0), path)


def test_what_is_not_there_is_404() -> None:
    site = DemoSite(lambda: 0.0)
    absent = [
        "/page/11/",
        "/page/0/",
        "/page/x/",
        "/page/1/2",
        "/tag/",
        "/tag/nothing/",
        "/author/Nobody",
        "/no",
        "/api",
    ]
    assert {path: asked(site, path).status for path in absent} == dict.fromkeys(absent, 404)


def test_the_login_wants_the_hidden_field_of_its_own_form() -> None:
    site = DemoSite(lambda: 0.0)
    form = asked(site, "/login")
    cookie = form.headers["Set-Cookie"].partition(";")[0]
    token = trawl.Selector(text=form.body.decode()).css("[name=csrf_token]::attr(value)").get()
    fields = f"csrf_token={token}&username=anna&password=x"

    def posted(body: str, cookie: str) -> SimulatedResponse:
        return asked(site, "/login", method="POST", body=body, headers={"Cookie": cookie})

    assert posted(fields, "").status == 403
    assert posted(fields.replace("csrf_token", "token"), cookie).status == 403
    assert posted(fields.replace("anna", ""), cookie).status == 200
    let_in = posted(fields, cookie)
    assert (let_in.status, let_in.headers["Location"]) == (302, "/")
    session = let_in.headers["Set-Cookie"].partition(";")[0]
    seen = asked(site, "/", headers={"Cookie": session}).body.decode()
    assert "/logout" in seen
    assert "Pride and Prejudice" in seen
    assert "Pride and Prejudice" not in asked(site, "/").body.decode()


def test_the_api_refuses_what_is_past_its_limit_and_says_when_to_come_back() -> None:
    now = 100.0
    site = DemoSite(lambda: now)
    answers = [asked(site, "/api/authors") for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 5 + [429]
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["4", "3", "2", "1", "0", "0"]
    assert answers[-1].headers["Retry-After"] == "1"
    now += 0.5
    assert [asked(site, "/api/authors").status for _ in range(2)] == [200, 429]


def test_a_crawl_of_the_api_keeps_to_what_it_tells_and_is_let_through() -> None:
    class Authors(trawl.Spider[Any]):
        name = "authors"
        start_urls = [f"{SITE}/api/authors?page=1"]
        custom_settings = {"THROTTLING_SCOPES": {DEMO_HOST: {"rampup": True}}}

        def parse(self, response: trawl.Response) -> Iterator[Any]:
            found = response.json()
            yield from found["authors"]
            if found["has_next"]:
                yield trawl.Request(f"{SITE}/api/authors?page={found['page'] + 1}")

    assert {item["slug"] for item in simulate(Authors, demo_web()).items} == {*all_authors()}


def test_the_scrolled_page_has_its_quotes_from_the_api() -> None:
    site = DemoSite(lambda: 0.0)
    assert "/api/quotes?page=" in asked(site, "/scroll").body.decode()
    pages = [json.loads(asked(site, f"/api/quotes?page={number}").body) for number in range(1, 12)]
    assert [page["has_next"] for page in pages] == [True] * 9 + [False] * 2
    assert [quote["text"] for page in pages for quote in page["quotes"]] == [quote.text for quote in all_quotes()]


def test_slow_and_failing_pages() -> None:
    site = DemoSite(lambda: 0.0)
    assert [asked(site, path).latency for path in ("/slow", "/slow?seconds=0.5", "/slow?seconds=9999")] == [3, 0.5, 60]
    assert [asked(site, f"/trouble/{kind}").status for kind in ("500", "503")] == [500, 503]
    assert asked(site, "/trouble/503").headers["Retry-After"] == "5"
    assert asked(site, "/trouble/cut").error is not None
    assert asked(site, "/trouble/hang").latency == 60


def test_the_sitemap_lists_pages_that_are_there() -> None:
    site = DemoSite(lambda: 0.0)
    urls = trawl.Selector(text=asked(site, "/sitemap.xml").body.decode(), type="xml").xpath(
        "//*[local-name()='loc']/text()"
    )
    found = [site(Request(url)).status for url in urls.getall()]
    assert found == [200] * 60


def test_the_defaults_name_no_site() -> None:
    settings = load()
    assert settings.of(ThrottlingSettings).throttling_scopes == {}
    assert [section for section in SECTIONS if "toscrape" in repr(settings.of(section.value))] == []
