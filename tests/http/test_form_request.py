"""Forms as browsers send them."""

from __future__ import annotations

from typing import Any

import pytest

from trawl.http import FormRequest, HtmlResponse, Request, Response

URL = "http://a.example/"

LOGIN = """
<html><body>
<form action="/search" name="search"><input name="q"></form>
<form action="/login?next=1" method="post" id="login">
  <input type="hidden" name="token" value="t&amp;1"><input name="user"><input type="password" name="password">
  <input type="checkbox" name="keep" checked><input type="checkbox" name="news" value="yes">
  <input type="radio" name="kind" value="a"><input type="radio" name="kind" value="b" checked>
  <select name="lang"><option value="en">English<option selected>German
</select>
  <select name="first"><option disabled value="no">Choose<option value="1">One</select>
  <select name="many" multiple><option selected value="x"><option selected value="y"><option value="z"></select>
  <textarea name="text">
line</textarea>
  <input name="off" disabled value="1"><fieldset disabled><input name="also_off" value="1"></fieldset>
  <input type="file" name="file"><input type="reset" name="reset"><input value="no name">
  <button name="do" value="log in">Log in</button><input type="submit" name="do" value="cancel">
  <button type="button" name="never" value="1">x</button>
</form>
<div id="third"><form><span class="deep"><input name="c" value="3"></span></form></div>
<input form="login" name="outside" value="o">
</body></html>
"""


def page(body: str = LOGIN, encoding: str = "utf-8") -> Response:
    headers = {"Content-Type": f"text/html; charset={encoding}"}
    return Response("http://a.example/dir/page?x=1", headers=headers, body=body.encode(encoding))


def sent(request: Request) -> str:
    return request.body.decode()


def test_fields_are_sent_as_a_form() -> None:
    request = FormRequest("http://a.example/", formdata={"a": "1 ü", "b": ["2", "3"], "c": None})
    assert (request.method, sent(request)) == ("POST", "a=1+%C3%BC&b=2&b=3")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert FormRequest("http://a.example/").method == "GET"
    asked = FormRequest("http://a.example/?old=1#x", formdata=[("q", "ü")], method="GET", encoding="latin-1")
    assert (asked.url, asked.body) == ("http://a.example/?q=%FC", b"")
    posted = FormRequest("http://a.example/?q=ü", formdata={"a": "ü"}, encoding="latin-1")
    assert (posted.url, sent(posted)) == ("http://a.example/?q=%FC", "a=%FC")
    assert isinstance(request.replace(priority=1), FormRequest)
    assert sent(request.replace(priority=1)) == sent(request)


def test_a_form_of_a_page_is_sent_with_all_that_is_in_it() -> None:
    request = FormRequest.from_response(page(), formid="login", formdata={"user": "me", "password": "secret"})
    assert (request.method, request.url) == ("POST", "http://a.example/login?next=1")
    assert sent(request).split("&") == [
        "token=t%261",
        "keep=on",
        "kind=b",
        "lang=German",
        "first=1",
        "many=x",
        "many=y",
        "text=line",
        "file=",
        "outside=o",
        "do=log+in",
        "user=me",
        "password=secret",
    ]


def test_a_field_may_be_changed_taken_away_or_added() -> None:
    request = FormRequest.from_response(
        page(), "no such name", "login", formdata=[("token", "2"), ("kind", None), ("lang", ["a", "b"]), ("new", 1)],
        dont_click=True,
    )  # fmt: skip
    assert "token=2&lang=a&lang=b&new=1" in sent(request)
    assert not {"kind", "do"} & {pair.partition("=")[0] for pair in sent(request).split("&")}


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({}, "http://a.example/search?q="),
        ({"formname": "search"}, "http://a.example/search?q="),
        ({"formnumber": 2}, "http://a.example/dir/page?c=3"),
        ({"formnumber": -1}, "http://a.example/dir/page?c=3"),
        ({"formxpath": "//form[@name='search']"}, "http://a.example/search?q="),
        ({"formxpath": "//span[@class='deep']"}, "http://a.example/dir/page?c=3"),
        ({"formcss": "#third input"}, "http://a.example/dir/page?c=3"),
        ({"formnumber": 2, "url": "/elsewhere"}, "http://a.example/elsewhere?c=3"),
        ({"formnumber": 2, "method": "DELETE"}, "http://a.example/dir/page?c=3"),
    ],
)
def test_which_form_is_meant(options: dict[str, Any], url: str) -> None:
    assert FormRequest.from_response(page(), **options).url == url


@pytest.mark.parametrize(
    ("clickdata", "expected"),
    [(None, "do=log+in"), ({"value": "cancel"}, "do=cancel"), ({"type": "submit"}, "do=cancel"), ({"nr": 0}, "token=")],
)
def test_which_button_is_clicked(clickdata: dict[str, str | int] | None, expected: str) -> None:
    request = FormRequest.from_response(page(), formid="login", clickdata=clickdata)
    assert sent(request).split("&")[-1].startswith(expected)


def test_a_button_may_have_an_action_of_its_own() -> None:
    body = '<form action="/a"><input name="x" value="1"><button formaction="/b" formmethod="post">Go</button></form>'
    request = FormRequest.from_response(page(body))
    assert (request.method, request.url, sent(request)) == ("POST", "http://a.example/b", "x=1")


def test_a_form_is_relative_to_the_base_and_speaks_the_encoding_of_its_page() -> None:
    body = '<base href="http://b.example/c/"><form method="post" action="d"><input name="ü" value="ß€"></form>'
    request = FormRequest.from_response(page(body, "iso-8859-15"))
    assert (request.url, sent(request)) == ("http://b.example/c/d", "%FC=%DF%A4")
    lacking = page('<form method="post"><input name="x" value="&#8364;"></form>', "iso-8859-2")
    assert sent(FormRequest.from_response(lacking)) == "x=%26%238364%3B"


UPLOAD = """
<form method=post enctype=multipart/form-data><input name='a"b' value="c">
<textarea name=t>x&#13;y
z</textarea><input type=file name=f>
<button name=go formenctype=text/plain>Plain</button><button id=no>No</button></form>
"""


def test_a_form_with_files_is_sent_in_parts() -> None:
    added: Any = {"ü\n": ["1", b"2\n"]}
    request = FormRequest.from_response(page(UPLOAD), dont_click=True, formdata=added)
    kind, _, boundary = request.headers["content-type"].partition("; boundary=")
    assert (request.method, kind) == ("POST", "multipart/form-data")
    parts = request.body.split(b"--" + boundary.encode())
    assert (parts[0], parts[-1]) == (b"", b"--\r\n")
    start = b'\r\nContent-Disposition: form-data; name="'
    assert parts[1:-1] == [
        start + b'a%22b"\r\n\r\nc\r\n',
        start + b't"\r\n\r\nx\r\ny\r\nz\r\n',
        start + b'f"; filename=""\r\nContent-Type: application/octet-stream\r\n\r\n\r\n',
        start + "ü%0D%0A".encode() + b'"\r\n\r\n1\r\n',
        start + "ü%0D%0A".encode() + b'"\r\n\r\n2\r\n\r\n',
    ]


def test_equal_forms_have_equal_boundaries_and_no_field_holds_one() -> None:
    first, second = (FormRequest(URL, formdata={"a": "1"}, enctype="multipart/form-data") for _ in range(2))
    assert (first.body, first.headers) == (second.body, second.headers)
    changed = first.replace(formdata={"a": "2"})
    boundary = changed.headers["content-type"].partition("=")[2]
    assert changed.body.startswith(f"--{boundary}\r\n".encode())
    assert boundary not in first.headers["content-type"]


def test_a_button_may_have_an_encoding_of_its_own() -> None:
    plain = FormRequest.from_response(page(UPLOAD))
    assert (plain.headers["content-type"], plain.body) == ("text/plain", b'a"b=c\r\nt=x\r\ny\r\nz\r\nf=\r\ngo=\r\n')
    parts = FormRequest.from_response(page(UPLOAD), clickdata={"id": "no"})
    assert parts.headers["content-type"].startswith("multipart/form-data; boundary=")
    asked = FormRequest.from_response(page(UPLOAD), method="GET")
    assert asked.url == "http://a.example/dir/page?a%22b=c&t=x%0Dy%0Az&f=&go="


@pytest.mark.parametrize(
    ("form", "button", "request_line"),
    [
        ("action=/a method=post enctype=nonsense", "", "POST /a"),
        ("action=/a method=post", "formaction=", "POST /dir/page"),
        ("action=/a method=post", "formmethod=nonsense", "GET /a"),
        ("action=/a method=dialog", "formmethod=POST", "POST /a"),
    ],
)
def test_what_a_button_says_precedes_the_form(form: str, button: str, request_line: str) -> None:
    request = FormRequest.from_response(page(f"<form {form}><input name=x><button {button}>Go</button></form>"))
    path = request.url.partition("a.example")[2].partition("?")[0]
    assert f"{request.method} {path}" == request_line
    assert request.headers.get("content-type") in {None, "application/x-www-form-urlencoded"}


def test_a_click_on_an_image_has_a_place() -> None:
    image = '<form><input type=image name="{}" value=v></form>'
    assert FormRequest.from_response(page(image.format("go"))).url.endswith("?go.x=0&go.y=0")
    assert FormRequest.from_response(page(image.format(""))).url.endswith("?x=0&y=0")


@pytest.mark.parametrize(
    ("charset", "accepted", "body"),
    [
        ("euc-jp", "", b"n=%AD%A1"),
        ("utf-16", "", b"n=%E2%91%A0"),
        ("x-user-defined", "", b"n=%E2%91%A0"),
        ("utf-8", "nonsense shift_jis", b"n=%87%40"),
    ],
)
def test_a_form_is_sent_in_the_encoding_that_it_accepts_or_that_of_its_page(
    charset: str, accepted: str, body: bytes
) -> None:
    text = f'<form method=post accept-charset="{accepted}"><input name=n value="&#9312;"></form>'
    content = text.encode("utf-16" if charset == "utf-16" else "ascii")
    page = Response(URL, headers={"Content-Type": f"text/html; charset={charset}"}, body=content)
    assert FormRequest.from_response(page).body == body


@pytest.mark.parametrize(
    ("body", "options", "kind", "words"),
    [
        ("<p>nothing</p>", {}, ValueError, "has no form"),
        (LOGIN, {"formnumber": 9}, IndexError, "has 3 forms: there is no form number 9"),
        (LOGIN, {"formxpath": "//body"}, ValueError, "no form at"),
        (LOGIN, {"formcss": "a["}, ValueError, "is not CSS"),
        (LOGIN, {"formid": "login", "clickdata": {"name": "do"}}, ValueError, "2 elements .* exactly one should"),
        (LOGIN, {"formid": "login", "clickdata": {"name": "x"}}, ValueError, "0 elements"),
        (LOGIN, {"formdata": "a=1"}, ValueError, "formdata must be a mapping, or pairs"),
    ],
)
def test_what_cannot_be_sent_is_said(body: str, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        FormRequest.from_response(page(body), **options)


def test_options_of_a_request_are_those_of_any_other() -> None:
    def parsed(response: Response) -> None: ...

    request = FormRequest.from_response(page(), callback=parsed, meta={"a": 1}, headers={"X": "y"}, priority=2)
    assert (request.callback, request.meta, request.headers["x"], request.priority) == (parsed, {"a": 1}, "y", 2)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_line_ends_are_sent_as_they_are(encoding: str) -> None:
    asked = FormRequest(URL, formdata={"a": "x\ny\r\nz\r"}, encoding=encoding)
    assert asked.body == b"a=x%0Ay%0D%0Az%0D"
    form = page('<form method="post"><textarea name="t">x\ny</textarea></form>', encoding)
    assert FormRequest.from_response(form).body == b"t=x%0Ay"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_names_and_values_may_be_bytes(encoding: str) -> None:
    fields: Any = [(b"n\xe9", b"\xe9"), ("a", b"x y"), (b"b", ["1", b"\xff"])]
    assert FormRequest(URL, formdata=fields, encoding=encoding).body == b"n%E9=%E9&a=x+y&b=1&b=%FF"
    assert FormRequest(URL, formdata={b"a": b"1"}, method="GET", encoding=encoding).url == f"{URL}?a=1"


def test_a_form_can_be_replaced_by_one_of_other_fields() -> None:
    request = FormRequest(URL, formdata={"a": "1"}, priority=2)
    changed = request.replace(formdata={"b": "2"})
    assert (type(changed), changed.method, changed.body, changed.priority) == (FormRequest, "POST", b"b=2", 2)
    asked = FormRequest(URL, formdata={"a": "1"}, method="GET").replace(formdata={"b": "2"})
    assert (asked.method, asked.url) == ("GET", f"{URL}?b=2")


@pytest.mark.parametrize(
    ("inside", "scrapys", "browsers"),
    [
        ("<input name=a value=1 disabled>", "a=1", ""),
        ("<fieldset disabled><input name=a value=1></fieldset>", "a=1", ""),
        ("<select name=a disabled><option value=1 selected></select>", "a=1", ""),
        ("<textarea name=a disabled>1</textarea>", "a=1", ""),
        ("<textarea name=a>\n1<b>2</b></textarea>", "a=%0A1%3Cb%3E2%3C%2Fb%3E", "a=1%3Cb%3E2%3C%2Fb%3E"),
        ("<input type=file name=a>", "a=", "a="),
        ("<input type=button name=a value=1>", "a=1", ""),
        ('<select name=a><option value="" disabled selected>-<option value=2>y</select>', "a=", ""),
        ("<select name=a><option value=1 disabled>-<option value=2>y</select>", "a=2", "a=2"),
        ("<select name=a><option selected>x  y</select>", "a=x++y", "a=x+y"),
        ("<input type=checkbox name=a value='' checked>", "a=on", "a="),
        ("<input type=image name=a>", "a=", "a.x=0&a.y=0"),
        ("<input type=' checkbox' name=a value=1>", "a=1", "a=1"),  # an unknown type is a text field
        ("<button type='' name=a value=1></button>", "", "a=1"),
        ("<button type=odd name=a value=1></button>", "", "a=1"),
        ("<button name=a value=1 disabled></button><button name=b value=2></button>", "a=1", "b=2"),
        ("<select name=a multiple><option value=1 selected><option value=2 selected></select>", "a=1&a=2", "a=1&a=2"),
    ],
)
def test_a_page_of_a_moved_spider_has_the_fields_that_scrapy_sends(inside: str, scrapys: str, browsers: str) -> None:
    body = f"<form>{inside}</form>".encode()
    moved = FormRequest.from_response(HtmlResponse(URL, body=body, encoding="utf-8"))
    native = FormRequest.from_response(Response(URL, headers={"Content-Type": "text/html"}, body=body))
    assert (moved.url.partition("?")[2], native.url.partition("?")[2]) == (scrapys, browsers)


def test_a_form_of_a_moved_spider_is_clicked_as_in_scrapy() -> None:
    body = b"<form><input name=a value=1><input type=submit name=go value=x><button name=go value=y></button></form>"
    moved = HtmlResponse(URL, body=body, encoding="utf-8")
    clicks: tuple[tuple[dict[str, str | int], str | None], ...] = (
        ({"value": "y"}, "a=1&go=y"),
        ({"nr": 1}, "a=1&go=x"),
        ({"nr": 9, "value": "y"}, None),
    )
    for click, sent in clicks:
        if sent is None:
            with pytest.raises(ValueError, match="0 elements of the form have the clickdata"):
                FormRequest.from_response(moved, clickdata=click)
        else:
            assert FormRequest.from_response(moved, clickdata=click).url == f"{URL}?{sent}"
    removed = FormRequest.from_response(moved, formdata={"a": None, "go": None})
    assert removed.url == URL


def test_a_form_of_a_moved_spider_without_an_action_goes_to_the_base_url() -> None:
    body = b"<base href=/other/><form><input name=a value=1></form>"
    moved = HtmlResponse("http://a.example/x?y", body=body)
    assert FormRequest.from_response(moved).url == "http://a.example/other/?a=1"
    assert FormRequest.from_response(Response("http://a.example/x?y", body=body)).url == "http://a.example/x?a=1"


def test_pairs_of_a_moved_spider_are_sent_beside_the_button_with_their_name() -> None:
    page = HtmlResponse("http://a.example/", body=b"<form><input type=submit name=go value=x></form>")
    assert FormRequest.from_response(page, formdata=[("go", "y")]).url == "http://a.example/?go=x&go=y"
    assert FormRequest.from_response(page, formdata={"go": "y"}).url == "http://a.example/?go=y"
