"""A body as text: its type, its encoding, and the decoding, as browsers do it.

Labels (WHATWG Encoding, 4.2): only the names in the standard's table count; the many other names of Python's codecs
(``hex``, ``utf-7``, ``idna``, ...) do not. Browsers read some names as a superset (``iso-8859-1`` as windows-1252,
``gb2312`` as gb18030), and so does the table here.

Prescan (HTML, 13.2.3.2): the start of the page is walked tag by tag, as bytes, so that a ``charset`` in a comment, or
in another tag's attribute, does not count. The first ``<meta>`` that names a known encoding decides.

``w3lib.encoding`` (2.5) does neither: it raises ``LookupError`` for a page that calls its encoding ``hex``, decodes the
bytes that browsers refuse (``iso-2022-kr``), believes a ``<meta>`` in a script, an attribute or plain text, and takes
1.6 to 3.5 times as long on a page that declares its encoding; 10 tests of ``tests/http/test_content.py`` fail with it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from trawl.selectors import SelectorType

__all__ = [
    "PRESCAN_BYTES",
    "REPLACEMENT",
    "UNTOLD_TYPES",
    "USER_DEFINED",
    "BodyText",
    "ContentType",
    "codec_of",
    "declared_in_html",
    "declared_in_xml",
    "decode_body",
    "parse_content_type",
    "selector_type",
    "with_legacy_query",
]

REPLACEMENT = "replacement"
"""Stands for the encodings that browsers refuse to decode, as they have been used to hide scripts (Encoding, 14.1)."""

USER_DEFINED = "x-user-defined"
"""Bytes above 0x7F are private characters (Encoding, 14.5); Python has no codec for it."""

_LABELS_OF_CODEC = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": (
        "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
        "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987"
    ),
    "iso8859-7": (
        "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
        "iso_8859-7:1987 sun_eu_greek"
    ),
    "iso8859-8": (
        "csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-8859-8-i iso-ir-138 "
        "iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 logical visual"
    ),
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": (
        "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
        "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252"
    ),
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": (
        "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
        "windows-1254 x-cp1254"
    ),
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb18030 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp_ext": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": (
        "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949"
    ),
    REPLACEMENT: "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    USER_DEFINED: "x-user-defined",
}

_CODEC_OF_LABEL = MappingProxyType(
    {label: codec for codec, labels in _LABELS_OF_CODEC.items() for label in labels.split()}
)


def codec_of(label: str) -> str | None:
    """Return the codec for a page's name of its encoding, in any case; None for an unknown name."""
    return _CODEC_OF_LABEL.get(label.strip("\t\n\f\r ").lower())


_FIRST_BYTES = 1024  # the standard's own limit


# When a <meta> comes later, browsers read the page again (HTML, 13.2.3.4); this looks further at once.
PRESCAN_BYTES = 16 * 1024
"""Bytes of a page in which a declaration of its encoding is looked for."""

_SPACE = rb"[\t\n\f\r ]"

_META = re.compile(rb"<[mM][eE][tT][aA][\t\n\f\r /]")  # begins with one byte, which is found faster than any of two

_NAMED = re.compile(rb"charset", re.IGNORECASE)

_TAG = re.compile(rb"</?[a-z][^\t\n\f\r >]*", re.IGNORECASE)

_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"  # the name
    rb"(?:" + _SPACE + rb"*=" + _SPACE + rb"*"
    rb"(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r >]*)))?"
)

_CHARSET = re.compile(
    rb"charset" + _SPACE + rb"*=" + _SPACE + rb"*(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"']+))", re.IGNORECASE
)

_XML_ENCODING = re.compile(rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"> ]*)\"|'([^'> ]*)')")

_Attributes = dict[bytes, bytes]


def declared_in_xml(body: bytes) -> str | None:
    """Return the codec that an XML declaration at the very start names, or None.

    A declaration in UTF-16 is known by its first bytes.
    """
    if body.startswith(b"<\x00?\x00x\x00"):
        return "utf-16-le"
    if body.startswith(b"\x00<\x00?\x00x"):
        return "utf-16-be"
    match = _XML_ENCODING.match(body, 0, PRESCAN_BYTES)
    if match is None:
        return None
    return _as_read(match[1] or match[2] or b"")


def declared_in_html(body: bytes) -> str | None:
    """Return the codec that the page's first ``<meta>`` with a known encoding names, else its XML declaration's."""
    meta = _META.search(body, 0, PRESCAN_BYTES)
    if meta is not None:
        for size in (_FIRST_BYTES, PRESCAN_BYTES):
            named = _NAMED.search(body, meta.end(), size)
            if named is not None:
                start = body[:size]
                codec = _walk_to(start[: start.find(b">", named.end()) + 1]) or _walk(start)
                if codec is not None:
                    return codec
            if len(body) <= size:
                break
    return declared_in_xml(body)


@lru_cache(maxsize=256)
def _walk_to(start: bytes) -> str | None:
    """Walk a page that is cut after its first ``charset``; None if that does not decide.

    The pages of a site begin alike up to there, so one of them is walked.
    """
    last = start[start.rfind(b"<") :]
    is_whole = not last.count(b'"') % 2 and not last.count(b"'") % 2
    return _walk(start) if is_whole else None


def _walk(start: bytes) -> str | None:
    """Go from tag to tag until one decides."""
    at = start.find(b"<")
    while at >= 0:
        if start.startswith(b"<!--", at):
            end = start.find(b"-->", at + 2)  # "<!-->" is a whole comment
            if end < 0:
                return None
            at = end + 2
        elif _META.match(start, at):
            attributes, at = _attributes(start, at + 5)
            codec = _meta_codec(attributes)
            if codec is not None:
                return codec
        elif tag := _TAG.match(start, at):
            _, at = _attributes(start, tag.end())
        elif start.startswith((b"<!", b"</", b"<?"), at):
            at = start.find(b">", at)
            if at < 0:
                return None
        at = start.find(b"<", at + 1) if at < len(start) else -1
    return None


def _attributes(start: bytes, at: int) -> tuple[_Attributes, int]:
    """Read the attributes from ``at`` on; return them, the first of each name, and where the last ends."""
    attributes: _Attributes = {}
    while match := _ATTRIBUTE.match(start, at):
        value = match[2] or match[3] or match[4] or b""
        attributes.setdefault(match[1].lower(), value)
        at = match.end()
    return attributes, at


def _meta_codec(attributes: _Attributes) -> str | None:
    """Return the codec of one ``<meta>``: of its ``charset``, or its ``content`` if ``http-equiv`` is content-type."""
    if (label := attributes.get(b"charset")) is not None:
        return _as_read(label)
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    match = _CHARSET.search(attributes.get(b"content", b""))
    return None if match is None else _as_read(match[1] or match[2] or match[3] or b"")


def _as_read(label: bytes) -> str | None:
    """Return the codec for a label that could be read as ASCII, so that it can't be UTF-16 whatever it says."""
    codec = codec_of(label.decode("latin-1"))
    if codec in {"utf-16-le", "utf-16-be"}:
        return "utf-8"
    return "cp1252" if codec == USER_DEFINED else codec


_PARAMETER = re.compile(r';\s*([^\s;=]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;,"\s]*))')

_SNIFF_BYTES = 1024

UNTOLD_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-unknown", "*/*"})
"""Types that tell nothing of the content, which is looked at then."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le"))

_C1_END = 0xA0

_BYTES = range(256)


class ContentType(NamedTuple):
    """A ``Content-Type`` field (RFC 9110, 8.3).

    Attributes:
        essence: The type, as ``text/html``, in lower case; empty if there is none.
        codec: The codec of its charset; None if it names none that browsers know.
    """

    essence: str
    codec: str | None


class BodyText(NamedTuple):
    """A body as text.

    Attributes:
        text: The text; bytes that could not be decoded are U+FFFD.
        encoding: The codec used.
    """

    text: str
    encoding: str


@lru_cache(maxsize=256)  # a site has three or four of them
def parse_content_type(value: str) -> ContentType:
    """Read a ``Content-Type`` field. Never raises."""
    essence = value.partition(";")[0].partition(",")[0].strip().lower()
    for name, quoted, token in _PARAMETER.findall(value):
        if name.lower() == "charset":
            return ContentType(essence, codec_of(quoted or token))
    return ContentType(essence, None)


def selector_type(content_type: str | None, body: bytes) -> SelectorType:
    """Return the way to parse a page: by its ``Content-Type``, or by its first bytes if that tells nothing.

    XHTML is parsed as HTML: most of what is sent so is not well-formed.
    """
    essence = parse_content_type(content_type or "").essence
    if essence in UNTOLD_TYPES:
        start = body[:_SNIFF_BYTES].lstrip(b"\xef\xbb\xbf\t\n\f\r ").lower()
        return "xml" if start.startswith(b"<?xml") and b"<html" not in start else "html"
    if essence.endswith(("/json", "+json", "/x-json")):
        return "json"
    if essence.endswith(("/xml", "+xml")) and "xhtml" not in essence:
        return "xml"
    return "html"


def _windows_1252(body: bytes) -> str:
    return "cp1252"


def decode_body(body: bytes, content_type: str | None, guess: Callable[[bytes], str] = _windows_1252) -> BodyText:
    """Return ``body`` as text, decoded as browsers do (HTML, 13.2.3.2; Encoding, 6). Never raises.

    A byte order mark decides, then the charset of ``content_type``, then the page's own declaration, then UTF-8 if it
    is valid UTF-8, then what ``guess`` says: windows-1252.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return BodyText(body[len(mark) :].decode(codec, "replace"), codec)
    kind = parse_content_type(content_type or "")
    declared = kind.codec or _declared(body, kind.essence)
    if declared is not None:
        return BodyText(_decode(body, declared), declared)
    try:
        return BodyText(body.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        guessed = guess(body)
        return BodyText(_decode(body, guessed), guessed)


def _declared(body: bytes, essence: str) -> str | None:
    """Return the codec that a page of this type names for itself; plain text, JSON and scripts can't."""
    if essence in UNTOLD_TYPES or essence == "text/html" or "xhtml" in essence:
        return declared_in_html(body)
    return declared_in_xml(body) if essence.endswith(("/xml", "+xml")) else None


def _decode(body: bytes, codec: str) -> str:
    if codec == "utf-8":
        return body.decode("utf-8", "replace")
    if codec == REPLACEMENT:
        return "\ufffd" if body else ""
    if codec == USER_DEFINED:
        return codecs.charmap_decode(body, "strict", _user_defined())[0]
    if codec.startswith("cp12") or codec == "cp874":
        return codecs.charmap_decode(body, "strict", _windows(codec))[0]
    return body.decode(codec, "replace")


@lru_cache(maxsize=16)
def _windows(codec: str) -> str:
    """Return the 256 characters of a Windows code page; bytes that Python lacks are C1 controls (Encoding, 9)."""
    decoded = [bytes((byte,)).decode(codec, "replace") for byte in _BYTES]
    return "".join(
        chr(byte) if char == "\ufffd" and byte < _C1_END else char for byte, char in zip(_BYTES, decoded, strict=True)
    )


@lru_cache(maxsize=1)
def _user_defined() -> str:
    return "".join(chr(byte) if byte < 0x80 else chr(0xF780 + byte - 0x80) for byte in _BYTES)


def with_legacy_query(url: str, encoding: str) -> str:
    """Return a link with its query percent-encoded in the page's ``encoding``, as browsers do (WHATWG URL, 4.4).

    UTF-8 and UTF-16 pages send UTF-8, which is what parsing the URL does anyway. A character that the encoding lacks is
    sent as ``&#...;``, percent-encoded.
    """
    if encoding in {"utf-8", "utf-16-le", "utf-16-be", REPLACEMENT, USER_DEFINED}:
        return url
    path, mark, rest = url.partition("?")
    if "#" in path:
        return url
    query, hash_, fragment = rest.partition("#")
    encoded = "".join(
        char if char.isascii() else quote(char.encode(encoding, "xmlcharrefreplace"), safe="") for char in query
    )
    return f"{path}{mark}{encoded}{hash_}{fragment}"
