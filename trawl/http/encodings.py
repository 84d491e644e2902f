"""Encodings of pages: labels, decoding and encoding, as in the WHATWG Encoding Standard.

Python's codecs are fast, but decode 674 byte sequences differently: the euro sign of gbk, row 13 of EUC-JP, Big5-HKSCS
and others. So if Python's codec finds no error in a body, its result is used, and a regular expression replaces the
characters that the standard assigns differently. If the codec finds an error, the body is split into sequences as in
the standard, and each sequence is decoded separately.

Labels (4.2): only the names in the standard's table are accepted, not the many other names of Python's codecs (``hex``,
``utf-7``, ``idna``, ...). As in browsers, some labels mean a superset of their encoding (``iso-8859-1`` means
windows-1252, ``gb2312`` means GBK). GBK is decoded as gb18030 and has its own encoder (10.1).

``webencodings`` 0.6 maps labels to Python's codecs without these corrections. No other package decodes with the
standard's indexes.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType

__all__ = [
    "REPLACEMENT",
    "USER_DEFINED",
    "Decoder",
    "codec_named",
    "codec_of",
    "decode",
    "decoding_codec",
    "encode",
    "label_of",
    "output_codec",
]

REPLACEMENT = "replacement"
"""Represents the encodings that browsers refuse to decode, because they were used to hide scripts (Encoding, 14.1)."""

USER_DEFINED = "x-user-defined"
"""In this encoding, bytes above 0x7F are private characters (Encoding, 14.5). Python has no codec for it."""

_TABLE = """
utf-8: utf-8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8
cp866: ibm866 866 cp866 csibm866
iso8859-2: iso-8859-2 csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
iso8859-3: iso-8859-3 csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
iso8859-4: iso-8859-4 csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
iso8859-5: iso-8859-5 csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988
iso8859-6: iso-8859-6 arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i
    iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
iso8859-7: iso-8859-7 csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7
    iso_8859-7:1987 sun_eu_greek
iso8859-8: iso-8859-8 csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8-e iso-8859-8-i iso-ir-138 iso8859-8
    iso88598 iso_8859-8 iso_8859-8:1988 logical visual
iso8859-10: iso-8859-10 csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6
iso8859-13: iso-8859-13 iso8859-13 iso885913
iso8859-14: iso-8859-14 iso8859-14 iso885914
iso8859-15: iso-8859-15 csisolatin9 iso8859-15 iso885915 iso_8859-15 l9
iso8859-16: iso-8859-16
koi8-r: koi8-r cskoi8r koi koi8 koi8_r
koi8-u: koi8-u koi8-ru
mac-roman: macintosh csmacintosh mac x-mac-roman
cp874: windows-874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620
cp1250: windows-1250 cp1250 x-cp1250
cp1251: windows-1251 cp1251 x-cp1251
cp1252: windows-1252 ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591
    iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252
cp1253: windows-1253 cp1253 x-cp1253
cp1254: windows-1254 cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5
    x-cp1254
cp1255: windows-1255 cp1255 x-cp1255
cp1256: windows-1256 cp1256 x-cp1256
cp1257: windows-1257 cp1257 x-cp1257
cp1258: windows-1258 cp1258 x-cp1258
mac-cyrillic: x-mac-cyrillic x-mac-ukrainian
gbk: gbk chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk
gb18030: gb18030
big5hkscs: big5 big5-hkscs cn-big5 csbig5 x-x-big5
euc_jp: euc-jp cseucpkdfmtjapanese x-euc-jp
iso2022_jp_ext: iso-2022-jp csiso2022jp
cp932: shift_jis csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis
cp949: euc-kr cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949
replacement: replacement csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr
utf-16-be: utf-16be unicodefffe
utf-16-le: utf-16le csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16
x-user-defined: x-user-defined
"""
"""The codecs with their labels. The first label is the name of the encoding in the standard."""

_LABELS_OF_CODEC = MappingProxyType(
    {codec: labels.split() for codec, labels in re.findall(r"^(\S+):((?: .*|\n    .*)+)", _TABLE, re.MULTILINE)}
)

_CODEC_OF_LABEL = MappingProxyType({label: codec for codec, labels in _LABELS_OF_CODEC.items() for label in labels})


def codec_of(label: str) -> str | None:
    """Return the codec for a case-insensitive label of an encoding; None for an unknown label."""
    return _CODEC_OF_LABEL.get(label.strip("\t\n\f\r ").lower())


def codec_named(encoding: str) -> str:
    """Return the name of one of Python's codecs, or raise ValueError if there is no such codec."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(f"there is no encoding {encoding!r}") from None


def label_of(encoding: str) -> str:
    """Return a label as it is, the standard's label for one of Python's codecs, or an unknown name as it is."""
    encoding = encoding.strip()
    if codec_of(encoding) is not None:
        return encoding
    with suppress(ValueError):
        encoding = codec_named(encoding)
    return _LABELS_OF_CODEC[encoding][0] if encoding in _LABELS_OF_CODEC else encoding


_BAD = "\ufffd"
_BYTES = range(256)
_ASCII_END = 0x80

_BIG5_RUNS = (  # each part of the index Big5 that Python's codec lacks: its first pointer, and its characters
    "1000㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏䚮𦺈"
    "䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋 2082箸 2088簆 2103糎 2114緒 2123縝 2148者 2151耨 2221菁 2239蒨 "
    "2244萏 2303覦覩 2354起 2400都 2413銹 2477靜 2498響 2605鼖 2673蔃 2746兙兛兝兞 2771鍮 2780瑹 2990浧 "
    "3087禛 3259邗 3301靝 3436瀞 3451嬨 4136爁 4138矗 4141纇 4182駖 4206釔 4220惞 4230澶 4241輶 4258侻 4273營 "
    "4279鄄 4282鷰 4294菏 4329尐秣 4349婧 4419輋 4422筑 4494拐 4624恢 4694痹 4708汊 4742鬮 4748鼗 4815僭 "
    "4828弌 4902蠏 4922拎 4982瑨 4992煢 4997牐 5432␀␁␂␃␄␅␆␇␈␉␊␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟␡€ 10942廴 10946无 10948癶 "
    "10950隶 10957〃仝 19028倩 19035偽 19088包 19096卄 19112卿 19162嘅 19240婷 19299幵 19305廐 19326彘 "
    "19355悤 19398撐 19439晴 19454杞 19553沜渝 19557港 19611煮 19643猪 19672瑜 19697瓩 19748砉"
)

_BIG5_TRAILS = (*range(0x40, 0x7F), *range(0xA1, 0xFF))


def _big5_more() -> dict[bytes, str]:
    """Return the characters of Big5 (Encoding, 12.1.1) that Python's codec lacks."""
    width = len(_BIG5_TRAILS)
    return {
        bytes((0x81 + at // width, _BIG5_TRAILS[at % width])): char
        for start, run in re.findall(r"(\d+)(\S+)", _BIG5_RUNS)
        for at, char in enumerate(run, int(start))
    }


# Sequences that Python's codecs can't decode, or decode to the same character as another sequence.
_MORE: dict[str, dict[bytes, str]] = {
    "big5hkscs": {**_big5_more(), b"\xa2A": "\u2215", b"\xa2B": "\ufe68"},
    "euc_jp": {b"\x8f\xa2\xb7": "\uff5e"},
    "gb18030": {b"\x80": "\u20ac"},
}

_TWICE = {"big5hkscs": re.compile(rb"\xa2[AB]"), "euc_jp": re.compile(rb"\x8f\xa2\xb7")}

_REST = rb"|[\x00-\x7f]+|[\x80-\xff]"

# Valid and invalid sequences end at the same byte as in the standard's decoders. If the last byte of an invalid
# sequence is ASCII, the byte is decoded again, which returns the ASCII character, as in the standard.
_SEQUENCE = {
    "big5hkscs": re.compile(rb"[\x81-\xfe][\x00-\xff]" + _REST),
    "cp932": re.compile(rb"[\x81-\x9f\xe0-\xfc][\x00-\xff]" + _REST),
    "cp949": re.compile(rb"[\x81-\xfe][\x00-\xff]" + _REST),
    "euc_jp": re.compile(rb"\x8f[\xa1-\xfe][\x00-\xff]|[\x8e\x8f\xa1-\xfe][\x00-\xff]" + _REST),
    "gb18030": re.compile(
        rb"[\x81-\xfe][0-9][\x81-\xfe][0-9]|[\x81-\xfe][0-9][\x81-\xfe]?\Z|[\x81-\xfe][^0-9]" + _REST
    ),
}


class _Sequences(dict[bytes, str]):
    """The decoded string of each sequence. Caches sequences of at most two bytes."""

    def __init__(self, codec: str) -> None:
        self._codec = codec

    def __missing__(self, sequence: bytes) -> str:
        text = _MORE.get(self._codec, {}).get(sequence) or self._decoded(sequence)
        if len(sequence) <= len(b"\x81\x40"):
            self[sequence] = text
        return text

    def _decoded(self, sequence: bytes) -> str:
        try:
            return _fixed(sequence.decode(self._codec), self._codec)
        except UnicodeDecodeError:
            if self._codec == "euc_jp" and (char := _row_of_euc_jp(sequence)):
                return char
        last = sequence[-1]
        is_read_again = last < _ASCII_END and not (self._codec == "gb18030" and sequence[1:2].isdigit())
        return _BAD + chr(last) if is_read_again else _BAD


_sequences = lru_cache(maxsize=8)(_Sequences)


def _row_of_euc_jp(pair: bytes) -> str | None:
    """Return a character of the index jis0208, which EUC-JP and Shift_JIS share (Encoding, 13.1.1 and 13.3.1)."""
    if len(pair) != len(b"\xad\xa1") or min(pair) < 0xA1 or max(pair) > 0xFE:
        return None
    row, cell = divmod((pair[0] - 0xA1) * 94 + pair[1] - 0xA1, 188)
    shifted = bytes((row + (0x81 if row < 0x1F else 0xC1), cell + (0x40 if cell < 0x3F else 0x41)))
    try:
        return shifted.decode("cp932")
    except UnicodeDecodeError:
        return None


_FIXES = {  # by codec: characters of Python's codec, and the standard's replacements in the same order
    "big5hkscs": (
        "\u2022\uff64\u203e\u223c\u2641\u2609\u00a5\u00a2\u00a3",
        "\u2027\ufe51\u00af\uff5e\u2295\u2299\uffe5\uffe0\uffe1",
    ),
    "cp932": ("\uf8f0\uf8f1\uf8f2\uf8f3", _BAD * 4),
    "euc_jp": ("\u301c\u2016\u2212\u00a2\u00a3\u00ac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"),
    "gb18030": (
        "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796"
        "\ue7c7\u1e3f\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864",
        "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19"
        "\u1e3f\ue7c7\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
    ),
}

_FIX = MappingProxyType(
    {codec: (re.compile(f"[{old}]"), dict(zip(old, new, strict=True))) for codec, (old, new) in _FIXES.items()}
)


def _fixed(text: str, codec: str) -> str:
    if codec not in _FIX:
        return text
    wrong, right = _FIX[codec]
    return wrong.sub(lambda found: right[found[0]], text)


def decoding_codec(codec: str) -> str:
    """Return the codec for decoding: gb18030 if ``codec`` is GBK, otherwise ``codec`` itself (Encoding, 10.1.1)."""
    return "gb18030" if codec == "gbk" else codec


_UNICODE = frozenset({"utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"})
_ISO_2022_JP = "iso2022_jp_ext"


def decode(body: bytes, codec: str) -> str:
    """Return ``body`` decoded with a codec of :func:`codec_of`, with U+FFFD for invalid sequences. Never raises."""
    if codec in _UNICODE:
        return body.decode(codec, "replace")
    codec = decoding_codec(codec)
    if codec in _SEQUENCE:
        return _multibyte(body, codec)
    if codec == REPLACEMENT:
        return _BAD if body else ""
    if codec == _ISO_2022_JP:
        return _Iso2022Jp().decode(body, final=True)
    return codecs.charmap_decode(body, "strict", _characters(codec))[0]


_PART_BYTES = 65_536  # number of bytes that are split into sequences at a time


def _multibyte(body: bytes, codec: str) -> str:
    if body.isascii():
        return body.decode("ascii")
    if codec not in _TWICE or not _TWICE[codec].search(body):
        try:
            return _fixed(body.decode(codec), codec)
        except UnicodeDecodeError:
            pass
    text: list[str] = []
    at = 0
    while at < len(body):
        end = min(at + _PART_BYTES, len(body))
        sequences = _SEQUENCE[codec].findall(body, at, end)
        if end < len(body) and sequences[-1][0] >= _ASCII_END:  # the last sequence may continue in the next part
            end -= len(sequences.pop())
        text.append("".join(map(_sequences(codec).__getitem__, sequences)))
        at = end
    return "".join(text)


_SINGLE_FIXES = {"cp1255": {0xCA: "\u05ba"}, "koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"}}

_C1_END = 0xA0


@lru_cache(maxsize=32)
def _characters(codec: str) -> str:
    """Return the 256 characters of a single-byte encoding (Encoding, 9), also C1 controls that Python lacks."""
    if codec == USER_DEFINED:
        return "".join(chr(byte) if byte < _ASCII_END else chr(0xF780 + byte - _ASCII_END) for byte in _BYTES)
    has_controls = codec.startswith("cp12") or codec == "cp874"
    chars = [bytes((byte,)).decode(codec, "replace") for byte in _BYTES]
    for byte, char in enumerate(chars):
        if char == _BAD and has_controls and byte < _C1_END:
            chars[byte] = chr(byte)
    for byte, char in _SINGLE_FIXES.get(codec, {}).items():
        chars[byte] = char
    return "".join(chars)


_ESCAPES = {b"(B": "ascii", b"(J": "roman", b"(I": "katakana", b"$@": "pairs", b"$B": "pairs"}
_RUNS = re.compile(rb"(?:[\x21-\x7e]{2})+|[\x21-\x7e][^\x21-\x7e]?|[^\x21-\x7e]")
_AS_EUC = bytes(byte | 0x80 for byte in _BYTES)


@lru_cache(maxsize=3)
def _iso_2022_jp_characters(mode: str) -> str:
    chars = [chr(byte) if byte < _ASCII_END and byte not in (0x0E, 0x0F, 0x1B) else _BAD for byte in _BYTES]
    if mode == "roman":
        chars[0x5C], chars[0x7E] = "\u00a5", "\u203e"
    elif mode == "katakana":
        chars = [chr(0xFF61 + byte - 0x21) if 0x21 <= byte <= 0x5F else _BAD for byte in _BYTES]
    return "".join(chars)


class _Iso2022Jp:
    """The decoder of ISO-2022-JP (Encoding, 13.2.1), whose escape sequences change the meaning of later bytes."""

    def __init__(self) -> None:
        self._mode = "ascii"
        # Whether the last token was an escape sequence. Another escape sequence directly after it is an error.
        self._has_escaped = False
        self._lead = b""
        self._held = b""  # an incomplete escape sequence or pair, until the next chunk completes it

    def decode(self, body: bytes, *, final: bool) -> str:
        text: list[str] = []
        body = self._held + body
        escape = -1 if final else body.rfind(b"\x1b", max(0, len(body) - len(b"\x1b(")))
        body, self._held = (body, b"") if escape < 0 else (body[:escape], body[escape:])
        for number, part in enumerate(body.split(b"\x1b")):
            self._lead = b""
            if number:
                mode = _ESCAPES.get(part[:2])
                if mode is None:
                    text.append(_BAD)
                    self._has_escaped = False
                else:
                    if self._has_escaped:
                        text.append(_BAD)
                    self._mode, self._has_escaped = mode, True
            segment = part[2:] if number and self._has_escaped else part
            if segment:
                self._has_escaped = False
                text.append(self._segment(segment))
        if not final and not self._held and text and self._mode == "pairs" and self._lead:
            text[-1], self._held = text[-1][:-1], self._lead
        return "".join(text)

    def _segment(self, part: bytes) -> str:
        if self._mode != "pairs":
            return codecs.charmap_decode(part, "strict", _iso_2022_jp_characters(self._mode))[0]
        runs: list[bytes] = _RUNS.findall(part)
        # Keep the first byte of a pair if its second byte has not arrived.
        self._lead = runs[-1] if runs[-1] in _LEADS else b""
        return "".join(
            _BAD if len(run) < 2 or run[1] not in _PAIRED else decode(run.translate(_AS_EUC), "euc_jp") for run in runs
        )


_PAIRED = frozenset(range(0x21, 0x7F))
_LEADS = frozenset(bytes((byte,)) for byte in _PAIRED)
_APART = b" \n\r\t"


class Decoder:
    """Decodes a body in chunks, with the same result as :func:`decode` for the whole body."""

    def __init__(self, codec: str) -> None:
        """Create a decoder for a codec of :func:`codec_of`."""
        self._codec = decoding_codec(codec)
        self._held = b""
        self._is_replaced = False
        self._escaped = _Iso2022Jp()
        self._unicode = codecs.getincrementaldecoder(codec)("replace") if codec in _UNICODE else None

    def decode(self, piece: bytes, *, final: bool = False) -> str:
        """Return the decoded string of the next chunk. ``final`` ends the body. Never raises."""
        if self._unicode is not None:
            return self._unicode.decode(piece, final)
        if self._codec == REPLACEMENT:
            is_first, self._is_replaced = not self._is_replaced and bool(piece), self._is_replaced or bool(piece)
            return _BAD if is_first else ""
        if self._codec == _ISO_2022_JP:
            return self._escaped.decode(piece, final=final)
        if self._codec not in _SEQUENCE:
            return decode(piece, self._codec)
        # White space is never part of a sequence, so the bytes before white space can be decoded without later bytes.
        body = self._held + piece
        end = len(body) if final else max(body.rfind(space) for space in _APART) + 1
        text, self._held = decode(body[:end], self._codec), body[end:]
        if len(self._held) > _PART_BYTES:
            sequences = _SEQUENCE[self._codec].findall(self._held)
            self._held = sequences.pop() if sequences[-1][0] >= _ASCII_END else b""
            text += "".join(map(_sequences(self._codec).__getitem__, sequences))
        return text


_YEN, _OVERLINE, _MINUS, _FULL_MINUS = "\u00a5", "\u203e", "\u2212", "\uff0d"
_HALF_WIDTH = range(0xFF61, 0xFFA0)


def output_codec(codec: str) -> str:
    """Return the codec for sending URLs and forms of a page (Encoding, 4.3).

    It is UTF-8 for UTF-16, ``replacement`` and ``x-user-defined``.
    """
    return "utf-8" if codec in _UNICODE or codec in {REPLACEMENT, USER_DEFINED} else codec


def encode(text: str, codec: str) -> bytes:
    """Return ``text`` encoded with a codec of :func:`codec_of` (or Python's), as browsers send it in URLs and forms.

    A character that the encoding does not have is sent as ``&#...;`` (Encoding, 7: error mode "html").
    """
    codec = output_codec(codec)
    if codec == _ISO_2022_JP:
        return _to_iso_2022_jp(text)
    if codec not in _LABELS_OF_CODEC or codec in _UNICODE:
        return text.encode(codec, "xmlcharrefreplace")
    table = _bytes_of(codec)
    rest = codec if codec == "gb18030" else "ascii"  # gb18030 encodes what the table lacks in four bytes
    return b"".join(table.get(char) or char.encode(rest, "xmlcharrefreplace") for char in text)


_PRIVATE_OF_GBK = (
    "\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864"
)
"""Private characters, each sent as the character that replaced it in GB 18030-2022 (Encoding, 10.2.2)."""


@lru_cache(maxsize=8)
def _bytes_of(codec: str) -> dict[str, bytes]:
    """Return the bytes that encode each character: the first entry of the index that no encoder excludes."""
    if codec == "gbk":
        found = {char: pair for char, pair in _bytes_of("gb18030").items() if len(pair) != len(b"\x81\x35\xf4\x37")}
        return found | {char: char.encode("gb18030") for char in _PRIVATE_OF_GBK} | {"\u20ac": b"\x80"}
    if codec not in _SEQUENCE:
        return {char: bytes((byte,)) for byte, char in enumerate(_characters(codec)) if char != _BAD}
    pairs = [bytes((lead, trail)) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
    pairs = [pair for pair in pairs if _is_encoded(pair, codec)]
    found = dict(zip(decode(b"\n".join(pairs), codec).split("\n")[::-1], pairs[::-1], strict=True))
    if codec == "big5hkscs":  # for these characters, the last entry counts (Encoding, 12.1.2)
        found |= {"═": b"\xf9\xf9", "╞": b"\xf9\xe9", "╡": b"\xf9\xeb", "╪": b"\xf9\xea"}
        found |= {"十": b"\xa4\x51", "卅": b"\xa4\xca"}
    if codec == "gb18030":
        found |= {"\ue5e5": b"&#58853;", "\ue7c7": b"\x81\x35\xf4\x37"}
    if codec in {"euc_jp", "cp932"}:
        found |= {_YEN: b"\\", _OVERLINE: b"~", _MINUS: found[_FULL_MINUS]}
    if codec == "cp932":
        found |= {chr(char): bytes((char - 0xFF61 + 0xA1,)) for char in _HALF_WIDTH} | {"\x80": b"\x80"}
    found.pop(_BAD, None)
    return found | {chr(byte): bytes((byte,)) for byte in range(_ASCII_END)}


def _is_encoded(pair: bytes, codec: str) -> bool:
    lead, trail = pair
    if codec == "cp932":  # exclude NEC's duplicates of IBM's characters, and private characters
        return trail != 0x7F and not 0xA0 <= lead <= 0xDF and lead not in {0xED, 0xEE} and not 0xF0 <= lead <= 0xF9
    return not (codec == "big5hkscs" and lead < 0xA1) and not (codec == "euc_jp" and trail < 0xA1)


def _full_width(char: str) -> str:
    return {"\uff9e": "\u309b", "\uff9f": "\u309c"}.get(char) or unicodedata.normalize("NFKC", char)


def _to_iso_2022_jp(text: str) -> bytes:
    """Return ``text`` encoded in ISO-2022-JP (Encoding, 13.2.2)."""
    sent: list[bytes] = []
    now = b"(B"
    for char in (_full_width(char) if ord(char) in _HALF_WIDTH else char for char in text):
        pair = _bytes_of("euc_jp").get(char, b"") if not char.isascii() else b""
        is_roman = char in {_YEN, _OVERLINE} or (now == b"(J" and char.isascii() and char not in "\\~")
        is_pair = len(pair) == 2 and pair[0] != 0x8E
        is_roman |= now == b"(J" and not char.isascii() and not is_pair  # sent as &#...; without a change of mode
        wanted = b"(J" if is_roman else b"$B" if is_pair else b"(B"
        if wanted != now:
            sent.append(b"\x1b" + wanted)
            now = wanted
        if wanted == b"$B":
            sent.append(bytes(byte & 0x7F for byte in pair))
        else:
            known = {_YEN: "\\", _OVERLINE: "~"}.get(char, char)
            sent.append(("\ufffd" if known in "\x0e\x0f\x1b" else known).encode("ascii", "xmlcharrefreplace"))
    return b"".join(sent) + (b"" if now == b"(B" else b"\x1b(B")
