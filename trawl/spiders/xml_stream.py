"""XML read piece by piece, in bounds: of a sitemap or a feed no more is in memory than the body and one entry.

Nothing in it is believed: entities are not resolved, no DTD is loaded, nothing is fetched, what is packed is unpacked
only up to a limit. Broken XML gives what could be read of it.

Who asks for the next element can't give way to others before it is there. So what may stand before it is bounded, in
bytes and in marks, and so are the members of packed data: a file that passes these bounds counts as longer than the
limit. :attr:`XmlStream.pieces` tells when it is time to give way between two elements.

Ampersands in XML that mean no entity of XML, made right before the parser sees them.

Sitemaps with ``?a=1&b=2`` and feeds with ``&nbsp;`` are common, and libxml2 mends them badly: after the first such
error it drops every further ``&amp;`` of the file, so that URLs lose their ``&``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from html.entities import html5
from typing import TYPE_CHECKING, Any, Literal

from lxml import etree

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["GunzippedBody", "XmlStream", "local_name", "repair_ampersands"]

_OPEN, _CLOSE = b"<![CDATA[", b"]]>"

_LONGEST_REFERENCE = 40

_AMPERSAND = re.compile(
    rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,9}|#x[0-9a-fA-F]{1,8});)(?:([A-Za-z][A-Za-z0-9]{1,31});)?"
)


def repair_ampersands(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return the pieces with HTML's entities as numbers and bare ampersands as ``&amp;``, but for what is in CDATA.

    What is in UTF-16 or UTF-32 stays as it is.
    """
    held = b""
    is_data = False
    is_wide: bool | None = None
    for piece in pieces:
        text = held + piece
        if is_wide is None:
            is_wide = b"\0" in text[:4] or text.startswith((b"\xff\xfe", b"\xfe\xff"))
        if is_wide:
            yield text
            continue
        done, held, is_data = _advanced(text, is_data)
        yield done
    yield held if is_data else _AMPERSAND.sub(_reference, held)


def _advanced(text: bytes, is_data: bool) -> tuple[bytes, bytes, bool]:
    """What can be said of ``text``, what has to wait for more, and whether that is inside CDATA."""
    done: list[bytes] = []
    at = 0
    while True:
        found = text.find(_CLOSE if is_data else _OPEN, at)
        if found < 0:
            break
        part = text[at:found]
        done.append(part if is_data else _AMPERSAND.sub(_reference, part))
        at, is_data = found, not is_data
    rest = text[at:]
    keep = _held_back(rest, is_data)
    part = rest[: len(rest) - keep]
    done.append(part if is_data else _AMPERSAND.sub(_reference, part))
    return b"".join(done), rest[len(rest) - keep :], is_data


def _held_back(text: bytes, is_data: bool) -> int:
    """How many bytes at the end may go on in the next piece: a mark, or a reference."""
    mark = _CLOSE if is_data else _OPEN
    most = max((n for n in range(1, len(mark)) if text.endswith(mark[:n])), default=0)
    start = -1 if is_data else text.rfind(b"&", max(0, len(text) - _LONGEST_REFERENCE))
    return most if start < 0 or b";" in text[start:] else max(most, len(text) - start)


def _reference(match: re.Match[bytes]) -> bytes:
    name = match[1]
    characters = html5.get(f"{name.decode()};") if name else None
    if characters is None:
        return b"&amp;" + match[0][1:]
    return "".join(f"&#{ord(character)};" for character in characters).encode()


PIECE_BYTES = 65_536
"""How much is unpacked and parsed at a time."""

PACKED_BYTES = 4_096
"""How much of packed data is unpacked at a time: zlib copies what is behind a member once for each member."""

MAX_MEMBERS = 10_000
"""Members of one gzip file; honest ones have one, or one for every 64 KiB."""

MAX_BYTES_BETWEEN = 16 * 1024 * 1024
"""Bytes from one element that is asked for to the next."""

MAX_MARKS_BETWEEN = 200_000
"""``<``, ``=`` and ``&`` from one element to the next: what an XML parser's time and memory go by."""

_GZIP = b"\x1f\x8b"

_GZIP_WINDOW = 31


class GunzippedBody:
    """The bytes of a body, gunzipped if it is gzip, in pieces, as far as the limit.

    Attributes:
        is_cut: There was more than the limit.
        is_broken: It ended, or went wrong, in the middle of the gzip data.
    """

    def __init__(self, body: bytes, max_bytes: int) -> None:
        self._body = body
        self._most_bytes = max_bytes
        self.is_cut: bool = False
        self.is_broken: bool = False

    def __iter__(self) -> Iterator[bytes]:
        left = self._most_bytes
        for piece in self._gunzipped() if self._body.startswith(_GZIP) else self._plain():
            self.is_cut = len(piece) > left
            yield piece[:left]
            left -= len(piece)
            if self.is_cut:
                return

    def _plain(self) -> Iterator[bytes]:
        for at in range(0, len(self._body), PIECE_BYTES):
            yield self._body[at : at + PIECE_BYTES]

    def _gunzipped(self) -> Iterator[bytes]:
        body, members = self._body, 1
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            for at in range(0, len(body), PACKED_BYTES):
                packed = body[at : at + PACKED_BYTES]
                while packed:
                    if unpacker.eof:  # a file may be several, one after the other (RFC 1952, 2.2)
                        if not body.startswith(_GZIP, min(at + PACKED_BYTES, len(body)) - len(packed)):
                            return
                        members += 1
                        if members > MAX_MEMBERS:
                            self.is_cut = True
                            return
                        unpacker = zlib.decompressobj(_GZIP_WINDOW)
                    if piece := unpacker.decompress(packed, PIECE_BYTES):
                        yield piece
                    packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            while piece := unpacker.decompress(b"", PIECE_BYTES):  # what a full piece left inside
                yield piece
            self.is_broken = not unpacker.eof
        except zlib.error:
            self.is_broken = True


class XmlStream:
    """The elements of some names, one by one, each whole when it is given and forgotten when the next is asked for.

    Attributes:
        root: The local name of the outermost element; "" while it has not been read, or if there is none.
        pieces: How many pieces have been parsed: work enough between two of them for others to have waited.
    """

    def __init__(self, pieces: GunzippedBody, names: frozenset[str], base_url: str | None = None) -> None:
        self._unpacked = pieces
        self._mended = repair_ampersands(pieces)
        self._has_begun = False
        self._bytes = self._marks = 0
        self.pieces: int = 0
        self.root: str = ""
        first = self._read_root()
        self._parser = _parser(("end",), base_url, tag=[f"{{*}}{name}" for name in names])
        for piece in first:
            _feed(self._parser, piece)

    def _read_root(self) -> list[bytes]:
        """Read as far as the outermost element, with a parser of its own; what has been read."""
        looking = _parser(("start",))
        read: list[bytes] = []
        while not self.root and (piece := self._next()):
            read.append(piece)
            if not _feed(looking, piece):
                break
            for _, element in looking.read_events():
                self.root = local_name(element)
                break
        return read

    def _next(self) -> bytes:
        """One more piece; empty when there is none, or too much has come since the last element."""
        for piece in self._mended:
            # libxml2 minds white space before <?xml, and a piece of nothing is no end.
            text = piece if self._has_begun else piece.lstrip(b" \t\r\n\f\v")
            if text:
                self._has_begun = True
                self.pieces += 1
                self._bytes += len(text)
                self._marks += text.count(b"<") + text.count(b"=") + text.count(b"&")
                if self._bytes > MAX_BYTES_BETWEEN or self._marks > MAX_MARKS_BETWEEN:
                    self._unpacked.is_cut = True
                    return b""
                return text
        return b""

    def __iter__(self) -> Iterator[Element]:
        while True:
            for _, element in self._parser.read_events():
                self._bytes = self._marks = 0
                yield element
                _forget(element)
            piece = self._next()
            if not piece or not _feed(self._parser, piece):
                return


def _parser(events: Sequence[Literal["start", "end"]], base_url: str | None = None, tag: Sequence[str] = ()) -> Any:
    return etree.XMLPullParser(
        events,
        tag=tag or None,
        base_url=base_url,
        recover=True,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _feed(parser: Any, piece: bytes) -> bool:
    """Parse one more piece; False if it is beyond repair."""
    try:
        parser.feed(piece)
    except etree.XMLSyntaxError:
        return False
    return True


def local_name(element: Element) -> str:
    """The name of an element without its namespace; "" for what is none (a comment, an entity)."""
    tag: object = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _forget(element: Element) -> None:
    """Free an element and what came before it."""
    element.clear(keep_tail=False)
    parent = element.getparent()
    if parent is not None:
        while element.getprevious() is not None:
            del parent[0]
