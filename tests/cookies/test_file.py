"""Cookies as JSON and as cookies.txt: what is written is read as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http.cookiejar import MozillaCookieJar
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.cookies import Cookie, Jars, from_json, from_netscape, is_netscape, to_json, to_netscape

NOW = datetime(2025, 1, 1, tzinfo=UTC)

TEXT = st.text(st.characters(max_codepoint=0xFF, exclude_categories=["Cc"]), min_size=1, max_size=20)
COOKIES = st.builds(
    Cookie,
    TEXT,
    TEXT,
    st.sampled_from(["a.example", "b.example"]),
    st.sampled_from(["/", "/x"]),
    is_host_only=st.booleans(),
    is_secure=st.booleans(),
    expires_utc=st.none() | st.integers(1, 10_000).map(lambda seconds: NOW + timedelta(seconds=seconds)),
)


@given(st.lists(st.tuples(st.none() | st.text(max_size=5) | st.integers(-5, 5), COOKIES), max_size=8))
def test_json_has_every_jar_as_it_was(kept: list[tuple[str | int | None, Cookie]]) -> None:
    jars, again = Jars(), Jars()
    for name, cookie in kept:
        jars.add(cookie, name)
    for read, cookie in from_json(to_json(jars, NOW)):
        again.add(cookie, read)
    assert {name: set(jar) for name, jar in again.items()} == {name: set(jar) for name, jar in jars.items()}


@given(st.lists(COOKIES, max_size=8))
def test_a_cookies_txt_is_read_as_it_was_written(cookies: list[Cookie]) -> None:
    assert list(from_netscape(to_netscape(cookies, NOW))) == cookies


def test_what_has_expired_is_not_written() -> None:
    jars = Jars()
    jars.add(Cookie("old", "1", "a.example", expires_utc=NOW))
    jars.add(Cookie("new", "1", "a.example"))
    assert [cookie.name for _, cookie in from_json(to_json(jars, NOW))] == ["new"]
    assert b"old" not in to_netscape(jars.jar(), NOW)


def test_a_jar_under_a_name_that_json_has_not_is_left_out() -> None:
    jars = Jars()
    jars.add(Cookie("a", "1", "a.example"), ("a", "tuple"))
    assert list(from_json(to_json(jars, NOW))) == []


def test_pythons_own_reader_reads_our_cookies_txt_and_we_read_its(tmp_path: Path) -> None:
    cookie = Cookie("id", "7", "a.example", "/x", is_host_only=False, is_secure=True, expires_utc=NOW + timedelta(9e4))
    path = tmp_path / "cookies.txt"
    path.write_bytes(to_netscape([cookie], NOW))
    jar = MozillaCookieJar(str(path))
    jar.load()
    (read,) = jar
    assert (read.name, read.value, read.domain, read.path, read.secure) == ("id", "7", ".a.example", "/x", True)
    jar.save()
    assert list(from_netscape(path.read_bytes())) == [cookie]


def test_a_file_of_curls_is_read() -> None:
    text = (
        b"# Netscape HTTP Cookie File\n# https://curl.se/docs/http-cookies.html\n\n"
        b"#HttpOnly_.a.example\tTRUE\t/\tTRUE\t0\tid\t7\nb.example\tFALSE\t/\tFALSE\t1893456000\tempty\t\n"
    )
    first, second = from_netscape(text)
    assert first == Cookie("id", "7", "a.example", is_host_only=False, is_secure=True, is_http_only=True)
    assert (second.name, second.value, second.is_host_only) == ("empty", "", True)


def test_a_value_that_is_not_ascii_goes_out_with_the_bytes_that_are_in_the_file() -> None:
    line = "a.example\tFALSE\t/\tFALSE\t0\tid\tcaf\u00e9 \u0085x".encode()
    (cookie,) = from_netscape(line + b"\n")
    assert cookie.pair.encode("latin-1") == "id=caf\u00e9 \u0085x".encode()
    assert line in to_netscape([cookie], NOW)


@pytest.mark.parametrize("text", [b"a.example\tTRUE", b"a\tb\tc\td\tnever\tname\tvalue", b"{}"])
def test_a_line_that_is_no_cookie_is_named(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 2 does not have the seven fields, between tabs, of a cookies\.txt"):
        list(from_netscape(b"# comment\n" + text))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"trawl_cookies": 2, "jars": []}',
        b'{"trawl_cookies": 1, "jars": [{"name": null, "cookies": [{}]}]}',
        b'{"trawl_cookies": 1, "jars": [{"name": null, "cookies": [{"name": 1, "value": 2, "domain": 3, "path": 4}]}]}',
        b'{"trawl_cookies": 1, "jars": 5}',
    ],
)
def test_what_is_no_file_of_cookies_is_refused(text: bytes) -> None:
    said = r"it is not a file of cookies: its JSON has|of cookies: not JSON: |only 1 is known|are strings"
    with pytest.raises(ValueError, match=said) as caught:
        list(from_json(text))
    assert "Error(" not in str(caught.value)


def test_the_ending_says_the_format() -> None:
    assert is_netscape("a/Cookies.TXT")
    assert not is_netscape("cookies.json")


@pytest.mark.parametrize("is_netscape", [True, False])
def test_a_cookie_that_scripts_must_not_see_is_kept_from_them_after_a_restart(is_netscape: bool) -> None:
    cookie = Cookie("id", "7", "a.example", is_http_only=True, same_site="" if is_netscape else "lax")
    jars = Jars()
    jars.add(cookie)
    if is_netscape:
        assert list(from_netscape(to_netscape([cookie], NOW))) == [cookie]
    else:
        assert list(from_json(to_json(jars, NOW))) == [(None, cookie)]
