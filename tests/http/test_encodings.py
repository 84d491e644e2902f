from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http.content import decode_body, decode_pieces, with_legacy_query
from trawl.http.encodings import _LABELS_OF_CODEC, Decoder, codec_of, decode, encode


def codec(label: str) -> str:
    found = codec_of(label)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("gbk", b"\x80 5", "€ 5"),
        ("gb18030", b"\xa8\xbc\xa6\xd9\xfe\x59\xa3\xa0", "\u1e3f\ufe10\u9fb4\u3000"),  # GB 18030-2022
        ("gb18030", b"\x81\x35\xf4\x37", "\ue7c7"),
        ("gb18030", b"\x81\x30\x81 \x81a", "\ufffd0\ufffd \u4e64"),  # only the first byte is dropped
        ("gb18030", b"\xff\x81", "\ufffd\ufffd"),
        ("gb18030", b"\x84\x31\xa5\x30", "\ufffd"),
        ("euc-jp", b"\xad\xa1\xf9\xa1\xa1\xc1\xa1\xdd", "\u2460\u7e8a\uff5e\uff0d"),
        ("euc-jp", b"\x8f\xa2\xb7~\xa1\x8f\xa2\xb7", "\uff5e~\ufffd\ufffd"),
        ("euc-jp", b"\xa2\xaf\x8fa\x8f\xa1\x8e", "\ufffd\ufffda\ufffd"),
        ("shift_jis", b"\xa0\xfd\x80\x81\xad\x81a", "\ufffd\ufffd\x80\ufffd\u2225"),
        ("big5", b"\x87z\xa2A\xa1\xfe\xa2\xa2AA\xa2\xa2Az", "\u3875\u2215\uff0f\u2570AA\u2570Az"),
        ("big5", b"\x88\x62\xc8\xa5", "\u00ca\u0304\ufffd"),
        ("euc-kr", b"\xa2\xe6\x81\x20\xc9\xa1", "€\ufffd \ufffd"),
        ("windows-1255", b"\xca", "\u05ba"),
        ("koi8-u", b"\xae\xbe", "ўЎ"),
        ("iso-8859-8-i", b"\xe0", "\u05d0"),
        ("x-mac-cyrillic", b"\xa2\xff", "Ґ€"),
        ("iso-2022-jp", b'a\x1b$B-!$"\x1b(J\\~\x1b(I1\x1b(Ba', "a\u2460\u3042\u00a5\u203e\uff71a"),
        ("iso-2022-jp", b"\x1b$B\x1b(Ba\x1b$Z\x0e\xff\x1b", "\ufffda\ufffd$Z\ufffd\ufffd\ufffd"),
        ("iso-2022-jp", b"\x1b$B$\n$", "\ufffd\ufffd"),
        ("utf-16le", b"a\x00\x00\xd8b\x00\x00\xdc\x00", "a\ufffdb\ufffd\ufffd"),
        ("utf-8", b"\xe2\x82a\xed\xa0\x80\xf4\x90", "\ufffda\ufffd\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_bytes_are_decoded_as_the_encoding_standard_does(label: str, body: bytes, text: str) -> None:
    assert decode(body, codec(label)) == text


@pytest.mark.parametrize(
    ("label", "digest"),
    [
        ("gb18030", "766ba957d1720969"),
        ("big5", "708b047dd842085a"),
        ("euc-jp", "c2771ede907e91b4"),
        ("shift_jis", "dc41c920ca79b540"),
        ("euc-kr", "a70cb0db6c6f738b"),
        ("iso-2022-jp", "24d2b7cc8cfe6e2a"),
    ],
)
def test_every_pair_of_bytes_is_the_character_of_the_standards_index(label: str, digest: str) -> None:
    """Eight sequences at a time, joined by line ends. A decoder made from the standard's indexes gave the digests."""
    escape = b"\x1b$B" if label == "iso-2022-jp" else b""
    leads = range(0x21, 0x7F) if escape else range(0x80, 0x100)
    pairs = [escape + bytes((lead, trail)) for lead in leads for trail in (leads if escape else range(0x100))]
    if label == "euc-jp":
        pairs += [bytes((0x8F, row, cell)) for row in range(0xA1, 0xFF) for cell in range(0xA1, 0xFF)]
    text = "\n".join(decode(b"\n".join(pairs[at : at + 8]), codec(label)) for at in range(0, len(pairs), 8))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


PARTS = [
    b"\x1b$B",
    b"\x1b(",
    b'$"',
    b"\x8f\xa2\xb7",
    b"\xa2A",
    b"\x81",
    b"0",
    b"\xff",
    b"\xd8",
    b"\n",
    b" ",
    b"a",
    b"\x80",
]


@given(st.sampled_from(sorted(_LABELS_OF_CODEC)), st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=12))
def test_a_body_in_pieces_has_the_text_of_the_whole(name: str, pieces: list[bytes]) -> None:
    decoder = Decoder(name)
    text = "".join(map(decoder.decode, pieces)) + decoder.decode(b"", final=True)
    assert text == decode(b"".join(pieces), name)


@pytest.mark.parametrize("label", ["gb18030", "euc-jp", "shift_jis", "big5", "iso-2022-jp"])
def test_a_long_body_without_white_space_is_not_held_back(label: str) -> None:
    pieces = [b"\xa4\xa2\x81" * 40_001, b"a" * 70_000, b"\x8f\xa2", b"\xb7\x81", b"0\x81"]
    decoder = Decoder(codec(label))
    text = [decoder.decode(piece) for piece in pieces] + [decoder.decode(b"", final=True)]
    assert len(text[0]) > 40_000
    assert "".join(text) == decode(b"".join(pieces), codec(label))


@given(st.lists(st.binary(max_size=4), max_size=8), st.sampled_from([None, "text/plain; charset=gbk", "text/xml"]))
def test_pieces_are_decoded_as_the_page_would_be(pieces: list[bytes], content_type: str | None) -> None:
    assert "".join(decode_pieces(pieces, content_type)) == decode_body(b"".join(pieces), content_type).text


def test_what_names_no_encoding_is_decided_by_its_first_bytes_that_are_not_ascii() -> None:
    ascii_only = b"a" * 20_000
    assert list(decode_pieces([ascii_only, b"\xc3\xa9", b"\xe9"], None))[1:] == ["é", "\ufffd"]
    assert list(decode_pieces([ascii_only, b"\xe9 ", b"\xc3\xa9"], None))[1:] == ["é ", "Ã©"]


@pytest.mark.parametrize(
    ("label", "text", "sent"),
    [
        ("euc-jp", "①\u2212", b"\xad\xa1\xa1\xdd"),
        ("shift_jis", "¥①ﾊ", b"\\\x87\x40\xca"),
        ("big5", "═十兀", b"\xf9\xf9\xa4\x51\xa4\x61"),
        ("gb18030", "€\ue5e5", b"\xa2\xe3&#58853;"),
        ("gb18030", "\ue7c7\ue81e\ufe10\U0001f600", b"\x81\x35\xf4\x37\xfe\x59\xa6\xd9\x94\x39\xfc\x36"),
        ("gb2312", "中€\ue5e5", b"\xd6\xd0\x80&#58853;"),
        ("gbk", "\ue7c7\ue81e\ufe10\U0001f600é", b"&#59335;\xfe\x59\xa6\xd9&#128512;\xa8\xa6"),
        ("windows-1252", "é漢", b"\xe9&#28450;"),
        ("windows-1255", "\u05ba", b"\xca"),
        ("iso-2022-jp", "a漢é¥ｱ", b'a\x1b$B4A\x1b(B&#233;\x1b(J\\\x1b$B%"\x1b(B'),
        ("utf-16", "é", b"\xc3\xa9"),
        ("hz-gb-2312", "é", b"\xc3\xa9"),
    ],
)
def test_text_is_sent_as_browsers_encode_it(label: str, text: str, sent: bytes) -> None:
    assert encode(text, codec(label)) == sent


def test_a_query_may_hold_what_pythons_codec_lacks() -> None:
    assert with_legacy_query("/?q=①a", "euc_jp") == "/?q=%AD%A1a"
