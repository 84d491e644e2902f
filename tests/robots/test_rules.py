"""Rules against URLs: RFC 9309, 2.2.2 and 2.2.3, and a second matcher made of regular expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trawl.robots import RobotsFile

BASE = "https://h.example"


def allows(rules: str, path: str) -> bool:
    """Whether a path may be fetched with these rules of ours."""
    return RobotsFile.parse(200, f"User-agent: trawl\n{rules}\n".encode(), "trawl").allows(BASE + path)


def forbids(rule: str, path: str) -> bool:
    return not allows(f"Disallow: {rule}", path)


@pytest.mark.parametrize(
    ("rules", "path", "is_allowed"),
    [
        ("Disallow: /search\nAllow: /*?p=", "/search?p=1", False),
        ("Disallow: /private\nAllow: /*?a=b", "/private?a=b", False),
        ("Allow: /css/\nDisallow: /*?*", "/css/a.css?v=1", True),
        ("Disallow: /*?\nAllow: /css", "/css?v=1", True),
        ("Disallow: /a\nAllow: /a", "/a", True),
        ("Allow: /p$\nDisallow: /pa", "/p", True),
        ("Allow: /a*\nDisallow: /ab", "/ab", True),
        ("Allow: /a**\nDisallow: /abc", "/abc", True),
        ("Allow: /%7Ejoe\nDisallow: /~joe", "/~joe", True),
        ("Disallow: /%7Ejoe\nAllow: /~joe", "/~joe", False),
    ],
)
def test_the_rule_with_the_most_octets_as_written_wins_rfc_9309_2_2_2(rules: str, path: str, is_allowed: bool) -> None:
    assert allows(rules, path) is is_allowed


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar?baz=https%3a%2f%2Ffoo.bar", "/foo/bar?baz=https://foo.bar"),
        ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7A"),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html"),
        ("/path/foo-%24", "/path/foo-$"),
        ("/a$b", "/a$b"),
        ("/a b", "/a%20b"),
        ("/{id}", "/%7Bid%7D"),
        ("/x?q='a'", "/x?q=%27a%27"),
        ("*.pdf", "/x.pdf"),
        ("*", "/"),
        ("/*$", "/anything"),
        ("/?", "?x"),
        ("/a*b*c$", "/a-b-b-c-c"),
    ],
)
def test_what_is_compared_is_the_same_resource_rfc_9309_2_2_2(rule: str, path: str) -> None:
    assert forbids(rule, path)


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/a/b", "/a%2Fb"),
        ("/a%2Fb", "/a/b"),
        ("/a%3Db", "/a=b"),
        ("/a$", "/a$"),
        ("/x$", "/x?y"),
        ("a", "/a"),
        ("https://h.example/a", "/a"),
        ("$", "/"),
        ("/A", "/a"),
        ("/a*b*c$", "/a-b-c-"),
        ("/a*b$", "/ab/"),
    ],
)
def test_what_is_compared_is_another_resource(rule: str, path: str) -> None:
    assert not forbids(rule, path)


def as_pattern(rule: str) -> re.Pattern[str]:
    """The rule as a regular expression."""
    parts = re.escape(rule.removesuffix("$")).replace(r"\*", ".*")
    return re.compile(parts + ("$" if rule.endswith("$") else ""), re.DOTALL)


RULES = st.lists(st.tuples(st.booleans(), st.text("ab/*$?", max_size=8).map(lambda rest: f"/{rest}")), max_size=12)


@given(RULES, st.text("ab/?", max_size=12).map(lambda rest: f"/{rest}"))
@example([(False, "/a*ab$")], "/aab")
@example([(False, "/*a*a$")], "/a")
def test_it_decides_as_regular_expressions_do(rules: list[tuple[bool, str]], path: str) -> None:
    rules = [(is_allowed, rule) for is_allowed, rule in rules if "$" not in rule[:-1]]
    best = max(((len(rule), allow) for allow, rule in rules if as_pattern(rule).match(path)), default=(0, True))
    text = "\n".join(f"{'Allow' if allow else 'Disallow'}: {rule}" for allow, rule in rules)
    assert allows(text, path) is best[1]


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_rule_and_no_url_is_too_strange_to_compare(rule: str, path: str) -> None:
    allows(f"Disallow: /{rule}", f"/{path}")
