from __future__ import annotations

import pickle
from typing import Any

import pytest

from trawl.http import FormRequest, JsonRequest, Request


def parse(response: object) -> None: ...


def failed(error: object) -> None: ...


FULL: dict[str, Any] = {
    "method": "POST",
    "headers": {"A": "1"},
    "body": b"x",
    "cookies": {"c": "1"},
    "meta": {"m": [1]},
    "cb_kwargs": {"k": 1},
    "priority": 3,
    "dont_filter": True,
    "errback": failed,
}


def told(request: Request) -> dict[str, Any]:
    """All that a request holds, by name."""
    return {name: getattr(request, name) for name in ("url", "callback", "depth", *FULL)}


def test_a_request_has_the_defaults_that_its_users_know() -> None:
    assert told(Request("http://a.example")) == {
        "url": "http://a.example/",
        "callback": None,
        "depth": 0,
        "method": "GET",
        "headers": {},
        "body": b"",
        "cookies": {},
        "meta": {},
        "cb_kwargs": {},
        "priority": 0,
        "dont_filter": False,
        "errback": None,
    }


def test_a_request_holds_what_it_is_given() -> None:
    request = Request("http://a.example/", parse, **FULL)
    assert told(request) == {"url": "http://a.example/", "callback": parse, "depth": 0, **FULL}
    assert repr(request) == "<POST http://a.example/>"


def test_a_method_is_put_in_upper_case_and_a_body_in_bytes() -> None:
    request = Request("http://a.example/", method="patch", body="é")
    assert (request.method, request.body) == ("PATCH", b"\xc3\xa9")
    assert Request("http://a.example/", body=bytearray(b"x")).body == b"x"  # type: ignore[arg-type]


def test_what_a_request_is_given_is_copied() -> None:
    meta, cookies = {"a": 1}, [{"name": "c", "value": "1"}]
    request = Request("http://a.example/", meta=meta, cb_kwargs=meta, cookies=cookies)
    request.meta["b"] = request.cb_kwargs["b"] = 2
    cookies.clear()
    assert meta == {"a": 1}
    assert request.cookies == [{"name": "c", "value": "1"}]


def test_what_a_request_makes_on_first_use_stays() -> None:
    request = Request("http://a.example/")
    request.meta["a"] = request.cb_kwargs["a"] = 1
    request.headers["A"] = "1"
    assert request.meta == request.cb_kwargs == {"a": 1}
    assert request.headers == {"A": "1"}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"method": "GET /\r\n"}, r"'GET /\\r\\n' is not an HTTP method"),
        ({"method": ""}, "'' is not an HTTP method"),
        ({"headers": {"A": "b\nc"}}, "the header 'A' contains a control character"),
        ({"base": "b"}, "the link 'http://a.example/' on 'b' is not a valid URL"),
    ],
)
def test_a_wrong_value_is_refused_when_the_request_is_made(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Request("http://a.example/", **wrong)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"callback": "parse"}, "callback must be a function or None, not 'parse'"),
        ({"errback": 1}, "errback must be a function or None, not 1"),
        ({"priority": "high"}, "priority must be an int, not 'high'"),
        ({"method": b"GET"}, "a method must be a str, not bytes"),
        ({"body": 1}, "a body must be bytes or str, not int"),
        ({"encoding_": "x"}, "encoding_"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        Request("http://a.example/", **wrong)


def test_a_relative_url_needs_a_base() -> None:
    with pytest.raises(ValueError, match="'/b' is not an absolute URL"):
        Request("/b")
    assert Request("/b", base="http://a.example/x").url == "http://a.example/b"


@pytest.mark.parametrize("url", ["mailto:a@b", "ftp://a.example/", "javascript:void(0)", "data:,x"])
def test_a_request_may_have_any_scheme(url: str) -> None:
    assert Request(url).url == url


def test_replace_changes_only_what_it_is_told() -> None:
    request = Request("http://a.example/", parse, **FULL)
    request.depth = 4
    other = request.replace(url="http://b.example", priority=5)
    assert told(other) == {**told(request), "url": "http://b.example/", "priority": 5}
    other.meta["x"] = other.cb_kwargs["x"] = 1
    other.headers["X"] = "1"
    assert told(request) == {"url": "http://a.example/", "callback": parse, "depth": 4, **FULL}


def test_replace_refuses_what_a_request_does_not_have() -> None:
    with pytest.raises(TypeError, match="colour"):
        Request("http://a.example/").replace(colour="red")  # type: ignore[call-overload]


def test_a_copy_is_independent_and_keeps_its_class() -> None:
    class Special(Request):
        pass

    request = Special("http://a.example/", meta={"a": 1})
    other = request.copy()
    other.meta["a"] = 2
    assert (type(other), request.meta) == (Special, {"a": 1})


def test_a_request_can_be_pickled() -> None:
    request = Request("http://a.example/", parse, **FULL)
    assert told(pickle.loads(pickle.dumps(request))) == told(request)


def test_json_sends_the_payload_as_json() -> None:
    request = Request.json("http://a.example/", {"b": [1, None], "a": "é"}, parse, priority=1)
    assert (request.method, request.callback, request.priority) == ("POST", parse, 1)
    assert request.headers == {"Content-Type": "application/json"}
    assert request.body == '{"a":"é","b":[1,null]}'.encode()


def test_json_keeps_a_method_and_a_content_type_of_its_own() -> None:
    request = Request.json("http://a.example/", [], method="put", headers={"Content-Type": "application/x+json"})
    assert (request.method, request.headers["content-type"]) == ("PUT", "application/x+json")
    with pytest.raises(TypeError):
        Request.json("http://a.example/", object())


def test_form_sends_the_fields_as_a_form() -> None:
    request = Request.form("http://a.example/", {"a": "b c", "d": ["1", "2"]}, parse)
    assert (request.method, request.body, request.callback) == ("POST", b"a=b+c&d=1&d=2", parse)
    assert request.headers == {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_form_sent_by_get_takes_the_place_of_the_query() -> None:
    request = Request.form("http://a.example/s?old=1#f", {"q": "é"}, method="GET")
    assert (request.url, request.body) == ("http://a.example/s?q=%C3%A9", b"")
    assert "Content-Type" not in request.headers
    assert repr(request.cookies) == repr(Request(request.url).cookies) == "{}"


def test_one_key_of_meta_is_read_without_making_a_dictionary() -> None:
    request = Request("http://a.example/")
    assert request.meta_get("a", 1) == 1
    assert request._meta is None
    request.meta["a"] = 2
    assert (request.meta_get("a", 1), request.meta_get("b")) == (2, None)


class Tagged(Request):
    """A subclass with a constructor and attributes of its own."""

    __slots__ = ("tag",)

    def __init__(self, tag: str, number: int) -> None:
        super().__init__(f"http://a.example/{number}", meta={"number": number})
        self.tag = tag


class Noted(Tagged):
    note = ""


def test_a_subclass_with_a_constructor_of_its_own_can_be_replaced() -> None:
    request = Noted("a", 1)
    request.note = "seen"
    request.depth = 3
    changed = request.replace(url="http://b.example/", priority=2)
    assert type(changed) is Noted
    assert (changed.tag, changed.note, changed.depth) == ("a", "seen", 3)
    assert (changed.url, changed.priority, changed.meta) == ("http://b.example/", 2, {"number": 1})
    assert changed.meta is not request.meta


def test_a_query_and_a_body_of_text_may_be_in_another_encoding() -> None:
    request = Request("http://a.example/é?q=é&r=€#é", method="POST", body="é", encoding="latin-1")
    assert request.url == "http://a.example/%C3%A9?q=%E9&r=%26%238364%3B#%C3%A9"
    assert request.body == b"\xe9"
    assert request.replace(body="é", encoding="cp1252").body == b"\xe9"
    assert Request("http://a.example/?q=é", body=b"\xff", encoding="UTF-8").url == "http://a.example/?q=%C3%A9"
    with pytest.raises(ValueError, match="there is no encoding 'klingon'"):
        Request("http://a.example/", encoding="klingon")


def test_headers_and_cookies_may_be_set_before_a_request_is_given() -> None:
    request = Request("http://a.example/", headers={"A": "1"}, cookies={"a": "1"})
    request.headers = {"B": "2"}
    request.cookies = [{"name": "b", "value": "2"}]
    assert (dict(request.headers), request.cookies) == ({"B": "2"}, [{"name": "b", "value": "2"}])
    copy = request.copy()
    assert (copy.headers.get("B"), copy.cookies) == ("2", request.cookies)
    request.headers = None
    request.cookies = None
    assert (len(request.headers), request.cookies) == (0, {})
    request.headers["C"] = "3"
    assert request.copy().headers.get("C") == "3"


def test_flags_are_refused_with_what_to_write() -> None:
    with pytest.raises(TypeError, match="use meta instead"):
        Request("http://a.example/", flags=["x"])  # type: ignore[arg-type]


def test_a_request_can_be_replaced_by_one_of_another_class() -> None:
    request = Request("http://a.example/", meta={"x": 1}, priority=3)
    form = request.replace(cls=FormRequest, method="POST", formdata={"a": "1"})
    assert type(form) is FormRequest
    assert (form.method, form.body, form.meta, form.priority) == ("POST", b"a=1", {"x": 1}, 3)
    assert type(form.replace(cls=Request)) is Request
    assert form.replace(cls=Request).body == b"a=1"
    assert type(form.replace(cls=None)) is FormRequest
    asked = request.replace(cls=JsonRequest, data={"a": 1})
    assert (asked.method, asked.body) == ("GET", b"")  # as in Scrapy: the method and the body of the request stay


@pytest.mark.parametrize("url", ["http://a.example", "HTTP://A.Example", "//a.example", " https://a.example:8443 "])
def test_a_request_remembers_a_url_that_was_written_without_a_path(url: str) -> None:
    request = Request(url, base="http://b.example/x")
    assert request.url.endswith("/")
    assert request.written_url == request.url[:-1]
    assert request.replace(priority=1).written_url == request.written_url
    assert request.replace(url="http://c.example/").written_url == "http://c.example/"
    assert request.replace(url="http://c.example").written_url == "http://c.example"


@pytest.mark.parametrize("url", ["http://a.example/", "", "/", "x/", "http://a.example?q=/", "mailto:a@b.example"])
def test_any_other_url_is_what_it_is(url: str) -> None:
    request = Request(url, base="http://b.example/x/")
    assert (request.written_url, request.lacks_path) == (request.url, False)


@pytest.mark.parametrize(
    ("cookies", "words"),
    [
        ({"a": "1; b=2"}, "the cookie 'a' can't be sent: ';' in its value"),
        ({"a": "1\r\nX: y"}, "the cookie 'a' can't be sent: '\\r' in its value"),
        ({"a": b"1\n"}, "the cookie 'a' can't be sent: '\\n' in its value"),
        ({"a": "\x00"}, "the cookie 'a' can't be sent: '\\x00' in its value"),
        ({"a": "\ud800"}, "the cookie 'a' can't be sent: '\\ud800' in its value"),
        ({"a=b": "1"}, "the cookie 'a=b' can't be sent: '=' in its name"),
        ({"a;": "1"}, "the cookie 'a;' can't be sent: ';' in its name"),
        ([{"name": "a", "value": "1;"}], "the cookie 'a' can't be sent: ';' in its value"),
    ],
)
def test_a_cookie_that_would_be_something_else_is_refused_where_it_is_made(cookies: Any, words: str) -> None:
    for make in (
        lambda: Request("http://a.example/", cookies=cookies),
        lambda: Request("http://a.example/").replace(cookies=cookies),
        lambda: setattr(Request("http://a.example/"), "cookies", cookies),
    ):
        with pytest.raises(ValueError, match=r"can't be sent") as raised:
            make()
        assert str(raised.value).startswith(words)


@pytest.mark.parametrize("cookies", ["a=1; b=2", ["a=1"], {"a": ["1"]}, {"a": {"b": 1}}])
def test_cookies_of_another_type_are_refused_too(cookies: Any) -> None:
    with pytest.raises(TypeError):
        Request("http://a.example/", cookies=cookies)


def test_what_browsers_send_is_a_cookie() -> None:
    cookies: Any = {"a": 'say "hi", \\ ü', "cart[1]": 5, "none": None, "b": b"\xff", "c": True, "d": ""}
    assert Request("http://a.example/", cookies=cookies).cookies == cookies


@pytest.mark.parametrize("priority", ["", "5", None, 1.5, 0.0])
def test_a_priority_that_is_no_int_is_refused(priority: Any) -> None:
    with pytest.raises(TypeError, match="priority must be an int"):
        Request("http://a.example/", priority=priority)
