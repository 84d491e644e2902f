from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trawl.cookies import Cookie, Jar, Jars, RequestUrl, from_json, to_json
from trawl.cookies.jars import MAX_COOKIES, MAX_PER_DOMAIN, is_public_suffix
from trawl.http import Request, Response

NOW = datetime(2025, 1, 1, tzinfo=UTC)
URL = "https://www.a.example/dir/page"


def now_utc() -> datetime:
    return NOW


def jars_after(*set_cookies: str, url: str = URL, meta: dict[str, Any] | None = None, **options: Any) -> Jars:
    """Jars in which a site has set something."""
    jars = Jars(**options)
    request = Request(url, meta=meta)
    jars.store(request, Response(url, headers=[("Set-Cookie", text) for text in set_cookies]), now_utc)
    return jars


def header(jars: Jars, url: str = URL, at: float = 0.0, **options: Any) -> str | None:
    return jars.header(Request(url, **options), lambda: NOW + timedelta(seconds=at))


def test_what_a_site_sets_is_sent_back_to_it() -> None:
    jars = jars_after("a=1; Path=/", "b=2")
    assert header(jars) == "b=2; a=1"  # the longer path first
    assert header(jars, "https://www.a.example/other") == "a=1"
    assert header(jars, "https://b.example/") is None
    assert header(jars, "https://sub.www.a.example/dir/") is None


def test_cookies_of_equal_path_are_sent_oldest_first_6265bis_5_8_3() -> None:
    jars = jars_after("two=2; Domain=a.example; Path=/", "one=1; Path=/", "three=3; Domain=a.example; Path=/", "deep=4")
    assert header(jars) == "deep=4; two=2; one=1; three=3"


def test_a_cookie_that_is_set_again_is_as_old_as_before_6265bis_5_7() -> None:
    jars = jars_after("a=1; Path=/", "b=2; Domain=a.example; Path=/", "a=3; Path=/")
    assert header(jars) == "a=3; b=2"


@pytest.mark.parametrize("at", [30, 60])
def test_a_cookie_that_has_ended_or_was_taken_back_is_not_what_a_later_one_replaces(at: int) -> None:
    jars = jars_after("a=1; Path=/; Max-Age=60", "b=2; Path=/")
    end = ["a=; Path=/; Max-Age=0"] if at < 60 else []
    again = Response(URL, headers=[("Set-Cookie", text) for text in [*end, "a=3; Path=/"]])
    jars.store(Request(URL), again, lambda: NOW + timedelta(seconds=at))
    assert header(jars, at=at) == "b=2; a=3"


def test_a_cookie_of_the_host_and_one_of_its_domain_are_two_6265bis_5_7() -> None:
    jars = jars_after("a=1; Domain=www.a.example; Path=/", "a=2; Path=/", "a=; Path=/; Max-Age=0")
    assert header(jars) == "a=1"


def test_a_jar_is_read_in_the_order_in_which_its_cookies_were_made() -> None:
    jars = jars_after("b=1; Domain=a.example; Path=/", "a=1; Path=/", "c=1; Domain=a.example; Path=/")
    again = Jars()
    for name, cookie in from_json(to_json(jars, NOW)):
        again.add(cookie, name)
    assert header(again) == header(jars) == "b=1; a=1; c=1"


def test_a_stored_cookie_that_is_too_long_is_left_out() -> None:
    jars = Jars()
    jars.add(Cookie("a", "x" * 4095, "www.a.example"))
    jars.add(Cookie("b", "x" * 4096, "www.a.example"))
    jars.add(Cookie("c", "\u20ac" * 1366, "www.a.example"))  # 4,098 bytes of UTF-8
    assert [cookie.name for cookie in jars.jar()] == ["a"]


def test_a_domain_cookie_is_sent_below_its_domain() -> None:
    jars = jars_after("a=1; Domain=a.example; Path=/")
    assert header(jars, "https://a.example/") == "a=1"
    assert header(jars, "https://x.y.a.example/") == "a=1"
    assert header(jars, "https://ba.example/") is None


def test_a_secure_cookie_never_goes_over_plain_http() -> None:
    assert header(jars_after("a=1; Secure; Path=/"), "http://www.a.example/") is None


PLAIN = "http://www.a.example/dir/page"


@pytest.mark.parametrize("set_cookie", ["a=1; Secure; Path=/", "__Secure-a=1; Path=/; Secure", "__Host-a=1; Secure"])
def test_in_scrapys_way_a_secure_cookie_may_come_over_http_and_goes_to_https_alone(set_cookie: str) -> None:
    assert header(jars_after(set_cookie, url=PLAIN)) is None
    jars = jars_after(set_cookie, url=PLAIN, is_like_scrapy=True)
    assert (header(jars), header(jars, PLAIN) or "") == (set_cookie.partition(";")[0], "")


def test_in_scrapys_way_a_cookie_over_http_replaces_a_secure_one() -> None:
    jars = jars_after("a=1; Secure; Path=/", is_like_scrapy=True)
    jars.store(Request(PLAIN), Response(PLAIN, headers=[("Set-Cookie", "a=2; Path=/")]), now_utc)
    assert (header(jars), header(jars, PLAIN)) == ("a=2", "a=2")


@pytest.mark.parametrize(
    ("secure", "plain", "is_kept"),
    [
        ("a=1; Secure; Path=/", "a=2; Path=/", False),
        ("a=1; Secure; Path=/", "a=2", False),
        ("a=1; Secure; Path=/", "a=2; Domain=a.example; Path=/", False),
        ("a=1; Secure; Domain=a.example; Path=/", "a=2; Path=/dir", False),
        ("a=1; Secure; Path=/", "a=; Max-Age=0; Path=/", False),
        ("a=1; Secure; Path=/dir/deep", "a=2; Path=/", True),
        ("a=1; Secure; Path=/", "b=2; Path=/", True),
        ("a=1; Path=/", "a=2; Path=/", True),
    ],
)
def test_plain_http_leaves_secure_cookies_alone_6265bis_5_7(secure: str, plain: str, is_kept: bool) -> None:
    jars = jars_after(secure)
    before = sorted(jars.jar(), key=repr)
    jars.store(Request(PLAIN), Response(PLAIN, headers={"Set-Cookie": plain}), now_utc)
    assert (sorted(jars.jar(), key=repr) != before) is is_kept


@pytest.mark.parametrize(("at", "sent"), [(59, None), (60, "a=2")])
def test_a_secure_cookie_that_has_ended_protects_nothing(at: int, sent: str | None) -> None:
    jars = jars_after("a=1; Secure; Max-Age=60; Path=/")
    plain = Response(PLAIN, headers={"Set-Cookie": "a=2; Path=/"})
    jars.store(Request(PLAIN), plain, lambda: now_utc() + timedelta(seconds=at))
    assert header(jars, PLAIN, at=at) == sent


def test_https_replaces_a_secure_cookie() -> None:
    jars = jars_after("a=1; Secure; Path=/")
    jars.store(Request(URL), Response(URL, headers={"Set-Cookie": "a=2; Path=/"}), now_utc)
    assert header(jars) == "a=2"


def test_a_cookie_that_has_ended_is_not_sent() -> None:
    jars = jars_after("a=1; Max-Age=60")
    assert header(jars, at=59) == "a=1"
    assert header(jars, at=60) is None


def test_a_site_takes_a_cookie_back() -> None:
    jars = jars_after("a=1")
    jars.store(Request(URL), Response(URL, headers={"Set-Cookie": "a=; Max-Age=0"}), now_utc)
    assert header(jars) is None


def test_an_empty_jar_does_not_even_look_at_the_clock() -> None:
    def never() -> datetime:
        raise AssertionError

    jars = Jars()
    assert jars.header(Request(URL), never) is None
    jars.store(Request(URL), Response(URL), never)


def test_sessions_are_kept_apart_by_the_cookiejar_in_meta() -> None:
    jars = jars_after("a=1", meta={"cookiejar": 1})
    assert header(jars) is None
    assert header(jars, meta={"cookiejar": 2}) is None
    assert header(jars, meta={"cookiejar": 1}) == "a=1"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"a": "1", "b": 2, "c": None, "d": b"4"}, "a=1; b=2; d=4"),
        ([{"name": "a", "value": "1", "path": "/dir"}, {"name": "b", "value": "2"}], "a=1; b=2"),
        ([{"name": "a", "value": "1", "path": "/elsewhere"}], None),
        ([{"name": "a", "value": "1", "domain": ".a.example"}], "a=1"),
        ([{"name": "a", "value": "1", "domain": "b.example"}], None),
    ],
)
def test_a_request_brings_cookies_along(given: Any, sent: str | None) -> None:
    assert header(Jars(), cookies=given) == sent


def test_what_a_request_brought_along_is_sent_with_the_next_one_too() -> None:
    jars = Jars()
    header(jars, cookies={"a": "1"})
    assert header(jars, "https://www.a.example/other") == "a=1"


def test_dont_merge_cookies_keeps_the_request_out_of_the_jar() -> None:
    jars = jars_after("a=1; Path=/")
    meta = {"dont_merge_cookies": True}
    assert header(jars, meta=meta) is None
    assert header(jars, meta=meta, cookies={"b": "2"}) == "b=2"
    assert header(jars) == "a=1"
    jars.store(Request(URL, meta=meta), Response(URL, headers={"Set-Cookie": "c=3"}), now_utc)
    assert header(jars) == "a=1"


def test_a_field_of_the_request_goes_before_the_jar() -> None:
    jars = jars_after("a=1; Path=/", "b=2; Path=/")
    assert header(jars, headers={"Cookie": "a=mine"}) == "a=mine; b=2"


@pytest.mark.parametrize("given", [{"a": "1; b=2"}, {"a": "1\r\nX: y"}, {"a=b": "1"}])
def test_a_cookie_that_would_be_something_else_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="can't be sent"):
        header(Jars(), cookies=given)


def test_a_cookie_like_scrapys_goes_to_subdomains_and_stays_the_one_that_the_site_set() -> None:
    jars = jars_after("sid=1; Path=/", is_like_scrapy=True)
    assert header(jars, "https://sub.www.a.example/") == "sid=1"
    [cookie] = jars.of_page(Request(URL))
    assert cookie.is_host_only  # so a browser replaces it by what the site sets in the same way
    jars.add(Cookie("sid", "2", cookie.domain, "/", is_host_only=True, is_secure=True))
    assert header(jars) == "sid=2"
    jars.add(Cookie("sid", "3", cookie.domain, "/", is_host_only=False, is_secure=True))
    assert header(jars, "https://sub.www.a.example/") == "sid=3"


def test_jars_that_keep_nothing_send_what_is_brought_along() -> None:
    jars = jars_after("a=1", is_enabled=False)
    assert header(jars) is None
    assert header(jars, cookies={"b": "2"}) == "b=2"
    assert header(jars) is None


def test_a_site_fills_no_more_than_its_share_of_a_jar() -> None:
    jar = Jar()
    for number in range(MAX_PER_DOMAIN + 5):
        jar.store(Cookie(f"n{number}", "v", "a.example"), NOW)
    assert len(jar) == MAX_PER_DOMAIN
    assert "n0" not in {cookie.name for cookie in jar.matching(RequestUrl.from_url("https://a.example/"), NOW)}


def test_a_crawl_of_the_whole_web_keeps_a_bounded_jar() -> None:
    jar = Jar()
    for number in range(MAX_COOKIES + 5):
        jar.store(Cookie("a", "v", f"h{number}.example"), NOW)
    assert len(jar) == MAX_COOKIES
    assert jar.matching(RequestUrl.from_url("https://h0.example/"), NOW) == []
    assert len(jar.matching(RequestUrl.from_url(f"https://h{MAX_COOKIES}.example/"), NOW)) == 1


@pytest.mark.parametrize(
    ("domain", "is_public"),
    [
        ("com", True),
        ("localhost", True),
        ("co.uk", True),
        ("github.io", True),
        ("a.example", False),
        ("bbc.co.uk", False),
    ],
)
def test_the_public_suffix_list_is_read_from_the_package(domain: str, is_public: bool) -> None:
    assert is_public_suffix(domain) is is_public


# What a request brings along.


def test_cookies_given_for_https_are_secure_unless_they_say_otherwise() -> None:
    jars = Jars()
    named = [{"name": "b", "value": "2", "secure": False}, {"name": "c", "value": "3", "secure": True}]
    assert header(jars, cookies={"a": "1"}) == "a=1"
    assert header(jars, cookies=named) == "a=1; b=2; c=3"
    assert header(jars, PLAIN) == "b=2"
    assert header(Jars(), PLAIN, cookies={"a": "1"}) == "a=1"


@pytest.mark.parametrize(("host", "sent"), [("a.co.uk", None), ("co.uk", "a=1")])
def test_a_cookie_for_a_public_suffix_is_left_out(host: str, sent: str | None) -> None:
    jars = Jars()
    given = [{"name": "a", "value": "1", "domain": "co.uk"}]
    assert header(jars, f"http://{host}/", cookies=given) == sent
    assert header(jars, "http://b.co.uk/") is None


def test_a_cookie_without_a_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert header(Jars(), cookies=[{"value": "1"}, {"name": "b", "value": "2"}]) == "b=2"
    assert "a cookie without a name is not sent" in caplog.text


@pytest.mark.parametrize("value", ["\u00e9", "\u00e9".encode()])
def test_a_value_is_sent_as_utf_8(value: str | bytes) -> None:
    sent = header(Jars(), cookies={"a": value})
    assert sent is not None
    assert sent.encode("latin-1") == b"a=\xc3\xa9"


# In Scrapy's way. The expected values are those of its CookiesMiddleware.

SCRAPYS: list[tuple[str, list[dict[str, Any]], list[str | None]]] = [
    (
        "directory",
        [{"url": "/dir/page", "cookies": {"a": "1"}}, {"url": "/other"}, {"url": "/dir/x"}],
        ["a=1", None, "a=1"],
    ),
    ("another site", [{"url": "/", "cookies": [{"name": "a", "value": "1", "domain": "b.example"}]}], [None]),
    ("header", [{"url": "/", "headers": {"Cookie": "h=1"}}], [""]),
    ("header and cookies", [{"url": "/", "headers": {"Cookie": "h=1"}, "cookies": {"a": "1"}}], ["a=1"]),
    ("not merged", [{"url": "/", "cookies": {"a": "1"}, "meta": {"dont_merge_cookies": True}}], [None]),
    ("subdomain", [{"url": "/", "cookies": {"a": "1"}}, {"url": "http://x.www.a.example/"}], ["a=1", "a=1"]),
]


@pytest.mark.parametrize(("name", "steps", "sent"), SCRAPYS, ids=[row[0] for row in SCRAPYS])
def test_a_moved_spider_has_scrapys_cookies(name: str, steps: list[dict[str, Any]], sent: list[str | None]) -> None:
    jars = Jars(is_like_scrapy=True)
    site = "http://www.a.example"
    asked = [{**step, "url": step["url"] if "://" in step["url"] else site + step["url"]} for step in steps]
    assert [header(jars, **step) for step in asked] == sent


def test_a_moved_spiders_jars_that_keep_nothing_send_the_header_alone() -> None:
    jars = Jars(is_enabled=False, is_like_scrapy=True)
    assert header(jars, cookies={"a": "1"}, headers={"Cookie": "h=1"}) is None


def test_what_a_host_sets_for_itself_goes_to_its_subdomains_in_scrapys_way() -> None:
    jars = jars_after("a=1; Path=/", is_like_scrapy=True)
    assert header(jars, "https://x.www.a.example/") == "a=1"
    assert header(jars, "https://a.example/") is None
