"""XML read piece by piece, in bounds: of a sitemap or a feed no more is in memory than the body and one entry.

Nothing in it is believed: entities are not resolved, no DTD is loaded, nothing is fetched, what is packed is unpacked
only up to a limit. Broken XML gives what could be read of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lxml import etree

from trawl.spiders.xml_mending import mended

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["Unpacked", "XmlPieces", "local_name"]

PIECE_BYTES = 65_536
"""How much is unpacked and parsed at a time."""

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31


class Unpacked:
    """The bytes of a body, gunzipped if it is gzip, in pieces, as far as the limit.

    Attributes:
        is_cut: There was more than the limit.
        is_broken: It ended, or went wrong, in the middle of the gzip data.
    """

    def __init__(self, body: bytes, most_bytes: int) -> None:
        self._body = body
        self._most_bytes = most_bytes
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
        packed = self._body
        try:
            while packed.startswith(_GZIP):  # a file may be several, one after the other (RFC 1952, 2.2)
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
                while not unpacker.eof:
                    piece = unpacker.decompress(packed, PIECE_BYTES)
                    packed = unpacker.unconsumed_tail
                    if not piece and not packed and not unpacker.eof:
                        self.is_broken = True
                        return
                    if piece:
                        yield piece
                packed = unpacker.unused_data
        except zlib.error:
            self.is_broken = True


class XmlPieces:
    """The elements of some names, one by one, each whole when it is given and forgotten when the next is asked for.

    Attributes:
        root: The local name of the outermost element; "" while it has not been read, or if there is none.
    """

    def __init__(self, pieces: Unpacked, names: frozenset[str], base_url: str | None = None) -> None:
        self._pieces = mended(pieces)
        self._names = names
        self._parser: Any = etree.XMLPullParser(
            ("start", "end"),
            base_url=base_url,
            recover=True,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        self._has_begun = False
        self.root: str = ""
        self._read_root()

    def _read_root(self) -> None:
        """Read as far as the outermost element."""
        while not self.root and self._feed():
            for _, element in self._parser.read_events():
                self.root = local_name(element)
                return

    def _feed(self) -> bool:
        """Parse one more piece; False when there is none, or what comes is beyond repair."""
        for piece in self._pieces:
            # libxml2 minds white space before <?xml, and a piece of nothing is no end.
            text = piece if self._has_begun else piece.lstrip(b" \t\r\n\f\v")
            if text:
                self._has_begun = True
                return self._parsed(text)
        return False

    def _parsed(self, piece: bytes) -> bool:
        try:
            self._parser.feed(piece)
        except etree.XMLSyntaxError:
            return False
        return True

    def __iter__(self) -> Iterator[Element]:
        while True:
            for event, element in self._parser.read_events():
                if event == "end" and local_name(element) in self._names:
                    yield element
                    _forget(element)
            if not self._feed():
                return


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
