"""Requests made of curl commands."""

from __future__ import annotations

import pytest

from trawl.http import Request


def test_a_command_copied_from_a_browser_makes_its_request() -> None:
    request = Request.from_curl(
        r"""curl 'https://a.example/api?x=1' \
  -H 'Accept: application/json' -H 'Cookie: session=a1b2; theme=dark=1' \
  -H 'X-Empty;' -H 'Referer:' --data-raw $'{"text":"it\'s \u00fc\n"}' --compressed""",
        cb_kwargs={"page": 1},
    )
    assert (request.method, request.url) == ("POST", "https://a.example/api?x=1")
    assert request.headers.items_list() == [
        ("Accept", "application/json"),
        ("X-Empty", ""),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    assert request.cookies == {"session": "a1b2", "theme": "dark=1"}
    assert request.body == '{"text":"it\'s ü\n"}'.encode()
    assert request.cb_kwargs == {"page": 1}


@pytest.mark.parametrize(
    ("command", "method", "url", "body"),
    [
        ("curl a.example", "GET", "http://a.example/", b""),
        ("curl -X put https://a.example/x -d a=1 -d b=2", "PUT", "https://a.example/x", b"a=1&b=2"),
        ("curl -G https://a.example/x --data-urlencode 'q=a b' -d c=1", "GET", "https://a.example/x?q=a+b&c=1", b""),
        ("curl -I https://a.example/", "HEAD", "https://a.example/", b""),
        ("curl https://a.example/ --json '{\"a\": 1}'", "POST", "https://a.example/", b'{"a": 1}'),
        ("curl -sSL https://a.example/ -d $'a\\x41\\\\n\\q'", "POST", "https://a.example/", b"aA\\nq"),
    ],
)
def test_what_is_asked_for(command: str, method: str, url: str, body: bytes) -> None:
    request = Request.from_curl(command)
    assert (request.method, request.url, request.body) == (method, url, body)


def test_who_asks() -> None:
    request = Request.from_curl("curl https://a.example/ -u me:secret -A agent/1 -e https://b.example/ -b 'a=1; b=2'")
    assert request.headers.items_list() == [
        ("Authorization", "Basic bWU6c2VjcmV0"),
        ("User-Agent", "agent/1"),
        ("Referer", "https://b.example/"),
    ]
    assert request.cookies == {"a": "1", "b": "2"}
    assert Request.from_curl("curl https://a.example/ --json {}").headers["content-type"] == "application/json"


def test_options_that_are_not_understood_are_told() -> None:
    with pytest.warns(UserWarning, match="ignored options of curl: --proxy"):
        assert Request.from_curl("curl https://a.example/ --proxy=http://p").url == "https://a.example/"
    with pytest.raises(ValueError, match="unknown options of curl: --proxy"):
        Request.from_curl("curl https://a.example/ --proxy=http://p", ignore_unknown_options=False)


@pytest.mark.parametrize("command", ["wget https://a.example/", "", "curl", "curl -H"])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="curl"):
        Request.from_curl(command)
