"""What a page says of its own encoding (HTML, 13.2.3.2: prescan a byte stream to determine its encoding).

Theory of operation: the start of the page is walked tag by tag, as bytes, so that a ``charset`` in a comment, or in
another tag's attribute, does not count. The first ``<meta>`` that names a known encoding decides.
"""

from __future__ import annotations

import re
from functools import lru_cache

from trawl.http.labels import USER_DEFINED, codec_of

__all__ = ["PRESCAN_BYTES", "declared_in_html", "declared_in_xml"]

_USUAL_BYTES = 1024  # where the standard looks first

# When a <meta> comes later, browsers read the page again (HTML, 13.2.3.4); this looks further at once.
PRESCAN_BYTES = 16 * 1024
"""How far into a page a declaration of its encoding is looked for."""

_SPACE = rb"[\t\n\f\r ]"
_META = re.compile(rb"<meta[\t\n\f\r /]", re.IGNORECASE)
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

    A declaration that is itself in UTF-16 tells by its first bytes.
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
    for size in (_USUAL_BYTES, PRESCAN_BYTES):
        start = body[:size]
        named = start.lower().find(b"charset")
        if named >= 0:
            codec = _walk_to(start[: start.find(b">", named) + 1]) or _walk(start)
            if codec is not None:
                return codec
        if len(body) <= size:
            break
    return declared_in_xml(body)


@lru_cache(maxsize=256)
def _walk_to(start: bytes) -> str | None:
    """The same for a page that is cut where its first ``charset`` seems to be over; None where that does not decide.

    The pages of a site begin alike up to there: one of them is walked.
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
    """Return what one ``<meta>`` says: by ``charset``, or by ``content`` where ``http-equiv`` is content-type."""
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
