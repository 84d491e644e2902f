from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http.content import decode_body, parse_content_type, selector_type, with_legacy_query

HTML = "text/html"


@pytest.mark.parametrize(
    ("value", "essence", "codec"),
    [
        ("text/html", "text/html", None),
        ("Text/HTML ; Charset=UTF-8", "text/html", "utf-8"),
        ('text/html; a=b; charset="shift_jis"', "text/html", "cp932"),
        ('text/html; a="; charset=gbk"; charset=utf-8', "text/html", "utf-8"),
        ("text/html; charset=nonsense", "text/html", None),
        ("text/html;charset=utf-8, text/html", "text/html", "utf-8"),
        ("text/html; charset=", "text/html", None),
        ("charset=utf-8", "charset=utf-8", None),
        (";charset=utf-8", "", "utf-8"),
        ("", "", None),
    ],
)
def test_a_content_type_is_read_whatever_it_holds(value: str, essence: str, codec: str | None) -> None:
    assert parse_content_type(value) == (essence, codec)


@pytest.mark.parametrize(
    ("body", "content_type", "text", "encoding"),
    [
        # a byte order mark is above all, and is no part of the text
        (b"\xef\xbb\xbf\xc3\xa9", "text/html; charset=latin1", "é", "utf-8"),
        (b"\xff\xfeA\x00", "text/html; charset=utf-8", "A", "utf-16-le"),
        (b"\xfe\xff\x00A", None, "A", "utf-16-be"),
        (b"\xff\xfe\x00\x00", None, "\x00", "utf-16-le"),  # browsers know no UTF-32
        # then the header
        (b"\xe9", "text/html; charset=iso-8859-1", "é", "cp1252"),
        (b"<meta charset=gbk>\xc3\xa9", "text/html; charset=utf-8", "<meta charset=gbk>é", "utf-8"),
        # then the page
        (b"<meta charset=shift_jis>\x82\xa0", HTML, "<meta charset=shift_jis>あ", "cp932"),
        (b"<meta charset=gbk>\xc4\xe3", None, "<meta charset=gbk>你", "gbk"),
        (b"<meta charset=koi8-r>\xd6", "text/html; charset=nonsense", "<meta charset=koi8-r>ж", "koi8-r"),
        (b"<?xml encoding='koi8-r'?>\xd6", "application/rss+xml", "<?xml encoding='koi8-r'?>ж", "koi8-r"),
        (b"<meta charset=gbk>\xc3\xa9", "text/xml", "<meta charset=gbk>é", "utf-8"),
        (b"<meta charset=gbk>\xc3\xa9", "text/plain", "<meta charset=gbk>é", "utf-8"),
        (b'"<meta charset=gbk>\xc3\xa9"', "application/json", '"<meta charset=gbk>é"', "utf-8"),
        # then a guess
        (b"\xc3\xa9", HTML, "é", "utf-8"),
        (b"\xe9\x80", HTML, "é€", "cp1252"),
        (b"", HTML, "", "utf-8"),
        # what can't be decoded
        (b"a\xffb", "text/html; charset=utf-8", "a\ufffdb", "utf-8"),
        (b"\x81\x8d\x93", "text/html; charset=ascii", "\x81\x8d“", "cp1252"),
        (b"\x81\xdb", "text/html; charset=windows-874", "\x81\ufffd", "cp874"),
        (b"\x7f\x80\xff", "text/html; charset=x-user-defined", "\x7f\uf780\uf7ff", "x-user-defined"),
        (b"abc", "text/html; charset=iso-2022-kr", "\ufffd", "replacement"),
        (b"", "text/html; charset=iso-2022-kr", "", "replacement"),
        (b"\x82", "text/html; charset=shift_jis", "\ufffd", "cp932"),
    ],
)
def test_a_body_is_decoded_as_browsers_do(body: bytes, content_type: str | None, text: str, encoding: str) -> None:
    assert decode_body(body, content_type) == (text, encoding)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufeff")))
def test_valid_utf_8_is_read_as_utf_8_unless_something_says_otherwise(text: str) -> None:
    assert decode_body(text.encode(), "text/plain") == (text, "utf-8")


@given(st.binary(), st.text(), st.sampled_from(["utf-8", "gbk", "euc-jp", "latin1", "hz-gb-2312", "utf-16", "hex"]))
def test_nothing_that_a_server_sends_makes_decoding_fail(body: bytes, content_type: str, label: str) -> None:
    for each in (content_type, f"text/html; charset={label}", None):
        assert isinstance(decode_body(body, each).text, str)
        assert selector_type(each, body) in {"html", "xml", "json"}


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("text/html", b"<?xml?>", "html"),
        ("application/xhtml+xml", b"", "html"),
        ("application/vnd.wap.xhtml+xml", b"", "html"),
        ("text/xml; charset=utf-8", b"", "xml"),
        ("application/atom+xml", b"", "xml"),
        ("application/json", b"", "json"),
        ("application/ld+json", b"", "json"),
        ("text/plain", b"", "html"),
        (None, b"", "html"),
        (None, b"\xef\xbb\xbf\n<?XML version='1.0'?><rss/>", "xml"),
        (None, b"<?xml version='1.0'?><!doctype html><html>", "html"),
        ("application/octet-stream", b"<?xml version='1.0'?><urlset/>", "xml"),
    ],
)
def test_a_page_is_parsed_as_its_type_says(content_type: str | None, body: bytes, kind: str) -> None:
    assert selector_type(content_type, body) == kind


@pytest.mark.parametrize(
    ("url", "encoding", "encoded"),
    [
        ("/é?é=1#é", "utf-8", "/é?é=1#é"),
        ("/é?é=1#é", "utf-16-le", "/é?é=1#é"),
        ("/é?é=1#é", "cp1252", "/é?%E9=1#é"),
        ("/?q=あ&r", "cp932", "/?q=%82%A0&r"),
        ("/?q=あ", "cp1252", "/?q=%26%2312354%3B"),
        ("/#?é", "cp1252", "/#?é"),
    ],
)
def test_a_query_is_sent_in_the_encoding_of_its_page(url: str, encoding: str, encoded: str) -> None:
    assert with_legacy_query(url, encoding) == encoded
