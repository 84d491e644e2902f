"""The tables of docs/explanation/redirects.md, row by row (C10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trawl.http import Request
from trawl.middleware import redirected
from trawl.middleware.redirect import BODY_HEADERS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "redirects.md"

SAME, OTHER = "https://a.example/there", "https://b.example/there"


def tables() -> list[list[list[str]]]:
    """The cells of each table of the page, without its head."""
    found: list[list[list[str]]] = []
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("|"):
            continue
        if not before.startswith("|"):
            found.append([])
        found[-1].append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return [table[:1] + table[2:] for table in found]


CARRIED, METHODS = tables()


def parse() -> None: ...


def fail() -> None: ...


def a_request() -> Request:
    request = Request(
        "https://a.example/here#part",
        parse,
        errback=fail,
        headers={
            "Authorization": "Basic x",
            "Cookie": "a=b",
            "Proxy-Authorization": "Basic y",
            "Host": "alias.example",
            "Origin": "https://a.example",
            "Referer": "https://a.example/from/here",
            "User-Agent": "me",
            "X-Other": "z",
        },
        cookies={"a": "b"},
        cb_kwargs={"k": 1},
        meta={"m": [1], "delay": 4},
        dont_filter=True,
    )
    request.depth = 3
    return request


def field(name: str) -> Callable[[Request], object]:
    return lambda request: request.headers.get(name)


READ: dict[str, Callable[[Request], object]] = {
    "Authorization": field("Authorization"),
    "Cookie set by the request": field("Cookie"),
    "Proxy-Authorization": field("Proxy-Authorization"),
    "cookies= of the request": lambda request: request.cookies or None,
    "Host": field("Host"),
    "Origin": field("Origin"),
    "Referer": field("Referer"),
    "User-Agent": field("User-Agent"),
    "other fields": field("X-Other"),
    "callback and errback": lambda request: (request.callback, request.errback),
    "cb_kwargs": lambda request: request.cb_kwargs,
    "meta": lambda request: request.meta.get("m"),
    "meta delay": lambda request: request.meta.get("delay"),
    "dont_filter": lambda request: request.dont_filter,
    "depth": lambda request: request.depth,
    "fragment": lambda request: request.url.partition("#")[2],
}


def test_every_row_of_the_table_is_checked() -> None:
    assert [row[0] for row in CARRIED[1:]] == list(READ)
    assert CARRIED[0] == ["What", "Same origin", "Other origin"]


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize("column", [1, 2], ids=["same-origin", "other-origin"])
def test_what_the_table_says_goes_along_goes_along_c10(what: str, column: int) -> None:
    said = next(row for row in CARRIED[1:] if row[0] == what)[column]
    request = a_request()
    target = redirected(request, (SAME, OTHER)[column - 1] + "#part", 302)
    before, after = READ[what](request), READ[what](target)
    assert before is not None
    assert after == {"carried": before, "dropped": None, "origin only": "https://a.example/"}[said]


@pytest.mark.parametrize("target", ["http://a.example/", "https://a.example:8443/", "https://www.a.example/"])
def test_another_scheme_port_or_host_is_another_origin_c10(target: str) -> None:
    assert "Authorization" not in redirected(a_request(), target, 302).headers


@pytest.mark.parametrize("row", METHODS[1:], ids=lambda row: row[0])
def test_the_method_of_the_target_is_what_the_table_says(row: list[str]) -> None:
    for before, after in zip(METHODS[0][1:], row[1:], strict=True):
        request = Request("https://a.example/", method=before, body=b"" if before in {"GET", "HEAD"} else b"x")
        for name in BODY_HEADERS:
            request.headers[name] = "y"
        target = redirected(request, SAME, int(row[0]))
        assert target.method == after
        is_changed = before != after
        assert target.body == (b"" if is_changed else request.body)
        assert [name for name in BODY_HEADERS if name in target.headers] == ([] if is_changed else list(BODY_HEADERS))


def test_the_page_names_the_fields_that_go_with_the_body() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [name for name in BODY_HEADERS if f"`{name}`" not in text] == []
