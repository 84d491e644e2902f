"""XML read piece by piece, whatever it holds."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.spiders.xml_stream import PIECE_BYTES, GzipBody, XmlStream, local_name

NAMES = frozenset({"url"})
MUCH = 1 << 30


def texts(body: bytes, max_bytes: int = MUCH) -> list[str]:
    xml = XmlStream(GzipBody(body, max_bytes), NAMES)
    return ["".join(str(text) for text in element.itertext()) for element in xml]


def test_elements_come_one_by_one_under_any_namespace() -> None:
    body = b"""  <?xml version="1.0"?><s xmlns="x" xmlns:n="y"><url>1</url><!-- a --><n:url>2<b>3</b></n:url></s>"""
    xml = XmlStream(GzipBody(body, MUCH), NAMES)
    assert xml.root == "s"
    assert [local_name(element) for element in xml] == ["url", "url"]
    assert texts(body) == ["1", "23"]


@pytest.mark.parametrize("body", [b"", b"   ", b"no xml", b"\x00\x01", b"\x1f\x8bbroken", b"<"])
def test_what_is_no_xml_has_no_elements(body: bytes) -> None:
    assert texts(body) == []


def test_broken_xml_gives_what_could_be_read() -> None:
    assert texts(b"<s><url>1</url><url>2</s><url>3") == ["1", "2"]
    assert texts(b"<s><url>1</url><x></y><url>2") == ["1"]
    assert texts(b"<s><url>a&nbsp;b &amp; c</url>") == ["a\u00a0b & c"]


def test_a_file_in_gzip_may_be_several_after_one_another() -> None:
    first, second = gzip.compress(b"<s><url>1</url>"), gzip.compress(b"<url>2</url></s>")
    assert texts(first + second + b"rubbish") == ["1", "2"]


@pytest.mark.parametrize("cut", [15, 30])
def test_gzip_that_ends_too_early_is_known(cut: int) -> None:
    pieces = GzipBody(gzip.compress(b"<s>" + b"<url>12345</url>" * 9)[:cut], MUCH)
    assert list(XmlStream(pieces, NAMES)) is not None
    assert pieces.is_broken
    assert not pieces.is_cut


def test_what_is_packed_is_unpacked_up_to_the_limit_and_no_further() -> None:
    bomb = gzip.compress(b"<s><url>1</url>" + b" " * 20_000_000, 6)
    tracemalloc.start()
    pieces = GzipBody(bomb, 5 * PIECE_BYTES)
    assert sum(map(len, pieces)) == 5 * PIECE_BYTES
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pieces.is_cut
    assert most < 20 * PIECE_BYTES


def test_entities_are_not_resolved_and_nothing_is_read(tmp_path: object) -> None:
    laughs = b'<!DOCTYPE s [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY x SYSTEM "file:///etc/passwd">]>'
    body = laughs + b"<s><url>&b;&b;</url><url>&x;</url><url>1</url></s>"
    assert texts(body)[-1] == "1"
    assert "root:" not in "".join(texts(body))
    assert "ha" not in "".join(texts(body))


def test_what_was_given_is_forgotten() -> None:
    xml = XmlStream(GzipBody(b"<s>" + b"<url>1</url>" * 50 + b"</s>", MUCH), NAMES)
    most = 0
    for element in xml:
        parent = element.getparent()
        assert parent is not None
        most = max(most, parent.index(element))
    assert most <= 1


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_make_it_fail(body: bytes, max_bytes: int) -> None:
    texts(body, max_bytes)
    texts(b"<s><url>" + body + b"</url></s>", max_bytes)
    texts(gzip.compress(body), max_bytes)
