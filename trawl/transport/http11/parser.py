"""The parser for the responses of one connection (RFC 9112), on httptools (llhttp).

llhttp reports where the parts of a message start and end, and :class:`ResponseParser` interprets them. llhttp alone
accepts several invalid responses, does not detect the end of a body that ends with the connection, waits for a body
after HEAD, treats the end of a 103 as the end of the response and bytes after a response as the next response, and
reads headers of unlimited size. If one of our callbacks raises an exception, llhttp raises its own error, and the
exception is the ``__context__`` of this error.

Leniencies: as in browsers, lines may end in a bare LF, and ``Content-Length`` may occur together with chunked (then the
chunks determine the body, and the connection is not used again). Headers that llhttp refuses are repaired and parsed
again. A header folded over several lines becomes one line (RFC 9112, 5.2: a user agent replaces the fold by spaces).
Repeated equal values of ``Content-Length`` become one value (RFC 9112, 6.3, rule 5). Some errors are always refused: a
header name with a space, a line without a colon, an ambiguous length, and an unknown transfer coding. A coding with
white space other than spaces counts as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httptools

from trawl.errors import ResponseBroken
from trawl.http import Headers

__all__ = [
    "MAX_FIELDS",
    "MAX_IDLE_BYTES",
    "ConnectionClosedError",
    "ReasonParser",
    "ResponseParser",
    "end_of_head",
    "mended",
]

_BLANK_LINE = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"[\r\n]*HTTP/\d\.\d +1\d\d\b")
_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")


def end_of_head(received: bytes, start: int = 0) -> tuple[int | None, int]:
    """Return the end of the final response's headers, and the position at which the next search starts.

    The end is None if it has not arrived yet. The position is after the interim responses, which are skipped. ``start``
    is the position that the last search has returned.
    """
    while (blank := _BLANK_LINE.search(received, start)) is not None:
        if _INTERIM.match(received, start) is None:
            return blank.end(), start
        start = blank.end()
    return None, start


def mended(head: bytes) -> Iterator[bytes]:
    """Yield the lines of ``head``, with folded lines joined and repeated lengths removed."""
    status, _, fields = head.partition(b"\n")
    yield status + b"\n"
    lengths: set[bytes] = set()
    for line in _FOLD.sub(b" ", fields).splitlines(keepends=True):
        name, colon, value = line.partition(b":")
        if name.lower() == b"content-length":
            said = {part.strip(b" \t\r\n") for part in value.split(b",")}
            if said <= lengths:
                continue
            lengths |= said
            line = name + colon + b" " + b",".join(sorted(said)) + b"\r\n"  # noqa: PLW2901
        yield line


_BLANK_FIRST = re.compile(rb"[^\n]*\n[ \t]")

MAX_IDLE_BYTES = 100 * 1024
"""Maximum bytes in a row that neither complete the headers (as in httpx) nor belong to the body."""

MAX_FIELDS = 1_000
"""Maximum number of headers of one response. Each line counts as one header."""

_HTTP = b"HTTP/"
_NONE = Headers()

_LENIENT = {
    "lenient_chunked_length": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}


class ConnectionClosedError(Exception):
    """The server closed the connection before the first byte of a response. Internal to the transports."""


class _ExtraDataError(Exception):
    """A second response has started. Raised through llhttp to stop parsing."""


class ResponseParser:
    """Reads one response after each call of :meth:`begin`. httptools calls its methods. Mutable, for speed.

    Attributes:
        status: The final status code; 0 until the headers are complete.
        version: The HTTP version, such as ``"1.1"``.
        fields: Names and values of the headers, as received and in the order received, without trailers.
        headers: The same headers for access by name; empty until all headers have arrived.
        trailers: The trailers after a chunked body (RFC 9112, 7.1.2).
        length: The ``Content-Length``, if it frames the body; None otherwise.
        has_head: Whether the headers are complete.
        has_started: Whether a byte of the response has arrived.
        is_invited: Whether a 100 (Continue) has arrived.
        is_complete: Whether the response is complete.
        has_extra_data: Whether bytes have arrived after the end of the response.
        is_keepable: Whether the connection may be used for another request after this response.
    """

    __slots__ = (
        "_head",
        "_idle_bytes",
        "_is_chunked",
        "_is_head",
        "_is_interim",
        "_parser",
        "_pieces",
        "_repair",
        "fields",
        "has_extra_data",
        "has_head",
        "has_started",
        "headers",
        "is_complete",
        "is_invited",
        "is_keepable",
        "length",
        "status",
        "trailers",
        "version",
    )

    has_extra_data: bool
    has_head: bool
    has_started: bool
    is_complete: bool
    is_invited: bool
    is_keepable: bool

    def __init__(self) -> None:
        self._parser: Any = None
        self._reset(is_head=False)

    def begin(self, *, is_head: bool = False) -> None:
        """Prepare for the next response. With ``is_head``, it has no body, even if its headers announce a body."""
        if self._is_head:
            self._parser = None  # drop the old parser, which still waits for the body
        self._reset(is_head)
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            self._parser.set_dangerous_leniencies(**_LENIENT)

    def _reset(self, is_head: bool) -> None:
        self._is_head = is_head
        self._repair: tuple[Exception, int] | None = None  # llhttp's refusal, and the bytes searched for the end
        self._is_interim = self._is_chunked = False
        self._idle_bytes = 0
        self._head: bytes | None = b""
        self._pieces: list[bytes] = []
        self.fields: list[tuple[bytes, bytes]] = []
        self.trailers: list[tuple[bytes, bytes]] = []
        self.headers: Headers = _NONE
        self.length: int | None = None
        self.status: int = 0
        self.version: str = "1.1"
        self.has_head = self.has_started = self.is_invited = False
        self.is_complete = self.has_extra_data = self.is_keepable = False

    @property
    def has_body(self) -> bool:
        """True if the response may have a body (RFC 9112, 6.3, rule 1)."""
        return not self._is_head and self.status not in {204, 304}

    def take(self) -> list[bytes]:
        """Return the chunks of the body received since the last call."""
        pieces = self._pieces
        self._pieces = []
        return pieces

    def close(self) -> None:
        """Drop httptools' parser, which references this object in a cycle."""
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection. Before the next call, get the chunks of the body with :meth:`take`.

        Raises ResponseBroken if the bytes are not HTTP, or are a response that can't be trusted.
        """
        self.has_started = True
        if self.is_complete:
            self.has_extra_data = True
            return
        if self._head is None:
            self._parse(data)
        else:
            self._feed_head(data)
        if self._pieces or self.is_complete:
            self._idle_bytes = 0
        else:
            self._count(data)

    def _count(self, data: bytes) -> None:
        """Count bytes that are neither the end of the headers nor in the body. Too many are an error."""
        self._idle_bytes += len(data)
        if self._idle_bytes > MAX_IDLE_BYTES:
            part = "the framing of its body has" if self.has_head else "its headers have"
            raise ResponseBroken(f"{part} no end: {self._idle_bytes} bytes came")

    def end(self) -> None:
        """Process the end of the connection, which completes a body without a length (RFC 9112, 6.3, rule 8).

        Raises ConnectionClosedError if no byte has arrived, and ResponseBroken if the response is incomplete.
        """
        self.is_keepable = False
        if self.is_complete:
            return
        if not self.has_head:
            words = "the server closed the connection without a response"
            raise ResponseBroken(words) if self.has_started else ConnectionClosedError(words)
        if self.length is not None or self._is_chunked:
            raise ResponseBroken("its body ended early: the server closed the connection")
        self.is_complete = True

    def _feed_head(self, data: bytes) -> None:
        """Parse bytes that may contain the end of the headers, and store them in case the headers must be repaired."""
        head = self._head = self._head + data if self._head else data
        if self._repair is not None:
            self._mend(head, *self._repair)
        elif self._is_head:
            for line in data.splitlines(keepends=True):
                # Parse the headers line by line. Otherwise, llhttp would treat the bytes after the headers as the body,
                # and not report how many there are.
                if self.is_complete:
                    self.has_extra_data = True
                    break
                self._parse(line)
        else:
            self._parse(data)
        if self.has_head:
            self._head = None

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
            return
        except httptools.HttpParserError as error:
            failure = error
        # Handle the error outside of the ``except`` block. Inside the block, each new exception would get the handled
        # error as its ``__context__``, which would hide the exception from a callback.
        if isinstance(failure.__context__, _ExtraDataError) or self.is_complete:
            self.has_extra_data = True
        elif isinstance(failure.__context__, ResponseBroken):
            raise failure.__context__ from None
        elif self.has_head or self._head is None:
            raise ResponseBroken(f"the response is broken: {failure}") from failure
        else:
            self._retry_mended(self._head, failure)

    def _retry_mended(self, head: bytes, failure: Exception) -> None:
        """Raise an error for bytes that are not HTTP, or else wait for all headers, which may be repairable."""
        if not head.lstrip(b"\r\n").startswith(_HTTP[: len(head)]):
            raise ResponseBroken(f"the response is not HTTP: it starts with {head[:50]!r}") from failure
        self._mend(head, failure, 0)

    def _mend(self, head: bytes, refusal: Exception, looked_at: int) -> None:
        """If the headers are complete, repair the headers and parse the bytes again."""
        end, looked_at = end_of_head(head, looked_at)
        self._repair = refusal, looked_at
        if end is None:
            return
        if b"\0" in head[:end]:
            raise ResponseBroken("the response is broken: a header contains a NUL") from refusal
        if _BLANK_FIRST.match(head.lstrip(b"\r\n")):  # this may be an attempt to hide a header (RFC 9112, 2.2)
            raise ResponseBroken("the response is broken: a space before the first header") from refusal
        self._reset(self._is_head)
        self.has_started = True
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_headers=True, **_LENIENT)
        self._head = None
        for line in mended(head[:end]):
            self._parse(line)
        self.is_keepable = False
        if end < len(head):
            self.feed(head[end:])

    # The callbacks of httptools.

    def on_message_begin(self) -> None:
        """Called at the start of a status line."""
        if self.is_complete:
            raise _ExtraDataError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each header and trailer."""
        if name[-1:] == b" ":  # llhttp accepts a space after a name that it knows, and then ignores the header
            raise ResponseBroken(f"the response is broken: Invalid header token: a space after {name.rstrip()[:50]!r}")
        text = value.rstrip(b" \t")  # llhttp strips white space only at the start
        if b"\t" in value[len(text) :] and name.lower() == b"transfer-encoding":  # llhttp would not recognize chunked
            raise ResponseBroken(f"its transfer coding {value[:50].decode('latin-1')!r} is unknown")
        (self.trailers if self.has_head else self.fields).append((name, text))

    def on_headers_complete(self) -> None:
        """Called when all headers of a response have arrived. It may be an interim response."""
        parser = self._parser
        status: int = parser.get_status_code()
        if status < 200:
            if status < 100:
                raise ResponseBroken(f"the response is broken: its status is {status:03}")
            if status == 101:
                raise ResponseBroken("the server changed to another protocol without being asked")
            self._is_interim = True
            self.is_invited = self.is_invited or status == 100
            return
        # Headers that arrive in one read may escape MAX_IDLE_BYTES, so limit their number too.
        if len(self.fields) > MAX_FIELDS:
            raise ResponseBroken(f"its headers have no end: more than {MAX_FIELDS} fields")
        self.status = status
        self.version = parser.get_http_version()
        self.is_keepable = parser.should_keep_alive()
        self._frame()
        self.has_head = True

    def _frame(self) -> None:
        """Determine how the body ends (RFC 9112, 6.3)."""
        headers = self.headers = Headers.from_wire(self.fields)
        lengths, codings = headers.getlist("content-length"), headers.getlist("transfer-encoding")
        if codings:
            # White space other than spaces counts as a part of the coding's name.
            if len(codings) > 1 or codings[0].lower() != "chunked":
                raise ResponseBroken(f"its transfer coding {codings[-1][:50]!r} is unknown")
            self._is_chunked = True
            # RFC 9112, 6.3, rule 3: a response with chunks and a length may be an attempt to smuggle in another
            # response.
            self.is_keepable = self.is_keepable and not lengths
        elif lengths:
            # There is only one length: llhttp refuses several lengths, and mended() keeps several only if they differ.
            length = lengths[-1]
            if not (length.isascii() and length.isdigit()):
                raise ResponseBroken(f"its Content-Length {length[:50]!r} is not a number")
            self.length = int(length)
        if self._is_head:
            self.is_complete = True
            self.is_keepable = self._is_persistent()

    def _is_persistent(self) -> bool:
        """Return whether the connection stays open (RFC 9112, 9.3). llhttp's own method would wait for a body first."""
        options = b",".join(value for name, value in self.fields if name.lower() == b"connection").lower()
        words = {option.strip() for option in options.split(b",")}
        return b"close" not in words and (self.version != "1.0" or b"keep-alive" in words)

    def on_body(self, piece: bytes) -> None:
        """Called for each chunk of the body."""
        # An interim response must not have a body (RFC 9110, 15.2). Such a body would become a part of the page.
        if self._is_interim:
            raise ResponseBroken("the response is broken: an interim response has a body")
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Called at the end of a response, perhaps an interim one."""
        if self._is_interim:
            self._is_interim = False
            self.fields = []
        elif len(self.trailers) > MAX_FIELDS:
            raise ResponseBroken(f"its trailers have no end: more than {MAX_FIELDS} fields")
        else:
            self.is_complete = True


class ReasonParser(ResponseParser):
    """A parser that also keeps the reason phrase of the final response (RFC 9112, 4); often empty."""

    __slots__ = ("reason",)

    def _reset(self, is_head: bool) -> None:
        super()._reset(is_head)
        self.reason: bytes = b""

    def on_message_begin(self) -> None:
        """Called at the start of a status line."""
        super().on_message_begin()
        self.reason = b""

    def on_status(self, piece: bytes) -> None:
        """Called for each part of the reason phrase."""
        self.reason += piece
