from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http.content import PRESCAN_BYTES, declared_in_html, declared_in_xml

PIECES = [
    b"<",
    b">",
    b"<!--",
    b"-->",
    b"<meta ",
    b"charset=",
    b"content='text/html; ",
    b"'",
    b'"',
    b"latin1",
    b" ",
    b"/",
]


@pytest.mark.parametrize(
    ("page", "codec"),
    [
        (b"<meta charset=utf-8>", "utf-8"),
        (b"<META CHARSET = 'Shift_JIS' />", "cp932"),
        (b"<meta/charset=utf-8>", "utf-8"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">', "koi8-r"),
        (b"<meta content='text/html;charset=\"big5\"' http-equiv='content-type'>", "big5hkscs"),
        (b"<meta content='text/html; charset=big5'>", None),
        (b"<meta http-equiv=refresh content='0; charset=big5'>", None),
        (b"<meta http-equiv=content-type content='text/html'>", None),
        (b"<meta charset=nonsense><meta charset=gbk>", "gbk"),
        (b"<meta charset=utf-8><meta charset=gbk>", "utf-8"),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=x-user-defined>", "cp1252"),
        (b"<metacharset=utf-8>", None),
        (b"<!-- <meta charset=gbk> --><meta charset=utf-8>", "utf-8"),
        (b"<!--><meta charset=utf-8>", "utf-8"),
        (b"<!-- <meta charset=utf-8>", None),
        (b"<p title='<meta charset=gbk>'><meta charset=utf-8>", "utf-8"),
        (b'<p title="a > b" <meta charset=gbk>', None),
        (b"</p <meta charset=gbk>><meta charset=utf-8>", "utf-8"),
        (b"<!doctype <meta charset=gbk>><meta charset=utf-8>", "utf-8"),
        (b"<? charset", None),
        (b"a < b <meta charset=utf-8>", "utf-8"),
        (b"<body><meta charset=utf-8>", "utf-8"),
        (b"<title>charset</title><mEtA name=x><META\nChArSeT=gbk>", "gbk"),
        (b"<meta name=x>" + b" " * 2_000 + b"<meta charset=gbk>", "gbk"),
        (b"<script>'<meta charset=gbk>'</script><meta charset=utf-8>", "gbk"),
        (b"<p>" + b" " * 2_000 + b"<script>'<meta charset=gbk>'</script><meta charset=utf-8>", "utf-8"),
        (b"<Title>" + b" " * 2_000 + b"<meta charset=gbk></tItle><style><meta charset=gbk>", None),
        (b"<meta name=x>" + b" " * PRESCAN_BYTES + b"<meta charset=gbk>", None),
        (b"<meta name=x charset=utf-8 charset=gbk>", "utf-8"),
        (b'<p title="x>\n<meta charset=iso8859-2>\n<p>"', None),
        (b'<p title="x><meta charset=gbk>"><meta charset=utf-8>', "utf-8"),
        (b"<p a='><meta charset=gbk>' b=\"'><meta charset=big5>\"><meta charset=utf-8>", "utf-8"),
        (b"<p title='x><meta charset=gbk>", None),
        (b"<meta charset=utf-8", None),
        (b"<meta charset='utf-8", None),
        (b"<meta =charset=gbk charset=utf-8>", "utf-8"),
        (b"<meta charset= >", None),
        (b"<meta http-equiv=content-type content='charset=\"utf-8'>", None),
        (b"<meta http-equiv=content-type content='charset charset = utf-8; x'>", "utf-8"),
        (b"<meta http-equiv=content-type charset=utf-8 content='charset=gbk'>", "utf-8"),
        (b"<meta charset=", None),
        (b"<meta charset", None),
        (b"charset=utf-8", None),
        (b"<?xml version='1.0' encoding='gbk'?><html>", "gbk"),
        (b"<?xml version='1.0' encoding='gbk'?><meta charset=utf-8>", "utf-8"),
        (b"", None),
    ],
)
def test_a_page_names_its_encoding_as_browsers_read_it(page: bytes, codec: str | None) -> None:
    assert declared_in_html(page) == codec


@pytest.mark.parametrize(
    ("page", "codec"),
    [
        (b'<?xml version="1.0" encoding="ISO-8859-1"?>', "cp1252"),
        (b"<?xml encoding = 'utf-8'?>", "utf-8"),
        (b"<?xml version='1.0'?><a encoding='gbk'>", None),
        (b" <?xml encoding='gbk'?>", None),
        (b"<?xml encoding='nonsense'?>", None),
        (b"<?xml encoding encoding='utf-8'?>", None),
        (b"<?xml encoding='utf-16'?>", "utf-8"),
        (b"<a><meta charset=gbk></a>", None),
        ("<?xml version='1.0'?>".encode("utf-16-le"), "utf-16-le"),
        ("<?xml version='1.0'?>".encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_an_xml_document_names_its_encoding_in_its_declaration(page: bytes, codec: str | None) -> None:
    assert declared_in_xml(page) == codec


def test_a_declaration_far_into_the_page_does_not_count() -> None:
    declaration = b"<meta charset=gbk>"
    inside = b" " * (PRESCAN_BYTES - len(declaration))
    assert declared_in_html(inside + declaration) == "gbk"
    assert declared_in_html(inside + b"    " + declaration) is None


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
def test_broken_markup_is_read_to_its_end(page: bytes) -> None:
    assert declared_in_html(page) in {None, "cp1252"}
    # A declaration in good order after it decides, unless an open comment or quote swallows it.
    closed = page + b"\"'>--><meta charset=gbk>"
    assert declared_in_html(closed) in {None, "cp1252", "gbk"}


@pytest.mark.parametrize(
    "piece", [b"<", b"<!--", b"<meta ", b"<a ='", b'<a b="', b"<meta charset='", b"<?xml encoding"]
)
def test_a_hostile_page_is_read_in_linear_time(piece: bytes) -> None:
    page = b"charset" + piece * (PRESCAN_BYTES // len(piece))
    assert declared_in_html(page) is None
