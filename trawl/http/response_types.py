"""Responses whose body is in a file, and Scrapy's classes for kinds of pages.

A body of a 2xx response goes to the :class:`BodySink` of its request if it is large. All other bodies are in memory.

All other responses of a crawl have the class :class:`trawl.Response`. ``isinstance(response, HtmlResponse)`` still
works as a spider expects, because it checks the content. (To choose the class of each response by its content type
would slow down every page, and a spider would have to check for a plain ``Response`` before it selects.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, Literal, Protocol, Unpack

from trawl.http.content import UNTOLD_TYPES, parse_content_type, selector_type, with_charset
from trawl.http.headers import Headers, HeadersInput, class_of_crawl
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
    """Return the kind of a response's content, decided by its ``Content-Type`` or by the start of its body."""
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
    """Metaclass of classes whose ``isinstance`` accepts every response with the right kind of content."""

    kinds: frozenset[str] = frozenset()

    def __instancecheck__(cls, thing: object) -> bool:
        if type.__instancecheck__(cls, thing):
            return True
        return isinstance(thing, Response) and type(type(thing)) is not _ByContent and kind_of(thing) in cls.kinds


class TextResponse(Response, metaclass=_ByContent):
    """A response that is text of any kind. Spiders written for Scrapy check for this class before they select.

    If the response is created directly, as in tests, ``body`` may also be a str.
    """

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"html", "xml", "json", "text"})
    _essence = "text/plain"
    _is_scrapys = True

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
        """Create a text response.

        Args:
            url: The URL of the response.
            status: The status code.
            headers: The headers. A missing ``Content-Type`` is added.
            body: The body as bytes, or as a str that is encoded with ``encoding`` (default: UTF-8).
            args: Further arguments of :class:`trawl.Response`.
            encoding: The charset, which overrides the charset in ``headers``.
            options: Further arguments of :class:`trawl.Response`.
        """
        fields = headers if isinstance(headers, Headers) else class_of_crawl.get()(headers)
        if isinstance(body, str):
            encoding = encoding or "utf-8"
            body = body.encode(encoding)
        if encoding:
            fields = fields.copy()
            fields["Content-Type"] = with_charset(fields.get("Content-Type") or self._essence, encoding)
        elif "content-type" not in fields:
            fields["Content-Type"] = self._essence
        super().__init__(url, status, fields, body, *args, **options)


class HtmlResponse(TextResponse):
    """A response that is or may be HTML or XHTML."""

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
    """A request with ``data`` as JSON. The default method is POST. Scrapy's name for :meth:`trawl.Request.json`."""

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
        """Create a request. Without ``data``, it is a plain request that accepts JSON."""
        self.dumps_kwargs: dict[str, Any] = {"sort_keys": True, **(dumps_kwargs or {})}
        if data is not None and options.get("body") is None:
            options["body"] = json.dumps(data, **self.dumps_kwargs)
            options.setdefault("method", "POST")
        super().__init__(url, callback, **options)
        self.headers.setdefault("Content-Type", "application/json")
        self.headers.setdefault("Accept", "application/json, text/javascript, */*; q=0.01")

    def replace(self, *, data: Any = None, dumps_kwargs: dict[str, Any] | None = None, **changes: Any) -> Any:
        """Return a copy of this request with ``changes``; see :meth:`trawl.Request.replace`.

        Args:
            data: The new body, encoded with this request's ``dumps_kwargs``.
            dumps_kwargs: The ``dumps_kwargs`` of the new request.
            changes: Keyword arguments of :class:`Request`.
        """
        if data is not None and changes.get("body") is None:
            changes["body"] = json.dumps(data, **self.dumps_kwargs)
        changed = super().replace(**changes)
        if isinstance(changed, JsonRequest):
            changed.dumps_kwargs = self.dumps_kwargs if dumps_kwargs is None else {"sort_keys": True, **dumps_kwargs}
        return changed


class BodySink(Protocol):
    """Stores a large body outside of memory, for one request at a time. A retry starts the body again.

    A sink may have an attribute ``memory_bytes``, the number of bytes of a body to collect in memory before each write.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes written since the start of the body."""

    def begin(self) -> None:
        """Start a new body, and discard the bytes written before."""

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write the next chunks. Cancelling waits for a write that has started. Always a checkpoint.

        Raises:
            BodyNotWritten: If the chunks can't be written, or the body is no longer wanted.
        """

    async def discard(self) -> None:
        """Remove the body, because it is incomplete. Always a checkpoint."""

    def open(self) -> BinaryIO:
        """Open the body for reading. Blocks.

        Raises:
            ValueError: If the body was removed.
        """


class FileResponse(Response):
    """A response whose body is in a file.

    ``body`` and the attributes derived from it (``text``, selectors) read the whole file each time. Read a large body
    with :meth:`open`. The file exists until the owner of the request has moved it.

    Attributes:
        sink: The sink that has the file; None if another body was set.
    """

    __slots__ = ("_own", "sink")

    sink: BodySink | None
    _own: bytes

    def __init__(self, *args: Any, sink: BodySink | None = None, **options: Any) -> None:
        """Create a response with the arguments of :class:`~trawl.http.Response`.

        Args:
            args: Further arguments of ``Response``.
            sink: The sink with the body, instead of ``body``.
            options: Further arguments of ``Response``.
        """
        super().__init__(*args, **options)
        if sink is not None:
            self._own = b""
            self.sink = sink

    @property
    def body(self) -> bytes:
        """The decompressed bytes, read from the file.

        Raises:
            ValueError: If the file was removed.
            OSError: If the file can't be read.
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
        """Size of the body in bytes, without reading it."""
        return len(self._own) if self.sink is None else self.sink.size_bytes

    def open(self) -> BinaryIO:
        """Open the file of the body. The caller must close it. Blocks.

        Raises:
            ValueError: If the file was removed, or if another body was set.
            OSError: If the file can't be read.
        """
        if self.sink is None:
            raise ValueError(f"{self!r} has its body in memory")
        return self.sink.open()

    def replace(self, **changes: Any) -> Any:
        """Return a copy of this response with ``changes``. Without ``cls``, its body is in the same file."""
        if self.sink is None or "body" in changes or changes.get("cls") is not None:
            return super().replace(**changes)
        changes["body"] = b""
        changed = super().replace(**changes)
        changed.sink = self.sink
        return changed


def body_bytes(response: Response) -> int:
    """Return the size of a response's body in bytes, without reading a file."""
    return response.size_bytes if isinstance(response, FileResponse) else len(response.body)
