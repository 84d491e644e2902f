"""A body as text: its type, its encoding, and the decoding, as browsers do it.

One decision for pages, feeds, sitemaps, CSV and robots.txt: :func:`told_encoding`. :func:`decode_body` decodes a whole
body, :func:`decode_pieces` a body in pieces.

Prescan (HTML, 13.2.3.2): the start of the page is walked tag by tag, as bytes, so that a ``charset`` in a comment, or
in another tag's attribute, does not count. The first ``<meta>`` that names a known encoding decides.

``w3lib.encoding`` (2.5) does not do that: it raises ``LookupError`` for a page that calls its encoding ``hex``, decodes
the bytes that browsers refuse (``iso-2022-kr``), believes a ``<meta>`` in a script, an attribute or plain text, and
takes 1.6 to 3.5 times as long on a page that declares its encoding; 10 tests of ``test_content.py`` fail with it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from trawl.http.encodings import USER_DEFINED, Decoder, codec_of, decode, encode, output_codec
from trawl.selectors import SelectorType

__all__ = [
    "PRESCAN_BYTES",
    "UNTOLD_TYPES",
    "BodyText",
    "ContentType",
    "declared_in_html",
    "declared_in_xml",
    "decode_body",
    "decode_pieces",
    "parse_content_type",
    "selector_type",
    "told_encoding",
    "with_legacy_query",
]

_FIRST_BYTES = 1024  # the standard's own limit


# When a <meta> comes later, browsers read the page again (HTML, 13.2.3.4); this looks further at once.
PRESCAN_BYTES = 16 * 1024
"""Bytes of a page in which a declaration of its encoding is looked for."""

_META = re.compile(rb"<[mM][eE][tT][aA][\t\n\f\r /]")  # starts with one byte, which is found faster than any of two

_NAMED = re.compile(rb"charset", re.IGNORECASE)

_TAG = re.compile(rb"</?[a-z][^\t\n\f\r >]*+", re.IGNORECASE)

_RAW_TEXT = frozenset({b"<script", b"<style", b"<title", b"<textarea", b"<xmp", b"<iframe", b"<noembed", b"<noframes"})

_NAME = re.compile(rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)")

_VALUE = re.compile(
    rb"[\t\n\f\r ]*+(?:=[\t\n\f\r ]*+"
    rb"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)(?=[\t\n\f\r >])|(?=>))"
    rb"|(?=[^=]))"  # no value
)

_CHARSET = re.compile(
    rb"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^\t\n\f\r ;]*))", re.IGNORECASE
)

_XML_ENCODING = re.compile(
    rb"<\?xml(?>[^>]*?encoding)[\x00-\x20]*+=[\x00-\x20]*+(?:\"([^\">\x00-\x20]*)\"|'([^'>\x00-\x20]*)')(?=[^>]*>)"
)

_Attributes = dict[bytes, bytes]


def declared_in_xml(body: bytes) -> str | None:
    """Return the codec that an XML declaration at the very start names, or None.

    A declaration in UTF-16 or UTF-32 is known by its first bytes.
    """
    if body.startswith((b"<\x00\x00\x00", b"\x00\x00\x00<")):
        return "utf-32-le" if body[0] else "utf-32-be"
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
                is_late = size > _FIRST_BYTES
                codec = _walk_to(start[: start.find(b">", named.end()) + 1], is_late) or _walk(start, is_late)
                if codec is not None:
                    return codec
            if len(body) <= size:
                break
    return declared_in_xml(body)


def _walk(start: bytes, is_late: bool) -> str | None:
    """Go from tag to tag until one decides; None if none decides, or the last tag does not end.

    ``is_late`` skips scripts and other text, as the parser does that finds a late ``<meta>``; the prescan does not.
    """
    at = start.find(b"<")
    while at >= 0:
        if start.startswith(b"<!--", at):
            end = start.find(b"-->", at + 2)  # "<!-->" is a whole comment
            if end < 0:
                return None
            at = end + 2
        elif tag := _TAG.match(start, at):
            is_meta = _META.match(start, at) is not None
            attributes, at = _attributes(start, at + len(b"<meta") if is_meta else tag.end())
            if at == len(start):
                return None
            codec = _meta_codec(attributes) if is_meta else None
            if codec is not None:
                return codec
            if is_late and (name := tag[0].lower()) in _RAW_TEXT:
                closing = re.compile(b"</" + name[1:], re.IGNORECASE).search(start, at)
                if closing is None:
                    return None
                at = closing.start() - 1
        elif start.startswith((b"<!", b"</", b"<?"), at):
            at = start.find(b">", at)
            if at < 0:
                return None
        at = start.find(b"<", at + 1)
    return None


# The pages of a site start alike up to their first charset.
_walk_to = lru_cache(maxsize=256)(_walk)


def _attributes(start: bytes, at: int) -> tuple[_Attributes, int]:
    """Read the attributes from ``at`` on; return them, the first of each name, and where they end.

    That is the end of ``start`` if one of them does not end before.
    """
    attributes: _Attributes = {}
    while name := _NAME.match(start, at):
        value = _VALUE.match(start, name.end())
        if value is None:
            return attributes, len(start)
        attributes.setdefault(name[1].lower(), value[1] or value[2] or value[3] or b"")
        at = value.end()
    end = start.find(b">", at)
    return attributes, len(start) if end < 0 else end


def _meta_codec(attributes: _Attributes) -> str | None:
    """Return the codec of one ``<meta>``: of its ``charset``, or its ``content`` if ``http-equiv`` is content-type."""
    if (label := attributes.get(b"charset")) is not None:
        return _as_read(label)
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    match = _CHARSET.search(attributes.get(b"content", b""))
    return None if match is None or match[3] else _as_read(match[1] or match[2] or match[4] or b"")


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

_UTF_32_BOMS = ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF32_LE, "utf-32-le"))  # XML 1.0, F.1; of no page

_WIDE = frozenset({"utf-16-be", "utf-16-le"})

_WIDE_XML = re.compile(rb"(?:[\t\n\r ]\0)*+<\0[^\0]\0|((?:\0[\t\n\r ])*+\0<\0[^\0])")
"""The start of XML in UTF-16, which no other encoding has (XML 1.0, F.1); the group is in big-endian order."""


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


def told_encoding(body: bytes, content_type: str | None, *, is_xml: bool = False) -> tuple[str | None, int]:
    """Return the codec that a body is told to be in (None: by nothing), and the bytes of its byte order mark.

    The mark decides, then the charset of ``content_type``, then the body's own declaration.

    Args:
        body: The body, or its first :data:`PRESCAN_BYTES`.
        content_type: The ``Content-Type`` field.
        is_xml: The body is XML, whatever its type. The first bytes of XML tell UTF-16 and its byte order, whatever is
            declared: .NET writes UTF-8 with such declarations.
    """
    kind = parse_content_type(content_type or "")
    is_xml = is_xml or _is_xml(kind.essence)
    for mark, codec in (*_UTF_32_BOMS, *_BOMS) if is_xml else _BOMS:
        if body.startswith(mark):
            return codec, len(mark)
    if is_xml and (wide := _WIDE_XML.match(body)) is not None:
        return "utf-16-be" if wide[1] else "utf-16-le", 0
    if kind.codec is not None and not (is_xml and kind.codec in _WIDE and b"\0" not in body[:2]):
        return kind.codec, 0
    if is_xml:  # white space before the declaration is an error, but not a reason to read other characters
        return declared_in_xml(body.lstrip(b"\t\n\v\f\r ")), 0
    if kind.essence in UNTOLD_TYPES or kind.essence == "text/html" or "xhtml" in kind.essence:
        return declared_in_html(body), 0
    return None, 0  # plain text, JSON and scripts can't declare one


def _is_xml(essence: str) -> bool:
    return essence.endswith(("/xml", "+xml")) and "xhtml" not in essence


def decode_body(body: bytes, content_type: str | None, guess: Callable[[bytes], str] = _windows_1252) -> BodyText:
    """Return ``body`` as text, decoded as browsers do (HTML, 13.2.3.2; Encoding, 6). Never raises.

    :func:`told_encoding` decides, then UTF-8 if the body is valid UTF-8, then what ``guess`` says: windows-1252.
    """
    told, mark = told_encoding(body, content_type)
    if told is not None:
        return BodyText(decode(body[mark:], told), told)
    try:
        return BodyText(body.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        guessed = guess(body)
        return BodyText(decode(body, guessed), guessed)


def decode_pieces(pieces: Iterable[bytes], content_type: str | None, *, is_xml: bool = False) -> Iterator[str]:
    """Yield the text of a body that comes in pieces, decoded as :func:`decode_body` does. Never raises.

    If nothing names the encoding, the first piece with a byte that is not ASCII decides: a later one may not be read.

    Args:
        pieces: The body.
        content_type: The ``Content-Type`` field.
        is_xml: The body is XML, whatever its type.
    """
    source = iter(pieces)
    start = b""
    for piece in source:
        start += piece
        if len(start) >= PRESCAN_BYTES:
            break
    told, mark = told_encoding(start, content_type, is_xml=is_xml)
    decoder = None if told is None else Decoder(told)
    piece = start[mark:]
    while True:
        following = next(source, None)
        is_last = following is None
        if decoder is None and not piece.isascii():
            decoder = Decoder(_told_by(piece, is_last=is_last))
        yield piece.decode("ascii") if decoder is None else decoder.decode(piece, final=is_last)
        if following is None:
            return
        piece = following


def _told_by(piece: bytes, *, is_last: bool) -> str:
    """Return UTF-8 if a piece of a body may be that, else windows-1252."""
    try:
        codecs.utf_8_decode(piece, "strict", is_last)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def with_legacy_query(url: str, encoding: str) -> str:
    """Return a link with its query percent-encoded in the page's ``encoding``, as browsers do (WHATWG URL, 4.4).

    UTF-8 and UTF-16 pages send UTF-8, which is what parsing the URL does anyway. A character that the encoding lacks is
    sent as ``&#...;``, percent-encoded.
    """
    if output_codec(encoding) == "utf-8":
        return url
    path, mark, rest = url.partition("?")
    if "#" in path:
        return url
    query, hash_, fragment = rest.partition("#")
    encoded = _NOT_ASCII.sub(lambda found: quote(encode(found[0], encoding), safe=""), query)
    return f"{path}{mark}{encoded}{hash_}{fragment}"
