"""The description of a simulated web."""

from __future__ import annotations

import pytest

from trawl.http import Request, normalize_url
from trawl.testing import Outage, RateLimit, SimulatedResponse, SimulatedWeb
from trawl.testing.hosts import scope_of_name


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("a.example", "a.example"),
        ("A.Example.", "a.example"),
        ("a.example:80", "a.example"),
        ("a.example:443", "a.example"),
        ("a.example:8080", "a.example:8080"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("[::1]:8000", "[::1]:8000"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("https://a.example:8443/x", "a.example:8443"),
        ("localhost", "localhost"),
    ],
)
def test_e19_r6_a_host_is_named_as_its_scope_is(name: str, scope: str) -> None:
    assert scope_of_name(name) == scope


@pytest.mark.parametrize("name", ["", "a/b", "a b", "u@a.example", "a.example:port"])
def test_what_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 the URL parser has words of its own
        SimulatedWeb().add_host(name)


@pytest.mark.parametrize(
    "url", ["http://a.example/x", "https://A.EXAMPLE./", "http://a.example:8080/", "http://u:p@a.example/"]
)
def test_e19_a_host_answers_for_every_spelling_and_for_ports_that_are_not_there(url: str) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    host = web.host_of(normalize_url(url))
    assert host is not None
    assert host.name == "a.example"


def test_a_port_that_is_there_answers_for_itself() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", status=200)
    web.add_host("a.example:8080", status=404)
    host = web.host_of("http://a.example:8080/")
    assert host is not None
    assert host.answer.status == 404
    assert web.host_of("http://b.example/") is None


@pytest.mark.parametrize("url", ["http://[::1]:9/", "http://[::1]/"])
def test_an_ipv6_host_is_found(url: str) -> None:
    web = SimulatedWeb()
    web.add_host("[::1]")
    assert web.host_of(url) is not None


def test_a_host_is_added_once() -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    with pytest.raises(ValueError, match=r"a\.example is on this web already"):
        web.add_host("A.example")


def test_a_page_brings_its_host_which_may_still_be_described() -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/x", ["/y"])
    assert web.host_of("http://a.example/") is not None
    web.add_host("a.example", latency=0.5)
    host = web.host_of("http://a.example/")
    assert host is not None
    assert host.latency == 0.5
    assert web.page_at("http://a.example/x") is not None


def test_a_page_is_found_by_its_address_without_the_fragment() -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/x?b=1#top", status=404)
    page = web.page_at("http://a.example/x?b=1#end")
    assert page is not None
    assert page.status == 404
    assert web.page_at("http://a.example/x") is None


def test_a_site_links_all_its_pages() -> None:
    web = SimulatedWeb()
    web.add_site("a.example", pages=25, links=3, latency=0.1)
    seen, todo = set(), ["/"]
    while todo:
        path = todo.pop()
        seen.add(path)
        page = web.page_at(f"http://a.example{path}")
        assert page is not None
        todo += [part.split('"')[0] for part in page.body.decode().split('href="')[1:]]
    assert seen == {"/", *(f"/{number}" for number in range(1, 25))}


def test_a_site_is_the_same_under_https_and_a_page_is_not() -> None:
    web = SimulatedWeb()
    web.add_site("a.example", pages=2)
    web.add_page("http://b.example/1")
    assert web.page_at("https://a.example/1#top") == web.page_at("http://a.example/1")
    assert web.page_at("https://a.example/1") is not None
    assert web.page_at("https://a.example/2") is None
    assert web.page_at("https://b.example/1") is None


def test_a_name_that_does_not_resolve_tells_which_would() -> None:
    web = SimulatedWeb()
    web.add_host("b.example")
    error = web.unresolved(Request("http://a.example/"))
    assert "'a.example'" in str(error)
    assert "b.example" in str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency": "slow"},
        {"limit": 5},
        {"handler": "page"},
        {"connect_error": ValueError},
        {"outages": [3]},
        {"robots": 5},
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_when_the_host_is_added(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        SimulatedWeb().add_host("a.example", **wrong)  # type: ignore[arg-type]


def test_an_outage_ends_after_it_starts() -> None:
    with pytest.raises(ValueError, match="ends after"):
        Outage(5, 5)


def test_a_web_says_what_is_on_it() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", limit=[RateLimit(1), RateLimit(2)], robots=SimulatedResponse(503))
    web.add_page("http://a.example/")
    assert repr(web) == "<SimulatedWeb of 1 hosts and 1 pages>"


async def test_its_name_server_gives_each_host_an_address_of_its_own_unless_they_share_one() -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example:8080")
    web.add_host("c.example", address="192.0.2.1")
    web.add_host("d.example", address="2001:db8::1")
    found = {name: (await web.resolve(f"{name}.example", 80))[0].sockaddr for name in "abcd"}
    assert found == {
        "a": ("198.18.0.1", 80),
        "b": ("198.18.0.2", 80),
        "c": ("192.0.2.1", 80),
        "d": ("2001:db8::1", 80, 0, 0),
    }
    assert (await web.resolve("192.0.2.9", 443))[0].sockaddr == ("192.0.2.9", 443)
    with pytest.raises(OSError, match=r"nobody\.example"):
        await web.resolve("nobody.example", 80)


def test_an_address_that_is_none_is_refused_when_the_host_is_added() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        SimulatedWeb().add_host("a.example", address="nowhere")
