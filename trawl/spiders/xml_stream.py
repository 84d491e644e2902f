"""Incremental XML parsing with limits. Only the body and one entry of a sitemap or feed are in memory.

The input is not trusted. Entities are not resolved, no DTD is loaded, nothing is fetched, and compressed data is
unpacked only up to a limit. If XML is broken, as much as possible is read.

libxml2 can't decode the body like a browser, because it knows other labels of encodings, gives some labels another
meaning, and stops without an error at bytes or characters that it does not allow. So
:func:`trawl.http.content.decode_pieces` decodes the body, characters that XML excludes become U+FFFD, and libxml2 gets
only UTF-8.

While a task iterates to the next element, no other task can run. So the number of bytes and markup characters between
two elements is limited, as is the number of members of compressed data. A file that exceeds these limits is treated
like a file that is too long. When :attr:`XmlStream.pieces` increases, the caller must let other tasks run before it
requests the next element.

``recover=True`` of lxml 6.1 (libxml2 2.14) is not sufficient. Sitemaps with ``?a=1&b=2`` and feeds with ``&nbsp;`` are
common. After the first such error, libxml2 drops every ``&amp;`` of the file, so that ``?a=1&amp;b=2`` becomes
``?a=1b=2``. Therefore, :func:`repair_ampersands` repairs the text first.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from html.entities import html5
from typing import TYPE_CHECKING, Any, Literal

from lxml import etree

from trawl.http.content import decode_pieces
from trawl.selectors import NO_XML

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["GzipBody", "XmlStream", "local_name", "namespace_of", "repair_ampersands"]

_OPEN, _CLOSE = "<![CDATA[", "]]>"
_LONGEST_REFERENCE = 40
_AMPERSAND = re.compile(
    r"&(?!(?:amp|lt|gt|quot|apos);)(?:(#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,31});)?", re.ASCII
)
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r"})
_CODE_POINTS = 0x110000


def repair_ampersands(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces, with HTML entities replaced by numeric references, and bare ampersands by ``&amp;``.

    A reference to a character that XML excludes becomes a reference to U+FFFD. CDATA sections are not changed.
    """
    held = ""
    is_data = False
    for piece in pieces:
        done, held, is_data = _advanced(held + piece, is_data)
        yield done
    yield held if is_data else _AMPERSAND.sub(_reference, held)


def _advanced(text: str, is_data: bool) -> tuple[str, str, bool]:
    """Return the repaired text, the unfinished end that needs more input, and whether this end is inside of CDATA."""
    done: list[str] = []
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
    return "".join(done), rest[len(rest) - keep :], is_data


def _held_back(text: str, is_data: bool) -> int:
    """Return the number of characters at the end that may be an incomplete reference or mark of CDATA."""
    mark = _CLOSE if is_data else _OPEN
    most = max((n for n in range(1, len(mark)) if text.endswith(mark[:n])), default=0)
    start = -1 if is_data else text.rfind("&", max(0, len(text) - _LONGEST_REFERENCE))
    return most if start < 0 or ";" in text[start:] else max(most, len(text) - start)


def _reference(match: re.Match[str]) -> str:
    name = match[1]
    if name and name[0] == "#":
        number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
        is_right = 0 < number < _CODE_POINTS and not NO_XML.match(chr(number))
        return f"&#{number if is_right else 0xFFFD};"
    characters = html5.get(f"{name};") if name else None
    if characters is None:
        return "&amp;" + match[0][1:]
    return "".join(f"&#{ord(character)};" for character in characters)


def _as_xml(text: str) -> bytes:
    """Return ``text`` as UTF-8, with U+FFFD for characters that XML excludes."""
    body = text.encode("utf-8", "replace")
    if len(body.translate(None, _CONTROLS)) == len(body) and b"\xef\xbf" not in body:
        return body
    return NO_XML.sub("\ufffd", text).encode()


PIECE_BYTES = 65_536  # bytes that are unpacked and parsed at a time
PACKED_BYTES = 4_096  # compressed bytes unpacked at a time; few, because zlib copies the rest after each member
MAX_MEMBERS = 10_000  # maximum in one gzip file; most files have only one member, or one per 64 KiB
MAX_BYTES_BETWEEN = 16 * 1024 * 1024  # maximum number of bytes from one yielded element to the next
# Maximum number of "<", "=" and "&" between two elements, because the parser's time and memory depend on it.
MAX_MARKS_BETWEEN = 200_000
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31


class GzipBody:
    """The bytes of a body in pieces, unpacked if the body is gzip, up to a limit."""

    def __init__(self, body: bytes, max_bytes: int) -> None:
        self._body = body
        self._most_bytes = max_bytes
        self.is_cut: bool = False  # whether the body was longer than the limit
        self.is_broken: bool = False  # whether the gzip data is incomplete or not valid

    @property
    def problem(self) -> str:
        """The reason why the body was not read completely, as the end of a sentence; "" if it was read completely."""
        if self.is_cut:
            return f"is longer than {self._most_bytes} bytes, or than the limits of one parsing step"
        return "ends early, as its gzip data is broken" if self.is_broken else ""

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
                    if unpacker.eof:  # start the next member; a file may have several (RFC 1952, 2.2)
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
            while piece := unpacker.decompress(b"", PIECE_BYTES):  # output that remains after a full piece
                yield piece
            self.is_broken = not unpacker.eof
        except zlib.error:
            self.is_broken = True


class XmlStream:
    """An iterator over complete elements with given names. An element is freed when the next element is requested."""

    def __init__(
        self, pieces: GzipBody, names: frozenset[str], base_url: str | None = None, content_type: str | None = None
    ) -> None:
        """Read up to the outermost element.

        If elements with ``names`` are nested, only the outer element is yielded, with the nested element in it. The
        charset of ``content_type`` takes precedence over the document's declaration.
        """
        self.unpacked: GzipBody = pieces
        self._names = names
        self._mended = repair_ampersands(decode_pieces(pieces, content_type, is_xml=True))
        self._has_begun = False
        self._bytes = self._marks = 0
        self.pieces: int = 0  # parsed so far; other tasks should run each time this increases
        self.root: str = ""  # local name of the outermost element
        self.has_ended: bool = False
        first = self._read_root()
        self._parser = _parser(("end",), base_url, tag=[f"{{*}}{name}" for name in (*names, self.root) if name])
        for piece in first:
            _feed(self._parser, piece)

    @property
    def problem(self) -> str:
        """The reason why the document was not read completely, as the end of a sentence; "" if it was complete."""
        return self.unpacked.problem or ("" if self.has_ended else "ends early, or is not valid XML after some point")

    def _read_root(self) -> list[bytes]:
        """Read up to the outermost element, with a separate parser, and return the input that was read."""
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
        """Return the next piece; empty at the end, or if the limits between two elements are exceeded."""
        for piece in self._mended:
            # Remove white space before <?xml, because libxml2 refuses it. Skip empty pieces, because callers would
            # treat an empty piece as the end.
            text = _as_xml(piece if self._has_begun else piece.lstrip("\ufeff \t\r\n\f\v"))
            if text:
                self._has_begun = True
                self.pieces += 1
                self._bytes += len(text)
                self._marks += text.count(b"<") + text.count(b"=") + text.count(b"&")
                if self._bytes > MAX_BYTES_BETWEEN or self._marks > MAX_MARKS_BETWEEN:
                    self.unpacked.is_cut = True
                    return b""
                return text
        return b""

    def __iter__(self) -> Iterator[Element]:
        while True:
            for _, element in self._parser.read_events():
                self.has_ended = self.has_ended or element.getparent() is None
                is_inner = any(local_name(outer) in self._names for outer in element.iterancestors())
                if is_inner or local_name(element) not in self._names:
                    continue
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
        encoding="utf-8",  # overrides the encoding that the document declares
        recover=True,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _feed(parser: Any, piece: bytes) -> bool:
    """Parse one more piece. Returns False if the document is too broken to continue."""
    try:
        parser.feed(piece)
    except etree.XMLSyntaxError:
        return False
    return True


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace; "" for a comment or entity."""
    tag: object = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def namespace_of(element: Element) -> str:
    """Return the namespace of an element; "" for none, and for a comment or entity."""
    tag: object = element.tag
    return tag[1:].partition("}")[0] if isinstance(tag, str) and tag.startswith("{") else ""


def _forget(element: Element) -> None:
    """Free an element and the elements before it."""
    element.clear(keep_tail=False)
    parent = element.getparent()
    if parent is not None:
        while element.getprevious() is not None:
            del parent[0]
