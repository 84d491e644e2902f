"""Refreshes as pages declare them (HTML, 4.2.5.3)."""

from __future__ import annotations

import pytest

from trawl.middleware.redirect import meta_refreshes, parse_refresh

META = "<meta http-equiv=refresh content='1;url=foo'>"


@pytest.mark.parametrize(
    "value",
    ["01;foo", "1;url=foo", "1, url=foo", "1 url=foo", '1;url="foo"', "1; url = 'foo'", "1;foo", "1,foo",
     "1\tfoo", " 1.9 ; URL=foo", "1;'foo'bar", "1;url='foo", "1..5;foo"],
)  # fmt: skip
def test_a_declared_refresh_has_many_spellings(value: str) -> None:
    assert parse_refresh(value) == (1.0, "foo")


@pytest.mark.parametrize(
    ("value", "seconds", "url"),
    [
        ("5", 5, ""),
        ("5; ", 5, ""),
        (".5;foo", 0, "foo"),
        ("0;url foo", 0, "url foo"),
        ("0;ur=foo", 0, "ur=foo"),
        ("0;;foo", 0, ";foo"),
        ("0;url==foo", 0, "=foo"),
        ('0;url="a\'b"', 0, "a'b"),
        ("9" * 400 + ";foo", 999_999_999_999_999, "foo"),
    ],
)
def test_what_is_left_of_it_is_the_url(value: str, seconds: int, url: str) -> None:
    assert parse_refresh(value) == (seconds, url)


@pytest.mark.parametrize(
    "value", ["", "x;foo", "-1;foo", "+1;foo", "1foo", "1/foo", "foo", ";foo", "\x0b1;foo", "1\x0bfoo"]
)
def test_a_value_without_a_time_or_a_separator_declares_nothing(value: str) -> None:
    assert parse_refresh(value) is None


@pytest.mark.parametrize(
    "page",
    [
        f"<title>{META}</title>",
        f"<TITLE>{META}</TITLE>",
        f"<title/>{META}",
        f"<title>{META}</titles>",
        f"<textarea>{META}</textarea>",
        f"<style>{META}</style>",
        f"<script>{META}</script>",
        f"<script><!--<script></script>{META}--></script>",
        f"<xmp>{META}</xmp>",
        f"<iframe>{META}</iframe>",
        f"<noembed>{META}</noembed>",
        f"<noframes>{META}</noframes>",
        f"<plaintext>{META}</plaintext>{META}",
        f"<template>{META}</template>",
        f"<template><template></template>{META}</template>",
        f"<!-- {META} -->",
        f"<!DOCTYPE {META}",
        f"<? {META}",
        f'<p title="{META}">',
        f'<p title="{META}',
        f"</title {META}",
        "<meta http-equiv=refresh content='1;url=foo'",
        "<metadata http-equiv=refresh content='1;url=foo'>",
        "<meta name=refresh content='1;url=foo'>",
        "<meta http-equiv='refresh ' content='1;url=foo'>",
    ],
)
def test_what_is_no_element_of_the_page_declares_nothing(page: str) -> None:
    assert list(meta_refreshes(page)) == []


@pytest.mark.parametrize(
    "page",
    [
        f"<title>a</title >{META}",
        f"<textarea></textarea/>{META}",
        f"<script><!--</script>{META}",
        f"<script><!--<script></script>--></script>{META}",
        f"<template></template>{META}",
        f"</template>{META}",
        f"<!-->{META}",
        f"<!--->{META}",
        f"<!-- --!>{META}",
        f"<!x>{META}",
        f"<p title='>' {META} >{META}",
        f"a < b {META}",
        f"<body><p>{META}",
        f"<noscript>{META}</noscript>",
        "<META HTTP-EQUIV=Refresh CONTENT='1;url=foo'>",
        "<meta/http-equiv='refresh'/content='1;url=foo'/>",
        "<meta http-equiv = 'refresh' content = \"1;url=foo\" content='2'>",
        "<meta http-equiv=refresh content=1;url=foo>",
        "<meta http-equiv=&#114;efresh content='1&#x3B;url&#61;foo'>",
    ],
)
def test_a_refresh_is_found_where_browsers_find_it(page: str) -> None:
    assert list(meta_refreshes(page)) == ["1;url=foo"]


def test_references_in_an_attribute_are_decoded_as_there() -> None:
    page = "<meta http-equiv=refresh content='0;?a&amp;b&copy=1&copy;&copyx&nosuch;&#65'>"
    assert list(meta_refreshes(page)) == ["0;?a&b&copy=1\xa9&copyx&nosuch;A"]


def test_elements_may_be_left_out() -> None:
    assert list(meta_refreshes(f"<NoScript>{META}</noscript>", ["noscript"])) == []
