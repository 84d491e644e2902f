"""Kinds of responses: those in a file, and the names by which Scrapy's spiders know the kinds of pages.

A request may name a :class:`BodySink`. A small body of a successful response (2xx) to it stays in memory; a larger one
goes to the sink, piece by piece, and nothing is read from the connection while a piece is written. The result is a
:class:`FileResponse`. All other bodies, those of errors and redirects for example, are in memory.

Otherwise a crawl makes one class of responses, :class:`trawl.Response`, which has ``text``, ``css`` and all the rest
for every page. ``isinstance(response, HtmlResponse)`` still answers what a spider means by it: it looks at the content,
as a virtual subclass does. (The option that lost: a class by content type for each response. It would cost every page,
and a spider that is given a plain ``Response`` would have to ask before it selects.)

Imported by the face of its package alone: the response below it knows no kinds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, Literal, Protocol, Unpack

from trawl.http.content import UNTOLD_TYPES, parse_content_type, selector_type
from trawl.http.headers import Headers, HeadersInput
from trawl.http.request import Callback, Request, RequestOptions
from trawl.http.response import Response
from trawl.selectors import SelectorType

__all__ = [
    "BodySink",
    "FileResponse",
    "HtmlResponse",
    "JsonRequest",
    "JsonResponse",
    "Kind",
    "TextResponse",
    "XmlResponse",
    "body_bytes",
    "kind_of",
]

Kind = Literal["html", "xml", "json", "text", "binary"]
"""The kind of a page's content."""

_SNIFF_BYTES = 1024
_TEXTUAL = ("javascript", "ecmascript", "x-www-form-urlencoded", "x-yaml", "yaml", "x-ndjson", "x-mpegurl", "sql")
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


def kind_of(response: Response) -> Kind:
    """Return the kind of a response's content: by its ``Content-Type``, else by the start of its body."""
    content_type = response.headers.get("content-type")
    essence = parse_content_type(content_type or "").essence
    read = selector_type(content_type, response.body)
    if read != "html" or "html" in essence:
        return read
    if essence in UNTOLD_TYPES:
        start = response.body[:_SNIFF_BYTES]
        return "binary" if b"\0" in start and not start.startswith(_BOMS) else "html"
    if essence.startswith("text/") or essence.endswith(_TEXTUAL):
        return "text"
    return "binary"


class _ByContent(type):
    """Classes whose instances are the responses of some kinds, whatever their own class."""

    kinds: frozenset[str] = frozenset()

    def __instancecheck__(cls, thing: object) -> bool:
        if type.__instancecheck__(cls, thing):
            return True
        return isinstance(thing, Response) and type(type(thing)) is not _ByContent and kind_of(thing) in cls.kinds


class TextResponse(Response, metaclass=_ByContent):
    """A response that is text of any kind; Scrapy's spiders check for it before they select.

    Made by hand, as in tests, it takes ``body`` as text too.
    """

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"html", "xml", "json", "text"})
    _essence = "text/plain"

    def __init__(
        self,
        url: str,
        status: int = 200,
        headers: HeadersInput | None = None,
        body: bytes | str = b"",
        *args: Any,
        encoding: str | None = None,
        **options: Any,
    ) -> None:
        """Make a response of text.

        Args:
            url: Where it came from.
            status: The status code.
            headers: The fields; a missing ``Content-Type`` is added.
            body: The bytes, or a text, encoded with ``encoding`` (default: UTF-8).
            args: Further arguments of :class:`trawl.Response`.
            encoding: The charset.
            options: Further arguments of :class:`trawl.Response`.
        """
        fields = headers if isinstance(headers, Headers) else Headers(headers)
        if isinstance(body, str):
            encoding = encoding or "utf-8"
            body = body.encode(encoding)
        if "content-type" not in fields:
            fields["Content-Type"] = f"{self._essence}; charset={encoding}" if encoding else self._essence
        super().__init__(url, status, fields, body, *args, **options)


class HtmlResponse(TextResponse):
    """A response that is HTML or XHTML, or may be."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"html"})
    _parsed_as: SelectorType | None = "html"
    _essence = "text/html"


class XmlResponse(TextResponse):
    """A response that is XML but not XHTML."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"xml"})
    _parsed_as: SelectorType | None = "xml"
    _essence = "application/xml"


class JsonResponse(TextResponse):
    """A response that is JSON."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"json"})
    _parsed_as: SelectorType | None = "json"
    _essence = "application/json"


class JsonRequest(Request):
    """Scrapy's name for :meth:`trawl.Request.json`: a request with ``data`` as JSON; the default method is POST."""

    __slots__ = ("dumps_kwargs",)

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        data: Any = None,
        dumps_kwargs: dict[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Make a request; without ``data`` it is a plain request that accepts JSON."""
        self.dumps_kwargs: dict[str, Any] = {"sort_keys": True, **(dumps_kwargs or {})}
        if data is not None and options.get("body") is None:
            options["body"] = json.dumps(data, **self.dumps_kwargs)
            options.setdefault("method", "POST")
        super().__init__(url, callback, **options)
        self.headers.setdefault("Content-Type", "application/json")
        self.headers.setdefault("Accept", "application/json, text/javascript, */*; q=0.01")

    def replace(self, *, data: Any = None, dumps_kwargs: dict[str, Any] | None = None, **changes: Any) -> Any:
        """Return a request like this one but for ``changes``; see :meth:`trawl.Request.replace`.

        Args:
            data: The new body, written with this request's ``dumps_kwargs``.
            dumps_kwargs: Those of the new request.
            changes: Keyword arguments of :class:`Request`.
        """
        if data is not None and changes.get("body") is None:
            changes["body"] = json.dumps(data, **self.dumps_kwargs)
        changed = super().replace(**changes)
        if isinstance(changed, JsonRequest):
            changed.dumps_kwargs = self.dumps_kwargs if dumps_kwargs is None else {"sort_keys": True, **dumps_kwargs}
        return changed


class BodySink(Protocol):
    """Takes a large body instead of memory, for one request at a time. A retry begins it anew.

    A sink may have an attribute ``memory_bytes``: the bytes of a body that are held in memory before each write.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes written since the body began."""
        ...

    def begin(self) -> None:
        """Begin a new body; forget what was written before."""
        ...

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write the next pieces. Cancelling waits for a write that has begun. Always a checkpoint.

        Raises:
            BodyNotWritten: It can't be written, or is no longer wanted.
        """
        ...

    async def discard(self) -> None:
        """Remove the body: it did not come to its end. Always a checkpoint."""
        ...

    def open(self) -> BinaryIO:
        """Open the body for reading. Blocks.

        Raises:
            ValueError: It was removed.
        """
        ...


class FileResponse(Response):
    """A response whose body is in a file.

    ``body``, and what is made of it (``text``, selectors), reads the whole file each time; read a large one from
    :meth:`open`. The file exists until the owner of the request has moved it.

    Attributes:
        sink: The file; None if another body was set.
    """

    __slots__ = ("_own", "sink")

    sink: BodySink | None
    _own: bytes

    def __init__(self, *args: Any, sink: BodySink | None = None, **options: Any) -> None:
        """Make a response; the arguments are those of :class:`~trawl.http.Response`.

        Args:
            args: Further arguments of ``Response``.
            sink: Has the body, instead of ``body``.
            options: Further arguments of ``Response``.
        """
        super().__init__(*args, **options)
        if sink is not None:
            self._own = b""
            self.sink = sink

    @property
    def body(self) -> bytes:
        """The bytes after decompression, read back from the file.

        Raises:
            ValueError: The file was removed.
            OSError: It can't be read.
        """
        if self.sink is None:
            return self._own
        with self.sink.open() as file:
            return file.read()

    @body.setter
    def body(self, body: bytes) -> None:
        self._own = body
        self.sink = None

    @property
    def size_bytes(self) -> int:
        """Size of the body, without reading it."""
        return len(self._own) if self.sink is None else self.sink.size_bytes

    def open(self) -> BinaryIO:
        """Open the file of the body; the caller closes it. Blocks.

        Raises:
            ValueError: It was removed, or there is none: another body was set.
            OSError: It can't be read.
        """
        if self.sink is None:
            raise ValueError(f"{self!r} has its body in memory")
        return self.sink.open()

    def replace(self, **changes: Any) -> Any:
        """Return a response like this one but for ``changes``; without ``cls`` its body is in the same file."""
        if self.sink is None or "body" in changes or changes.get("cls") is not None:
            return super().replace(**changes)
        changes["body"] = b""
        changed = super().replace(**changes)
        changed.sink = self.sink
        return changed


def body_bytes(response: Response) -> int:
    """Return the size of a response's body; a file is not read."""
    return response.size_bytes if isinstance(response, FileResponse) else len(response.body)
