"""Finds the type and the encoding of a body, and decodes the body to text, with the rules of browsers.

Prescan (HTML, 13.2.3.2): the start of the page is scanned tag by tag, as bytes, so that a ``charset`` in a comment or
in another tag's attribute does not count. The first ``<meta>`` that names a known encoding decides.

``w3lib.encoding`` (2.5) does not follow these rules: it raises ``LookupError`` for the encoding ``hex``, decodes bytes
that browsers refuse (``iso-2022-kr``), accepts a ``<meta>`` in a script or in plain text, and takes longer.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from trawl.http.encodings import USER_DEFINED, Decoder, codec_of, decode, encode, label_of, output_codec
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
    "with_charset",
    "with_legacy_query",
]

_FIRST_BYTES = 1024  # the limit of the prescan in the standard


# If a browser finds a <meta> after the first 1,024 bytes, it reads the page again (HTML, 13.2.3.4). Instead, this
# module searches PRESCAN_BYTES in one pass.
PRESCAN_BYTES = 16 * 1024
"""Number of bytes of a page that are searched for a declaration of its encoding."""

# The pattern starts with a fixed byte, because a search for one byte is faster than a search for two.
_META = re.compile(rb"<[mM][eE][tT][aA][\t\n\f\r /]")

_NAMED = re.compile(rb"charset", re.IGNORECASE)
_TAG = re.compile(rb"</?[a-z][^\t\n\f\r >]*+", re.IGNORECASE)
_RAW_TEXT = frozenset({b"<script", b"<style", b"<title", b"<textarea", b"<xmp", b"<iframe", b"<noembed", b"<noframes"})
_NAME = re.compile(rb"[\t\n\f\r /]*+([^\t\n\f\r />][^\t\n\f\r />=]*+)")

_VALUE = re.compile(
    rb"[\t\n\f\r ]*+(?:=[\t\n\f\r ]*+"
    rb"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)(?=[\t\n\f\r >])|(?=>))"
    rb"|(?=[^=]))"  # an attribute without a value
)

_CHARSET = re.compile(
    rb"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^\t\n\f\r ;]*))", re.IGNORECASE
)

_XML_ENCODING = re.compile(
    rb"<\?xml(?>[^>]*?encoding)[\x00-\x20]*+=[\x00-\x20]*+(?:\"([^\">\x00-\x20]*)\"|'([^'>\x00-\x20]*)')(?=[^>]*>)"
)

_Attributes = dict[bytes, bytes]


def declared_in_xml(body: bytes) -> str | None:
    """Return the codec named by an XML declaration at the start of ``body``; None if there is none."""
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
    """Return the codec of the page's first ``<meta>`` with a known encoding, or of its XML declaration."""
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
    """Return the codec of the first tag that names a codec; None if no tag does, or if the last tag does not end.

    With ``is_late``, scripts and other elements that contain text are skipped, as browsers do after the prescan.
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


# The results are cached, because the pages of a site are often equal up to their first charset.
_walk_to = lru_cache(maxsize=256)(_walk)


def _attributes(start: bytes, at: int) -> tuple[_Attributes, int]:
    """Return the attributes of the tag at ``at``, the first of each name, and the position after them.

    If an attribute is incomplete, the position is the end of ``start``.
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
    """Return the codec of a ``<meta>``, from ``charset``, or from ``content`` if ``http-equiv`` is content-type."""
    if (label := attributes.get(b"charset")) is not None:
        return _as_read(label)
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    match = _CHARSET.search(attributes.get(b"content", b""))
    return None if match is None or match[3] else _as_read(match[1] or match[2] or match[4] or b"")


def _as_read(label: bytes) -> str | None:
    """Return the codec for a label that was found by reading the page as ASCII.

    A label for UTF-16 must be wrong then, because a page in UTF-16 is not readable as ASCII.
    """
    codec = codec_of(label.decode("latin-1"))
    if codec in {"utf-16-le", "utf-16-be"}:
        return "utf-8"
    return "cp1252" if codec == USER_DEFINED else codec


_PARAMETER = re.compile(r';\s*([^\s;=]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;,"\s]*))')
_SNIFF_BYTES = 1024

UNTOLD_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-unknown", "*/*"})
"""Types that don't describe the content, so that the body is checked."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le"))
_UTF_32_BOMS = ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF32_LE, "utf-32-le"))  # only for XML (XML 1.0, F.1)
_WIDE = frozenset({"utf-16-be", "utf-16-le"})

_WIDE_XML = re.compile(rb"(?:[\t\n\r ]\0)*+<\0[^\0]\0|((?:\0[\t\n\r ])*+\0<\0[^\0])")
"""The first bytes of XML in UTF-16 (XML 1.0, F.1). The group matches if the byte order is big-endian."""


class ContentType(NamedTuple):
    """A ``Content-Type`` header (RFC 9110, 8.3): the type, such as ``text/html``, and the codec of a known charset."""

    essence: str
    codec: str | None


class BodyText(NamedTuple):
    """A body as text, with U+FFFD for bytes that could not be decoded, and the codec that decoded it."""

    text: str
    encoding: str


@lru_cache(maxsize=256)  # a site uses only three or four different headers
def parse_content_type(value: str) -> ContentType:
    """Parse a ``Content-Type`` header. Never raises."""
    essence = value.partition(";")[0].partition(",")[0].strip().lower()
    for name, quoted, token in _PARAMETER.findall(value):
        if name.lower() == "charset":
            return ContentType(essence, codec_of(quoted or token))
    return ContentType(essence, None)


def with_charset(content_type: str | None, encoding: str) -> str:
    """Return a ``Content-Type`` header with another charset: a label, or the name of one of Python's codecs.

    A missing type becomes ``application/octet-stream``, which says as little about the content (RFC 9110, 8.3).
    """
    value = content_type or ""
    others = "".join(found[0] for found in _PARAMETER.finditer(value) if found[1].lower() != "charset")
    essence = parse_content_type(value).essence or "application/octet-stream"
    return f"{essence}{others}; charset={label_of(encoding)}"


def selector_type(content_type: str | None, body: bytes) -> SelectorType:
    """Return the selector type for parsing a page. The first bytes decide if ``Content-Type`` is missing or generic.

    XHTML is parsed as HTML, because most XHTML pages are not well-formed.
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


def told_encoding(body: bytes, content_type: str | None, *, is_xml: bool = False) -> tuple[str | None, int]:
    """Return the declared codec of a body (None if undeclared), and the length of its byte order mark in bytes.

    The byte order mark takes precedence, then the charset of ``content_type``, then the declaration in the body, of
    which the first :data:`PRESCAN_BYTES` suffice. With ``is_xml``, the body is XML even if ``content_type`` is not. In
    XML, the first bytes decide whether the body is UTF-16, and in which order. A declaration of UTF-16 does not count,
    because .NET writes it into UTF-8 files.
    """
    kind = parse_content_type(content_type or "")
    is_xml = is_xml or (kind.essence.endswith(("/xml", "+xml")) and "xhtml" not in kind.essence)
    for mark, codec in (*_UTF_32_BOMS, *_BOMS) if is_xml else _BOMS:
        if body.startswith(mark):
            return codec, len(mark)
    if is_xml and (wide := _WIDE_XML.match(body)) is not None:
        return "utf-16-be" if wide[1] else "utf-16-le", 0
    if kind.codec is not None and not (is_xml and kind.codec in _WIDE and b"\0" not in body[:2]):
        return kind.codec, 0
    if is_xml:  # white space before the declaration is an error, but is ignored
        return declared_in_xml(body.lstrip(b"\t\n\v\f\r ")), 0
    if kind.essence in UNTOLD_TYPES or kind.essence == "text/html" or "xhtml" in kind.essence:
        return declared_in_html(body), 0
    return None, 0  # plain text, JSON and scripts can't declare an encoding


def decode_body(body: bytes, content_type: str | None, guess: Callable[[bytes], str] | None = None) -> BodyText:
    """Return ``body`` as text, decoded with the rules of browsers (HTML, 13.2.3.2; Encoding, 6). Never raises.

    The result of :func:`told_encoding` takes precedence, then UTF-8 if the body is valid UTF-8, then the result of
    ``guess`` (default: windows-1252).
    """
    told, mark = told_encoding(body, content_type)
    if told is not None:
        return BodyText(decode(body[mark:], told), told)
    try:
        return BodyText(body.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        guessed = "cp1252" if guess is None else guess(body)
        return BodyText(decode(body, guessed), guessed)


def decode_pieces(pieces: Iterable[bytes], content_type: str | None, *, is_xml: bool = False) -> Iterator[str]:
    """Yield the text of a body in chunks, decoded like :func:`decode_body`. Never raises.

    If no encoding is declared, the first chunk with a non-ASCII byte decides, because later chunks are not available
    yet. With ``is_xml``, the body is XML even if ``content_type`` is not.
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
    """Return the codec of UTF-8 if a chunk of a body may be UTF-8; otherwise, the codec of windows-1252."""
    try:
        codecs.utf_8_decode(piece, "strict", is_last)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def with_legacy_query(url: str, encoding: str) -> str:
    """Return a link with its query percent-encoded in the page's ``encoding``, like browsers (WHATWG URL, 4.4).

    For pages in UTF-8 and UTF-16, the query is encoded in UTF-8 later, when the URL is parsed. A character that the
    encoding does not have is sent as ``&#...;``, percent-encoded.
    """
    if output_codec(encoding) == "utf-8":
        return url
    path, mark, rest = url.partition("?")
    if "#" in path:
        return url
    query, hash_, fragment = rest.partition("#")
    encoded = _NOT_ASCII.sub(lambda found: quote(encode(found[0], encoding), safe=""), query)
    return f"{path}{mark}{encoded}{hash_}{fragment}"
