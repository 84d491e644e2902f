"""What a page tells of itself to those it leads to: the tables of W3C's Referrer Policy."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.middleware.referrer import POLICIES, Referrer, load_referrer_policy
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

PAGE = "https://a.example/p?q=1"
SAME, OTHER, PLAIN = "https://a.example/x", "https://b.example/", "http://a.example/"
ORIGIN = "https://a.example/"


@pytest.mark.parametrize(
    ("name", "same", "other", "plain"),
    [
        ("no-referrer", None, None, None),
        ("no-referrer-when-downgrade", PAGE, PAGE, None),
        ("origin", ORIGIN, ORIGIN, ORIGIN),
        ("origin-when-cross-origin", PAGE, ORIGIN, ORIGIN),
        ("same-origin", PAGE, None, None),
        ("scrapy-default", PAGE, PAGE, None),
        ("strict-origin", ORIGIN, ORIGIN, None),
        ("strict-origin-when-cross-origin", PAGE, ORIGIN, None),
        ("unsafe-url", PAGE, PAGE, PAGE),
    ],
)
def test_the_policies(name: str, same: str | None, other: str | None, plain: str | None) -> None:
    policy = load_referrer_policy(name)
    assert [policy(PAGE, target) for target in (SAME, OTHER, PLAIN)] == [same, other, plain]


def test_every_policy_is_in_the_table() -> None:
    assert len(POLICIES) == 9


def referred(response: Response, target: str = OTHER, policy: str = "unsafe-url", **options: Any) -> str | None:
    request = Request(target, **options)
    Referrer(load_referrer_policy(policy)).refer(request, response)
    return request.headers.get("Referer")


def test_neither_fragment_nor_user_info_is_told() -> None:
    assert referred(Response("https://me:pw@a.example/p?q#frag")) == "https://a.example/p?q"


def test_a_page_may_say_how_much_is_told_and_the_last_word_that_is_known_counts() -> None:
    page = Response(PAGE, headers={"Referrer-Policy": "origin, NO-REFERRER, what-is-that"})
    assert referred(page) is None
    assert referred(Response(PAGE, headers={"Referrer-Policy": "what-is-that"})) == PAGE


def test_a_request_may_say_it_itself() -> None:
    page = Response(PAGE, headers={"Referrer-Policy": "no-referrer"})
    assert referred(page, meta={"referrer_policy": "origin"}) == ORIGIN
    assert referred(page, headers={"Referer": "mine"}) == "mine"
    assert referred(Response(PAGE), headers={"Referer": None}) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("scrapy.spidermiddlewares.referer.DefaultReferrerPolicy", "scrapy-default"),
        ("scrapy.spidermiddlewares.referer.SameOriginPolicy", "same-origin"),
        ("scrapy.spidermiddlewares.referer.StrictOriginWhenCrossOriginPolicy", "strict-origin-when-cross-origin"),
        ("scrapy.spidermiddlewares.referer.UnsafeUrlPolicy", "unsafe-url"),
    ],
)
def test_scrapys_classes_stand_for_their_policies(path: str, name: str) -> None:
    assert load_referrer_policy(path) is POLICIES[name]


@pytest.mark.parametrize("value", ["no-such-policy", "no.such.thing", "scrapy.spidermiddlewares.referer.XPolicy", 5])
def test_a_policy_that_there_is_not_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match="REFERRER_POLICY"):
        load_referrer_policy(value)


class Links(trawl.Spider):
    """A page that leads to two."""

    name = "links"
    start_urls = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield from response.follow_all(css="a")


def told(**settings: object) -> dict[str, str | None]:
    seen: dict[str, str | None] = {}

    def answer(request: Any) -> SimulatedResponse:
        seen[request.url] = request.headers.get("Referer")
        links = '<a href="/x">x</a><a href="http://b.example/">b</a>' if request.url == "http://a.example/" else ""
        return SimulatedResponse(body=links, headers={"Content-Type": "text/html"})

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    web.add_host("b.example", handler=answer)
    simulate(Links, web, {"ROBOTSTXT_OBEY": False, **settings})
    return seen


def test_a_crawl_tells_pages_where_it_found_them() -> None:
    page = "http://a.example/"
    assert told() == {page: None, f"{page}x": page, "http://b.example/": page}
    assert told(REFERRER_POLICY="same-origin") == {page: None, f"{page}x": page, "http://b.example/": None}
    assert told(REFERRER_POLICY=lambda page, target: "http://c.example/")["http://b.example/"] == "http://c.example/"
    assert set(told(REFERER_ENABLED=False).values()) == {None}


def test_links_of_a_page_hold_one_field_until_one_of_them_is_changed() -> None:
    referrer, page = Referrer(load_referrer_policy("unsafe-url")), Response(PAGE)
    first, second, own = Request(SAME), Request(SAME), Request(SAME, headers={"Accept": "x"})
    for request in (first, second, own):
        referrer.refer(request, page)
    assert first.extras()[0] is second.extras()[0]
    first.headers["Referer"] = "changed"
    assert [request.headers.get("Referer") for request in (first, second, own)] == ["changed", PAGE, PAGE]
    assert own.headers.get("Accept") == "x"


def test_a_function_of_the_users_is_asked_for_each_target() -> None:
    referrer, page = Referrer(lambda page, target: f"{page}#{target}"), Response(PAGE)
    requests = [Request(SAME), Request(f"{SAME}/2")]
    for request in requests:
        referrer.refer(request, page)
    assert [request.headers.get("Referer") for request in requests] == [f"{PAGE}#{SAME}", f"{PAGE}#{SAME}/2"]


@pytest.mark.parametrize("path", ["os.rename", "timeit.timeit", "jobs.books.evil.run"])
def test_a_request_that_may_be_a_stored_one_names_nothing_that_is_imported_and_called(path: str) -> None:
    request = Request("https://b.example/", meta={"referrer_policy": path})
    with pytest.raises(SettingsError, match=r"meta referrer_policy must be one of .*, or a function"):
        Referrer(POLICIES["origin"]).refer(request, Response(PAGE))
    request.meta["referrer_policy"] = lambda page, target: page.upper()
    Referrer(POLICIES["origin"]).refer(request, Response(PAGE))
    assert request.headers["Referer"] == PAGE.upper()
