from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.cookies import Cookie, RequestUrl, parse_set_cookie

NOW = datetime(2025, 1, 1, tzinfo=UTC)
PUBLIC = {"com", "example", "co.uk", "github.io"}


def read(text: str, url: str = "https://www.a.example/dir/page?q=1") -> Cookie | None:
    return parse_set_cookie(text, RequestUrl.from_url(url), NOW, PUBLIC.__contains__)


@pytest.mark.parametrize(
    ("url", "host", "path", "is_secure"),
    [
        ("https://www.a.example/dir/page?q=/x#/y", "www.a.example", "/dir/page", True),
        ("http://u:p@a.example:8080/", "a.example", "/", False),
        ("http://[::1]:80/a", "[::1]", "/a", False),
        ("http://a.example./", "a.example", "/", False),
    ],
)
def test_the_place_of_a_url_is_its_host_and_path(url: str, host: str, path: str, is_secure: bool) -> None:
    assert RequestUrl.from_url(url) == RequestUrl(host, path, is_secure)


def test_a_plain_cookie_is_for_its_host_and_directory() -> None:
    assert read(" a = b=c ; HttpOnly") == Cookie(
        "a", "b=c", "www.a.example", "/dir", is_host_only=True, is_http_only=True
    )


@pytest.mark.parametrize(
    ("domain", "kept"),
    [
        ("www.a.example", ("www.a.example", False)),
        (".A.example", ("a.example", False)),
        ("", ("www.a.example", True)),
        ("b.example", None),
        ("w.a.example", None),
        ("x.www.a.example", None),
        ("example", None),
    ],
)
def test_a_domain_is_the_host_or_above_it_but_nobody_elses(domain: str, kept: tuple[str, bool] | None) -> None:
    cookie = read(f"a=b; Domain={domain}")
    assert (None if cookie is None else (cookie.domain, cookie.is_host_only)) == kept


def test_a_public_suffix_sets_cookies_for_itself_only() -> None:
    cookie = read("a=b; Domain=github.io", "https://github.io/")
    assert cookie is not None
    assert cookie.is_host_only
    assert read("a=b; Domain=github.io", "https://me.github.io/") is None


@pytest.mark.parametrize(("domain", "is_kept"), [("127.0.0.1", True), ("0.0.1", False)])
def test_an_address_has_no_domain_above_it(domain: str, is_kept: bool) -> None:
    assert (read(f"a=b; Domain={domain}", "http://127.0.0.1/") is not None) is is_kept


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ("Max-Age=60", 60),
        ("Max-Age=60; Expires=Wed, 01 Jan 2020 00:00:00 GMT", 60),
        ("Expires=Wed, 01 Jan 2025 00:01:00 GMT", 60),
        ("Max-Age=0", 0),
        ("Max-Age=-5", 0),
        ("Max-Age=99999999999999999999", 400 * 86_400),
        ("Expires=Wed, 01 Jan 2999 00:00:00 GMT", 400 * 86_400),
    ],
)
def test_a_cookie_ends_when_it_says_so(attributes: str, seconds: int) -> None:
    cookie = read(f"a=b; {attributes}")
    assert cookie is not None
    assert cookie.expires_utc == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("attributes", ["Max-Age=soon", "Expires=soon", "Max-Age=1.5", ""])
def test_a_cookie_without_an_end_lasts_the_crawl(attributes: str) -> None:
    cookie = read(f"a=b; {attributes}")
    assert cookie is not None
    assert cookie.expires_utc is None


@pytest.mark.parametrize("text", ["", ";", "=", "; Path=/", "a=b\x01", "a=b\x7f", "a=" + "b" * 4096])
def test_what_is_no_cookie_is_not_kept(text: str) -> None:
    assert read(text) is None


def test_plain_http_sets_no_secure_cookie() -> None:
    assert read("a=b; Secure", "http://a.example/") is None
    assert read("a=b; Secure") is not None


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("__Secure-a=b; Secure", True),
        ("__Secure-a=b", False),
        ("__Host-a=b; Secure; Path=/", True),
        ("__Host-a=b; Secure", False),
        ("__Host-a=b; Secure; Path=/; Domain=www.a.example", False),
        ("__host-a=b; Path=/", False),
    ],
)
def test_a_name_that_promises_something_is_held_to_it(text: str, is_kept: bool) -> None:
    assert (read(text) is not None) is is_kept


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("__Host-a=b; Secure", False),  # that its default path is "/" is no promise
        ("__HOST-a=b; Secure; Path=/", True),
        ("=__Host-a=b; Secure; Path=/", False),  # it would be sent as "__Host-a=b"
        ("__Secure-a; Secure", False),
        ("=__secure-a; Secure", False),
        ("=plain; Secure", True),
    ],
)
def test_a_promise_is_made_in_words_and_under_a_name_6265bis_5_7(text: str, is_kept: bool) -> None:
    assert (read(text, "https://a.example/") is not None) is is_kept


@pytest.mark.parametrize(
    ("path", "url", "is_sent"),
    [
        ("/dir", "https://a.example/dir", True),
        ("/dir", "https://a.example/dir/x", True),
        ("/dir/", "https://a.example/dir/x", True),
        ("/dir", "https://a.example/directory", False),
        ("/", "https://a.example/x", True),
        ("/dir/", "https://a.example/dir", False),
    ],
)
def test_a_path_covers_itself_and_what_is_below_it(path: str, url: str, is_sent: bool) -> None:
    assert Cookie("a", "b", "a.example", path).is_sent_to(RequestUrl.from_url(url)) is is_sent


@given(st.text(max_size=80))
def test_no_field_breaks_the_parser(text: str) -> None:
    cookie = read(text)
    assert cookie is None or cookie.domain == "www.a.example" or "www.a.example".endswith("." + cookie.domain)


LATER = "Expires=Wed, 01 Jan 2025 00:01:00 GMT"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (f"Path=/{'x' * 1023}", f"/{'x' * 1023}"),
        (f"Path=/{'x' * 1024}", "/dir"),
        (f"Path=/a; Path=/{'x' * 1024}", "/a"),
        (f"Path=/a; {'x' * 2000}=1", "/a"),
        (f"Domain={'x' * 1025}; Path=/a", "/a"),
        ("Path=/a; Path=b", "/dir"),
    ],
)
def test_an_attribute_of_more_than_1024_bytes_does_not_count_6265bis_5_6(attributes: str, expected: str) -> None:
    cookie = read(f"a=b; {attributes}")
    assert cookie is not None
    assert cookie.path == expected


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ("Max-Age=60; Max-Age=x", 60),
        ("Max-Age=x; Max-Age=60", 60),
        ("Max-Age=90; Max-Age=60", 60),
        (f"{LATER}; Expires=never", 60),
        (f"Expires=Wed, 01 Jan 2025 00:01:30 GMT; {LATER}", 60),
        (f"Max-Age={'6' * 1025}; {LATER}", 60),
        (f"{LATER}; Max-Age=", 60),
    ],
)
def test_the_last_valid_attribute_of_a_name_counts_6265bis_5_6(attributes: str, seconds: int) -> None:
    cookie = read(f"a=b; {attributes}")
    assert cookie is not None
    assert cookie.expires_utc == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("attribute", "same_site"),
    [("SameSite=Lax", "lax"), ("samesite= STRICT ", "strict"), ("SameSite=None", "none"), ("SameSite=x", ""), ("", "")],
)
def test_the_attributes_for_rendered_pages_are_read(attribute: str, same_site: str) -> None:
    cookie = read(f"a=b; HttpOnly; {attribute}")
    assert cookie is not None
    assert cookie.is_http_only
    assert cookie.same_site == same_site
