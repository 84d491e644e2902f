"""E01-E05, E19, E20: which scopes a request has, and what limits they have by default."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, crawled, found_at_once, page, shown, spider_of, times
from trawl.testing import SimulatedWeb, simulate

A = "http://a.example"
FIVE_APART = {"THROTTLING_SCOPES": {"api": {"delay": 5.0}}}


def one_after_another(scopes: Callable[[], object], count: int = 3, host: str = A) -> Callable[[], list[trawl.Request]]:
    return lambda: [page(f"{host}/{number}", scopes()) for number in range(count)]


FORMS: dict[str, Callable[[], object]] = {
    "string": lambda: "api",
    "list": lambda: ["api"],
    "tuple": lambda: ("api",),
    "set": lambda: {"api"},
    "frozenset": lambda: frozenset({"api"}),
    "generator": lambda: (scope for scope in ["api"]),
    "keys": {"api": 1}.keys,
    "mapping": lambda: {"api": 2.5},
    "mapping without amount": lambda: {"api": None},
}


@pytest.mark.parametrize("form", FORMS)
def test_e01_a_string_an_iterable_or_a_mapping_names_the_scopes(form: str) -> None:
    sim = crawled(one_after_another(FORMS[form]), a_web("a.example", latency=0.1), EXACT, **FIVE_APART)
    assert times(sim) == [0.0, 5.0, 10.0]
    assert [dict(send.scopes) for send in sim.sends] == [{"api": 2.5 if form == "mapping" else 1.0}] * 3


def test_e01_they_replace_the_default_scope() -> None:
    sim = crawled(one_after_another(lambda: "mine"), a_web("a.example", latency=0.1), EXACT)
    assert times(sim) == [0.0, 0.0, 0.0]  # the host's second does not hold, and "mine" has no limit (E20)
    assert [send.slot for send in sim.sends] == [0, 0, 0]


def test_e01_an_empty_list_is_unthrottled() -> None:
    for empty in (list, tuple, dict, set):
        sim = crawled(one_after_another(empty), a_web("a.example", latency=0.1), EXACT)
        assert times(sim) == [0.0, 0.0, 0.0]
        assert [dict(send.scopes) for send in sim.sends] == [{}, {}, {}]


def test_e01_absent_or_none_the_manager_decides() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"{A}/0"), trawl.Request(f"{A}/1", meta={"throttling_scopes": None})]

    sim = crawled(requests, a_web("a.example", latency=0.1), EXACT)
    assert times(sim) == [0.0, 1.0]
    assert [dict(send.scopes) for send in sim.sends] == [{"a.example": 1.0}] * 2


@pytest.mark.parametrize("wrong", [5, 1.5, [5], ["api", None], {"api": "much"}, {5: 1.0}, {"api": True}, object()])
def test_e01_what_is_no_set_of_scopes_ends_its_own_request_only(wrong: object) -> None:
    spider = spider_of(lambda: [page(f"{A}/wrong", wrong), page(f"{A}/right", "api")])
    sim = simulate(spider, a_web("a.example"), EXACT, errors="collect")
    assert shown(sim) == [(0.0, "right")]
    assert sim.stats["scope_errors"] == 1


@pytest.mark.parametrize("wrong", [inf, -inf, nan, "soon", [1.0]])
def test_e21_a_delay_that_is_no_number_or_never_ends_ends_its_own_request_only(wrong: object) -> None:
    requests = [trawl.Request(f"{A}/wrong", meta={"delay": wrong}), trawl.Request(f"{A}/right")]
    sim = simulate(spider_of(lambda: requests), a_web("a.example"), EXACT, errors="collect")
    assert shown(sim) == [(0.0, "right")]
    assert sim.stats["scope_errors"] == 1


def test_e02_at_most_two_in_flight_and_at_least_five_seconds_apart() -> None:
    scopes = {"api": {"concurrency": 2}, "users": {"delay": 5.0}}
    sim = crawled(
        one_after_another(lambda: {"api", "users"}, 5),
        a_web("a.example", latency=12.0),
        EXACT,
        THROTTLING_SCOPES=scopes,
    )
    assert times(sim) == [0.0, 5.0, 12.0, 17.0, 24.0]
    assert sim.most_in_flight() == 2
    quick = crawled(
        one_after_another(lambda: {"api", "users"}, 4), a_web("a.example", latency=0.1), EXACT, THROTTLING_SCOPES=scopes
    )
    assert times(quick) == [0.0, 5.0, 10.0, 15.0]


def redirecting() -> SimulatedWeb:
    web = a_web("a.example", "b.example", latency=0.1)
    web.add_redirect(f"{A}/0", "http://b.example/moved")
    return web


@pytest.mark.parametrize("form", FORMS)
def test_e03_scopes_of_the_meta_persist_through_redirects(form: str) -> None:
    sim = crawled(lambda: [page(f"{A}/0", FORMS[form]())], redirecting(), EXACT, **FIVE_APART)
    assert shown(sim) == [(0.0, "0"), (5.0, "moved")]
    assert [list(send.scopes) for send in sim.sends] == [["api"], ["api"]]


def test_e03_unthrottled_stays_unthrottled_through_redirects() -> None:
    web = a_web("a.example", latency=0.1)
    web.add_redirect(f"{A}/0", "/moved")
    assert shown(crawled(lambda: [page(f"{A}/0", [])], web, EXACT)) == [(0.0, "0"), (0.1, "moved")]


def test_e04_p7_a_redirect_to_another_host_is_charged_to_that_host() -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request("http://b.example/first"), trawl.Request(f"{A}/0"), trawl.Request(f"{A}/1")]

    sim = crawled(requests, redirecting(), EXACT, DOWNLOAD_DELAY=3.0)
    assert shown(sim) == [(0.0, "first"), (0.0, "0"), (3.0, "moved"), (3.0, "1")]
    assert [list(send.scopes) for send in sim.sends if send.url.endswith("moved")] == [["b.example"]]


def test_e04_the_manager_is_asked_anew_for_a_redirects_target() -> None:
    class ByPath(trawl.throttling.ThrottlingManager):
        async def get_scopes(self, request: trawl.Request) -> str:
            return "moved" if request.url.endswith("moved") else "there"

    sim = crawled(lambda: [trawl.Request(f"{A}/0")], redirecting(), EXACT, THROTTLING_MANAGER=ByPath)
    assert [dict(send.scopes) for send in sim.sends] == [{"there": 1.0}, {"moved": 1.0}]


def test_e05_a_request_of_several_scopes_takes_all_or_none() -> None:
    # /both needs x, which is busy until 10.0; while it waits it holds nothing of y, which is used throughout.
    web = a_web("a.example", latency=lambda request: 10.0 if request.url.endswith("x") else 1.0)
    requests = [page(f"{A}/x", "x"), page(f"{A}/both", ["x", "y"]), *(page(f"{A}/y{n}", "y") for n in range(4))]
    one = {"concurrency": 1}
    sim = simulate(found_at_once(lambda: requests), web, settings={**FREE, "THROTTLING_SCOPES": {"x": one, "y": one}})
    assert shown(sim) == [(0.0, "x"), (0.0, "y0"), (1.0, "y1"), (2.0, "y2"), (3.0, "y3"), (10.0, "both")]


def test_e05_it_waits_for_the_scope_that_opens_last() -> None:
    scopes = {"x": {"delay": 2.0}, "y": {"delay": 7.0}, "z": {"concurrency": 1}}
    sim = crawled(
        one_after_another(lambda: ["x", "y", "z"]), a_web("a.example", latency=9.0), FREE, THROTTLING_SCOPES=scopes
    )
    assert times(sim) == [0.0, 9.0, 18.0]


SPELLINGS = [
    "http://a.example/1",
    "http://A.Example/2",
    "http://a.example./3",
    "http://a.example:80/4",
    "https://a.example:443/5",
    "http://user:secret@a.example/6",
]


def test_e19_r6_every_spelling_of_a_host_is_one_scope() -> None:
    sim = crawled(lambda: [trawl.Request(url) for url in SPELLINGS], a_web("a.example", latency=0.1), EXACT)
    assert times(sim) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert {scope for send in sim.sends for scope in send.scopes} == {"a.example"}


OTHERS: list[tuple[str, str]] = [
    ("http://a.example:8080/", "a.example:8080"),
    ("http://bücher.example/", "xn--bcher-kva.example"),
    ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
    ("http://[::1]:8080/", "[::1]:8080"),
    ("http://127.0.0.1:8000/", "127.0.0.1:8000"),
    ("http://localhost/", "localhost"),
    ("http://intranet/", "intranet"),
]


@pytest.mark.parametrize(("url", "scope"), OTHERS)
def test_e19_hosts_as_scopes(url: str, scope: str) -> None:
    sim = crawled(
        lambda: [trawl.Request(url), trawl.Request(f"{url}again")],
        a_web(scope.removesuffix(":8080"), latency=0.1),
        EXACT,
    )
    assert [dict(send.scopes) for send in sim.sends] == [{scope: 1.0}] * 2
    assert times(sim) == [0.0, 1.0]  # E20: the per-domain defaults, also for a name without a dot


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("A.Example.", "http://a.example/"),
        ("a.example", "http://a.example:8080/"),
        ("BÜCHER.example", "http://bücher.example/"),
        ("::1", "http://[::1]/"),
        ("[0:0::1]", "http://[::1]:81/"),
        ("a.example:08080", "http://a.example:8080/"),
    ],
)
def test_e19_keys_are_normalised_and_looked_up_by_host_and_port_then_by_host(key: str, url: str) -> None:
    web = a_web("a.example", "bücher.example", "[::1]", latency=0.1)
    sim = crawled(
        lambda: [trawl.Request(url), trawl.Request(f"{url}1")], web, EXACT, THROTTLING_SCOPES={key: {"delay": 7.0}}
    )
    assert times(sim) == [0.0, 7.0]


def test_e19_the_entry_with_the_port_goes_before_the_one_without() -> None:
    scopes = {"a.example": {"delay": 2.0}, "a.example:8080": {"delay": 5.0}}
    urls = [f"{A}/1", f"{A}/2", f"{A}:8080/3", f"{A}:8080/4", f"{A}:9090/5", f"{A}:9090/6"]
    sim = crawled(lambda: map(trawl.Request, urls), a_web("a.example", latency=0.1), EXACT, THROTTLING_SCOPES=scopes)
    assert {send.url[-1]: send.time for send in sim.sends} == {"1": 0, "2": 2, "3": 0, "4": 5, "5": 0, "6": 2}


def test_e19_two_spellings_of_one_host_in_the_settings_are_refused() -> None:
    scopes = {"a.example": {"delay": 1.0}, "A.EXAMPLE.": {"delay": 2.0}}
    with pytest.raises(trawl.exceptions.SettingsError, match=r"'a\.example' and 'A\.EXAMPLE\.'"):
        crawled(list, a_web("a.example"), EXACT, THROTTLING_SCOPES=scopes)


HOST_LIKE = [
    "b.example",
    "B.Example.",
    "b.example:81",
    "10.0.0.7",
    "10.0.0.7:81",
    "[::7]",
    "::7",
    "localhost",
    "localhost:81",
]
OWN_WORDS = [
    "api",
    "cost",
    "proxy:a.example",
    "api.toscrape.com/fast-endpoint",
    "a.example b.example",
    "1.5",
    "user@b.example",
]


@pytest.mark.parametrize("scope", HOST_LIKE)
def test_e20_a_host_like_id_has_the_per_domain_defaults_whoever_assigns_it(scope: str) -> None:
    class Assigning:
        def get_scopes(self, request: trawl.Request) -> str:
            return scope

    web = a_web("a.example", latency=0.1)
    assert times(crawled(one_after_another(lambda: scope), web, EXACT)) == [0.0, 1.0, 2.0]
    by_manager = crawled(one_after_another(lambda: None), web, EXACT, THROTTLING_MANAGER=Assigning)
    assert times(by_manager) == [0.0, 1.0, 2.0]
    slow = a_web("a.example", latency=4.0)
    assert crawled(one_after_another(lambda: scope), slow, EXACT).most_in_flight() == 1


@pytest.mark.parametrize("scope", OWN_WORDS)
def test_e20_any_other_id_is_unlimited_but_for_the_keys_it_sets(scope: str) -> None:
    web = a_web("a.example", latency=0.1)
    assert times(crawled(one_after_another(lambda: scope), web, EXACT)) == [0.0, 0.0, 0.0]
    for limits, expected in (
        ({"delay": 0.5}, [0.0, 0.5, 1.0]),
        ({"concurrency": 2}, [0.0, 0.0, 0.1]),
        ({"concurrency": 1, "delay_per_slot": 0.5}, [0.0, 0.5, 1.0]),
    ):
        sim = crawled(one_after_another(lambda: scope), web, EXACT, THROTTLING_SCOPES={scope: limits})
        assert times(sim) == expected


@pytest.mark.parametrize("slot", ["mine", 7, "b.example", "A.Example."])
def test_a_download_slot_has_the_delay_and_the_places_of_a_host(slot: object) -> None:
    def requests() -> list[trawl.Request]:
        return [trawl.Request(f"http://{host}.example/", meta={"download_slot": slot}) for host in ("a", "b", "c")]

    web = a_web("a.example", "b.example", "c.example", latency=0.1)
    settings = {**EXACT, "ROBOTSTXT_OBEY": False}
    assert times(crawled(requests, web, settings)) == [0.0, 1.0, 2.0]
    own = {str(slot): {"delay": 0.5}}
    assert times(crawled(requests, web, settings, THROTTLING_SCOPES=own)) == [0.0, 0.5, 1.0]


def test_e20_the_requests_own_host_is_host_like_even_without_a_dot() -> None:
    web = a_web("intranet", latency=0.1)
    sim = crawled(one_after_another(lambda: "intranet", host="http://intranet"), web, EXACT)
    assert times(sim) == [0.0, 1.0, 2.0]
