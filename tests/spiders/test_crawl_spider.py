"""Spiders that follow links by rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import trawl
from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.linkextractors import LinkExtractor as ByScrapysName
from trawl.links import Link, LinkExtractor
from trawl.spiders import CrawlSpider, Rule
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

FAST = {"DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


class Shop(CrawlSpider):
    name = "shop"
    start_urls = ["http://a.example/"]
    allowed_domains = ["a.example"]
    rules: Any = (
        Rule(LinkExtractor(allow=r"/category/"), follow=True),
        Rule(LinkExtractor(allow=r"/item/"), callback="parse_item", cb_kwargs={"kind": "item"}),
    )

    def parse_item(self, response: Response, kind: str) -> Iterator[dict[str, Any]]:
        yield {"url": response.url, "kind": kind, "text": response.meta["link_text"], "rule": response.meta["rule"]}


def shop() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/category/1", "/about", "http://b.example/category/1"])
    web.add_page("http://a.example/category/1", links=["/item/1", "/item/2", "/category/2", "/item/1"])
    web.add_page("http://a.example/category/2", links=["/item/3", "/category/1"])
    web.add_page("http://a.example/item/1", links=["/item/4"])
    for number in (2, 3, 4):
        web.add_page(f"http://a.example/item/{number}", links=[])
    return web


def urls(sim: Simulation) -> list[str]:
    return [send.url.removeprefix("http://a.example") for send in sim.sends if "robots" not in send.url]


def test_rules_say_what_is_followed_and_what_becomes_of_it() -> None:
    sim = simulate(Shop, shop(), FAST)
    assert sim.reason == "finished"
    assert sorted(urls(sim)) == ["/", "/category/1", "/category/2", "/item/1", "/item/2", "/item/3"]
    assert sorted((item["url"][-1], item["kind"], item["text"], item["rule"]) for item in sim.items) == [
        ("1", "item", "/item/1", 1),
        ("2", "item", "/item/2", 1),
        ("3", "item", "/item/3", 1),
    ]
    assert sim.stats["offsite_filtered"] == 1


@pytest.mark.parametrize(("follow", "pages"), [(None, 3), (False, 3), (True, 4)])
def test_a_rule_with_a_callback_follows_only_where_it_says_so(follow: bool | None, pages: int) -> None:
    class Once(Shop):
        start_urls = ["http://a.example/category/1"]
        rules = (Rule(LinkExtractor(allow="/item/"), "parse_one", follow=follow),)

        async def parse_one(self, response: Response) -> dict[str, str]:
            return {"url": response.url}

    sim = simulate(Once, shop(), FAST)
    assert (len(urls(sim)), len(sim.items)) == (pages, pages - 1)


def test_a_rule_without_an_extractor_takes_every_link_and_a_link_belongs_to_the_first_rule() -> None:
    class All(Shop):
        rules = (Rule(callback="first", follow=True), Rule(LinkExtractor(), callback="second"))

        def first(self, response: Response) -> dict[str, str]:
            return {"url": response.url}

        def second(self, response: Response) -> None:
            raise AssertionError("belongs to the first")

    sim = simulate(All, shop(), {**FAST, "DEPTH_LIMIT": 1})
    assert sorted(urls(sim)) == ["/", "/about", "/category/1"]
    assert sim.stats.get("spider_exceptions", 0) == 0


def test_links_requests_and_results_pass_through_the_spiders_hands() -> None:
    class Handy(Shop):
        rules = (
            Rule(
                LinkExtractor(allow="item"),
                callback="parse_item",
                process_links="clean",
                process_request="wanted",
                cb_kwargs={"kind": "x"},
            ),
        )
        start_urls = ["http://a.example/category/1"]

        def clean(self, links: list[Link]) -> list[Link]:
            for link in links:
                link.url += "?clean=1"
            return links

        def wanted(self, request: Request, response: Response) -> Request | None:
            assert response.url == "http://a.example/category/1"
            return None if "item/1" in request.url else request.replace(priority=7)

        def process_results(self, response: Response, results: list[Any]) -> list[Any]:
            return [{**item, "priority": response.request.priority if response.request else 0} for item in results]

    web = shop()
    web.add_page("http://a.example/item/2?clean=1", links=[])
    assert [(item["url"], item["priority"]) for item in simulate(Handy, web, FAST).items] == [
        ("http://a.example/item/2?clean=1", 7)
    ]


def test_start_urls_have_a_callback_of_their_own_and_parse_is_free() -> None:
    class Start(Shop):
        rules = (Rule(LinkExtractor(allow="category/1"), callback="parse"),)

        def parse_start_url(self, response: Response, **kwargs: Any) -> dict[str, str]:
            return {"start": response.url}

        def parse(self, response: Response, *args: Any, **kwargs: Any) -> dict[str, str]:
            return {"parsed": response.url}

    assert simulate(Start, shop(), FAST).items == [
        {"start": "http://a.example/"},
        {"parsed": "http://a.example/category/1"},
    ]


@pytest.mark.parametrize("sees", [False, True])
def test_callbacks_of_all_kinds_and_the_links_after_them(sees: bool) -> None:
    class Kinds(Shop):
        rules = (Rule(LinkExtractor(allow="category/1"), callback="many"), Rule(LinkExtractor(), "one"))
        start_urls = ["http://a.example/"]

        async def many(self, response: Response) -> AsyncIterator[Any]:
            await self.fetch(Request("http://a.example/item/4"))
            yield {"many": 1}
            yield Request("http://a.example/item/3", self.one)

        async def one(self, response: Response) -> list[dict[str, str]]:
            return [{"one": response.url[-1]}]

    if sees:
        Kinds.process_results = lambda self, response, results: [*results, {"more": len(results)}]  # type: ignore[method-assign]
    items = simulate(Kinds, shop(), FAST).items
    expected = [{"many": 1}, {"one": "3"}, {"one": "t"}]
    assert sorted(items, key=repr) == sorted([*expected, *([{"more": 0}, {"more": 1}, {"more": 2}] * sees)], key=repr)


def test_an_errback_belongs_to_its_rule() -> None:
    class Careful(Shop):
        rules = (Rule(LinkExtractor(allow="category"), errback="missed"), Rule(LinkExtractor(allow="about")))

        def missed(self, error: Any) -> dict[str, Any]:
            return {"missed": error.response.status, "rule": error.request.meta["rule"]}

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(404))
    web.add_page("http://a.example/", links=["/category/1", "/about"])
    assert simulate(Careful, web, FAST).items == [{"missed": 404, "rule": 0}]


def test_what_is_not_html_has_no_links_to_follow() -> None:
    web = SimulatedWeb()
    style = SimulatedResponse(200, '<a href="/item/1">x</a>', {"Content-Type": "text/css"})
    web.add_host("a.example", handler=lambda request: style)
    assert urls(simulate(Shop, web, FAST)) == ["/"]


def test_a_setting_turns_the_rules_off() -> None:
    assert urls(simulate(Shop, shop(), {**FAST, "CRAWLSPIDER_FOLLOW_LINKS": False})) == ["/"]


def test_rules_may_be_made_in_the_constructor() -> None:
    class Made(CrawlSpider):
        name = "made"
        start_urls = ["http://a.example/"]

        def __init__(self, only: str = "", **kwargs: Any) -> None:
            self.rules = (Rule(ByScrapysName(allow=only), callback="found"),)
            super().__init__(**kwargs)

        def found(self, response: Response) -> dict[str, str]:
            return {"url": response.url}

    assert simulate(Made, shop(), FAST, only="about").items == [{"url": "http://a.example/about"}]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([Rule(callback="parse_itme")], r"shop: rules\[0\]: callback is 'parse_itme', but Wrong has no such method"),
        ([Rule(), Rule(process_links="tidied")], r"rules\[1\]: process_links is 'tidied'"),
        ([LinkExtractor()], r"rules\[0\] must be a Rule"),
    ],
)
def test_a_rule_with_a_wrong_name_is_refused_before_anything_is_sent(rules: Any, words: str) -> None:
    class Wrong(Shop):
        pass

    Wrong.rules = rules
    with pytest.raises(UsageError, match=words):
        Wrong()


def test_the_requests_of_rules_can_be_stored_by_the_names_of_their_callbacks() -> None:
    spider = Shop()
    response = Response("http://a.example/", body=b'<a href="/item/1">One</a>')
    (request,) = spider._requests_to_follow(response)
    assert request.callback == spider._callback
    assert (getattr(request.callback, "__self__", None), request.errback) == (spider, None)
    assert request.meta == {"rule": 1, "link_text": "One"}


def test_the_names_are_where_a_user_looks_for_them() -> None:
    assert trawl.CrawlSpider is CrawlSpider
    assert (trawl.Rule, trawl.LinkExtractor, trawl.Link) == (Rule, LinkExtractor, Link)
    assert issubclass(ByScrapysName, LinkExtractor)


@pytest.mark.parametrize("is_async", [False, True])
def test_parse_with_rules_may_be_overridden_and_is_read_in_a_loop_of_either_kind(is_async: bool) -> None:
    class Plain(Shop):
        def parse_with_rules(self, response: Response, *arguments: Any, **named: Any) -> Any:
            yield {"seen": response.url}
            yield from super().parse_with_rules(response, *arguments, **named)

    class Async(Shop):
        async def parse_with_rules(self, response: Response, *arguments: Any, **named: Any) -> Any:
            yield {"seen": response.url}
            async for output in super().parse_with_rules(response, *arguments, **named):
                yield output

    class Handing(Shop):
        def parse_with_rules(self, response: Response, *arguments: Any, **named: Any) -> Any:
            return super().parse_with_rules(response, *arguments, **named)

    class Calling(Shop):
        async def parse_start_url(self, response: Response, **kwargs: Any) -> Any:
            async for output in self._parse_response(response, None, {}, follow=True):  # its older name in Scrapy
                yield output

    expected = simulate(Shop, shop(), FAST).items
    assert simulate(Calling, shop(), FAST).items == expected
    items = simulate(Async if is_async else Plain, shop(), FAST).items
    assert [item for item in items if "seen" not in item] == expected
    assert {"seen": "http://a.example/category/2"} in items
    assert simulate(Handing, shop(), FAST).items == expected
