"""The bytes of a body, read as what they are: the type they have and the text they hold."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from trawl.http.labels import REPLACEMENT, USER_DEFINED, codec_of
from trawl.http.prescan import declared_in_html, declared_in_xml
from trawl.selectors import SelectorType

__all__ = ["ContentType", "Decoded", "decode_body", "parse_content_type", "selector_type", "with_legacy_query"]

_PARAMETER = re.compile(r';\s*([^\s;=]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;,"\s]*))')
_SNIFF_BYTES = 1024
_UNTOLD = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-unknown", "*/*"})
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le"))
_C1_END = 0xA0
_BYTES = range(256)


class ContentType(NamedTuple):
    """What a ``Content-Type`` field says (RFC 9110, 8.3).

    Attributes:
        essence: The type, as ``text/html``, in lower case; empty if there is none.
        codec: The codec of its charset; None if it names none that browsers know.
    """

    essence: str
    codec: str | None


class Decoded(NamedTuple):
    """A body as text.

    Attributes:
        text: The text; what could not be decoded is U+FFFD.
        encoding: The codec it was decoded with.
    """

    text: str
    encoding: str


@lru_cache(maxsize=256)  # a site has three or four of them
def parse_content_type(value: str) -> ContentType:
    """Read a ``Content-Type`` field; whatever it holds, this does not raise."""
    essence = value.partition(";")[0].partition(",")[0].strip().lower()
    for name, quoted, token in _PARAMETER.findall(value):
        if name.lower() == "charset":
            return ContentType(essence, codec_of(quoted or token))
    return ContentType(essence, None)


def selector_type(content_type: str | None, body: bytes) -> SelectorType:
    """Say how a page is to be parsed: by its ``Content-Type``, or by how it begins if that tells nothing.

    XHTML is parsed as HTML: most of what is sent so is not well-formed.
    """
    essence = parse_content_type(content_type or "").essence
    if essence in _UNTOLD:
        start = body[:_SNIFF_BYTES].lstrip(b"\xef\xbb\xbf\t\n\f\r ").lower()
        return "xml" if start.startswith(b"<?xml") and b"<html" not in start else "html"
    if essence.endswith(("/json", "+json", "/x-json")):
        return "json"
    if essence.endswith(("/xml", "+xml")) and "xhtml" not in essence:
        return "xml"
    return "html"


def decode_body(body: bytes, content_type: str | None) -> Decoded:
    """Return ``body`` as text, decoded as browsers do (HTML, 13.2.3.2; Encoding, 6). Never raises.

    A byte order mark decides, then the charset of ``content_type``, then what the page says of itself, then UTF-8 if it
    is valid UTF-8, then windows-1252.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return Decoded(body[len(mark) :].decode(codec, "replace"), codec)
    kind = parse_content_type(content_type or "")
    declared = kind.codec or _declared(body, kind.essence)
    if declared is not None:
        return Decoded(_decode(body, declared), declared)
    try:
        return Decoded(body.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        return Decoded(_decode(body, "cp1252"), "cp1252")


def _declared(body: bytes, essence: str) -> str | None:
    """Return the codec that a page of this type names for itself; plain text, JSON and scripts can't."""
    if essence in _UNTOLD or essence == "text/html" or "xhtml" in essence:
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
