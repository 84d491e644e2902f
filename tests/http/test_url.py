from __future__ import annotations

import re

import ada_url
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from trawl.http.url import (
    _NORMAL,
    canonicalize_url,
    host_of,
    host_scope,
    is_joinable,
    join_url,
    normalize_url,
    origin_of,
    scheme_of,
)

TEXT = st.text("ab=&+%;?/é", max_size=6)
ARGUMENTS = st.lists(st.tuples(st.sampled_from(["a", "b", "a-b", ""]), TEXT), max_size=5)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://A.Example", "http://a.example/"),
        ("https://a.example:443/./b/../c", "https://a.example/c"),
        ("http://bücher.example/ü?ü#ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC#%C3%BC"),
        ("  http://a.example/a\n\tb  ", "http://a.example/ab"),
        ("http:\\\\a.example\\b", "http://a.example/b"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[::0:1]:80/", "http://[::1]/"),
        ("mailto:A@b.example", "mailto:A@b.example"),
    ],
)
def test_a_url_is_read_as_browsers_read_it(url: str, normal: str) -> None:
    assert normalize_url(url) == normal


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("www.a.example/b", "'www.a.example/b' is not an absolute URL: did you mean 'https://www.a.example/b'?"),
        ("//a.example/", "'//a.example/' is not an absolute URL: did you mean 'https://a.example/'?"),
        ("http://", "'http://' is not a valid URL"),
        ("http://a b/", "'http://a b/' is not a valid URL"),
        ("/b", "'/b' is not an absolute URL: a scheme such as 'https://' is missing"),
        ("", "'' is not an absolute URL: a scheme such as 'https://' is missing"),
        ("http://a.example/\ud800", "'http://a.example/\\ud800' is not a valid URL"),
    ],
)
def test_a_url_that_is_none_is_refused_by_name(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        normalize_url(url)


def test_a_url_that_is_a_kind_of_text_becomes_a_plain_one() -> None:
    link: str = etree.HTML("<a href='http://a.example/b'>b</a>").xpath("//@href")[0]  # has its page in it
    assert type(link) is not str
    assert type(normalize_url(link)) is str


@settings(max_examples=30)  # to make a text of a pattern takes Hypothesis long
@given(st.from_regex(_NORMAL, fullmatch=True))
def test_a_url_that_is_taken_as_it_stands_is_what_ada_makes_of_it(url: str) -> None:
    assert ada_url.normalize_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example",
        "http://a.example/b/../c",
        "http://a.example/.",
        "http://1.2.3/",
        "http://01.2.3.4/",
        "http://a.1/",
        "http://a.example:80/",
        "http://a.example:99999/",
        "http://xn--a/",
        "http://a.example/%7e",
        "http://a.example/#",
        "http://a.example/?'",
    ],
)
def test_what_may_be_written_otherwise_is_parsed(url: str) -> None:
    assert _NORMAL.fullmatch(url) is None


@pytest.mark.interpreted
def test_a_url_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a URL must be a str, not bytes: b'http://a.example/'"):
        normalize_url(b"http://a.example/")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a URL must be a str, not NoneType: None"):
        join_url("http://a.example/", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("link", "joined"),
    [
        ("../c?d", "http://a.example/c?d"),
        ("//b.example", "http://b.example/"),
        ("#x", "http://a.example/a/b#x"),
        (" \n/c\t", "http://a.example/c"),
        ("?q=é", "http://a.example/a/b?q=%C3%A9"),
        ("mailto:x@y", "mailto:x@y"),
    ],
)
def test_a_link_is_joined_to_its_page(link: str, joined: str) -> None:
    assert join_url("http://a.example/a/b", link) == joined
    assert is_joinable("http://a.example/a/b", link)


BASES = (
    "http://a.example",
    "https://a.b:8/c/d?x=/y#z/w",
    "HTTP://U:p@A.Example:80/x/../y/z",
    "http://1.2/a",
    "file:///a/b",
)


@given(
    st.sampled_from([*BASES, "https://[::1]/a/b;c/d", "http://é.example/ä/b"]),
    st.sampled_from(["", "http://a.example", "https://a.b:8", "http://u:p@a.example"]),
    st.text("aZ0._~-/?=&%2e;:#@\\ é", max_size=8),
)
def test_a_link_is_joined_as_ada_joins_it_also_where_ada_is_not_asked(base: str, origin: str, path: str) -> None:
    try:
        expected = ada_url.join_url(base, origin + path)
    except ValueError:
        expected = None
    try:
        joined = join_url(base, origin + path)
    except ValueError:
        joined = None
    assert joined == expected


def test_a_link_that_makes_no_url_is_refused_by_name() -> None:
    assert not is_joinable("http://a.example/", "http://[")
    with pytest.raises(ValueError, match=r"the link 'http://\[' on 'http://a.example/' is not a valid URL"):
        join_url("http://a.example/", "http://[")


@pytest.mark.parametrize(
    ("url", "scheme", "host", "origin", "scope"),
    [
        ("http://A.Example/x:y@z", "http", "a.example", "http://a.example", "a.example"),
        ("https://a.example:443/", "https", "a.example", "https://a.example", "a.example"),
        ("https://a.example:8443/", "https", "a.example", "https://a.example:8443", "a.example:8443"),
        ("https://a.example:80/", "https", "a.example", "https://a.example:80", "a.example:80"),
        ("http://u:p@a.example:81/@", "http", "a.example", "http://a.example:81", "a.example:81"),
        ("http://u%40:p@a.example/", "http", "a.example", "http://a.example", "a.example"),
        ("http://a.example./", "http", "a.example.", "http://a.example.", "a.example"),
        ("http://a.example.:81/", "http", "a.example.", "http://a.example.:81", "a.example:81"),
        ("http://[2001:DB8::1]/", "http", "[2001:db8::1]", "http://[2001:db8::1]", "[2001:db8::1]"),
        ("http://[::1]:81/", "http", "[::1]", "http://[::1]:81", "[::1]:81"),
        (
            "http://bücher.example/",
            "http",
            "xn--bcher-kva.example",
            "http://xn--bcher-kva.example",
            "xn--bcher-kva.example",
        ),
        ("mailto:a@b.example", "mailto", "", "mailto:", ""),
        ("data:,x", "data", "", "data:", ""),
        ("foo://Bar?q#f", "foo", "bar", "foo://Bar", "bar"),
    ],
)
def test_e19_the_parts_of_a_url(url: str, scheme: str, host: str, origin: str, scope: str) -> None:
    normal = normalize_url(url)
    assert (scheme_of(normal), host_of(normal), origin_of(normal), host_scope(normal)) == (scheme, host, origin, scope)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://a.example/?b=1&a=2#x&y", "http://a.example/?a=2&b=1"),
        ("http://a.example/#x", "http://a.example/"),
        ("http://a.example/a&b", "http://a.example/a&b"),
        ("http://a.example/b&a?c", "http://a.example/b&a?c="),
        ("http://a.example/?a=2&a=1&a", "http://a.example/?a=&a=1&a=2"),
        ("http://a.example/?a-b=1&a=2", "http://a.example/?a=2&a-b=1"),
        ("http://a.example/?q=%7e&p=a+b", "http://a.example/?p=a+b&q=~"),
    ],
)
def test_the_canonical_form_drops_the_fragment_and_orders_the_query(url: str, canonical: str) -> None:
    assert canonicalize_url(url) == canonical


@given(ARGUMENTS, st.randoms(use_true_random=False), TEXT)
def test_the_order_of_arguments_and_the_fragment_do_not_count(
    arguments: list[tuple[str, str]], random: object, fragment: str
) -> None:
    shuffled = arguments.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (
        "http://a.example/p?" + "&".join(f"{name}={value}".replace("&", "") for name, value in each)
        for each in (arguments, shuffled)
    )
    assert canonicalize_url(one) == canonicalize_url(f"{other}#{fragment}")


@given(ARGUMENTS)
def test_a_canonical_url_is_its_own_canonical_form(arguments: list[tuple[str, str]]) -> None:
    canonical = canonicalize_url("http://a.example/?" + "&".join(f"{name}={value}" for name, value in arguments))
    assert canonicalize_url(canonical) == canonical


@pytest.mark.parametrize(("url", "origin"), [("http://a.example", "http://a.example"), ("https://b:1", "https://b:1")])
def test_a_url_that_is_shown_without_its_path_has_an_origin_and_a_scope(url: str, origin: str) -> None:
    assert origin_of(url) == origin
    assert host_scope(url) == origin.partition("//")[2]
