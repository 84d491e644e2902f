"""What kind of page a response is, and the names that Scrapy's spiders know the kinds by.

A crawl makes one class of responses, :class:`trawl.Response`, which has ``text``, ``css`` and all the rest for every
page. ``isinstance(response, HtmlResponse)`` still answers what a spider means by it: it looks at the content, as a
virtual subclass does. (The option that lost: a class by content type for each response. It would cost every page, and a
spider that is given a plain ``Response`` would have to ask before it selects.)
"""

from __future__ import annotations

import json
from typing import Any, Literal, Unpack

from trawl.http.content import parse_content_type, selector_type
from trawl.http.headers import Headers, HeadersInput
from trawl.http.request import Callback, Request, RequestOptions
from trawl.http.response import Response

__all__ = ["HtmlResponse", "JsonRequest", "JsonResponse", "Kind", "TextResponse", "XmlResponse", "kind_of"]

Kind = Literal["html", "xml", "json", "text", "binary"]
"""How a page reads."""

_SNIFF_BYTES = 1024
_TEXTUAL = ("javascript", "ecmascript", "x-www-form-urlencoded", "x-yaml", "yaml", "x-ndjson", "x-mpegurl", "sql")
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


def kind_of(response: Response) -> Kind:
    """Return what kind of page a response is: by its ``Content-Type``, or by how it begins if that tells nothing."""
    content_type = response.headers.get("content-type")
    essence = parse_content_type(content_type or "").essence
    read = selector_type(content_type, response.body)
    if read != "html" or "html" in essence:
        return "xml" if read == "xml" else "json" if read == "json" else "html"
    if essence in {"", "application/octet-stream", "binary/octet-stream", "application/x-unknown", "*/*"}:
        start = response.body[:_SNIFF_BYTES]
        return "binary" if b"\0" in start and not start.startswith(_BOMS) else "html"
    if essence.startswith("text/") or essence.endswith(_TEXTUAL):
        return "text"
    return "binary"


class _ByContent(type):
    """Classes whose instances are the responses of some kinds, whatever they were made as."""

    kinds: frozenset[str] = frozenset()

    def __instancecheck__(cls, thing: object) -> bool:
        if type.__instancecheck__(cls, thing):
            return True
        return isinstance(thing, Response) and type(type(thing)) is not _ByContent and kind_of(thing) in cls.kinds


class TextResponse(Response, metaclass=_ByContent):
    """A response that is text of any kind: what Scrapy's spiders ask for before they select.

    Made by hand, as tests do, it takes ``body`` as text too.
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
            headers: The fields; ``Content-Type`` is filled in where it is missing.
            body: The bytes, or the text that ``encoding`` (UTF-8 where it is not said) makes bytes of.
            args: As :class:`trawl.Response` takes them.
            encoding: The charset.
            options: As :class:`trawl.Response` takes them.
        """
        fields = headers if isinstance(headers, Headers) else Headers(headers)
        if isinstance(body, str):
            encoding = encoding or "utf-8"
            body = body.encode(encoding)
        if "content-type" not in fields:
            fields["Content-Type"] = f"{self._essence}; charset={encoding}" if encoding else self._essence
        super().__init__(url, status, fields, body, *args, **options)


class HtmlResponse(TextResponse):
    """A response that is HTML, XHTML, or may be."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"html"})
    _essence = "text/html"


class XmlResponse(TextResponse):
    """A response that is XML, and not XHTML."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"xml"})
    _essence = "application/xml"


class JsonResponse(TextResponse):
    """A response that is JSON."""

    __slots__ = ()
    kinds: frozenset[str] = frozenset({"json"})
    _essence = "application/json"


class JsonRequest(Request):
    """Scrapy's name for :meth:`trawl.Request.json`: a request with ``data`` as JSON; POST unless told otherwise."""

    __slots__ = ()

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        data: Any = None,
        dumps_kwargs: dict[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Make a request; without ``data`` it is a plain one that accepts JSON."""
        if data is not None and options.get("body") is None:
            options["body"] = json.dumps(data, **{"sort_keys": True, **(dumps_kwargs or {})})
            options.setdefault("method", "POST")
        super().__init__(url, callback, **options)
        self.headers.setdefault("Content-Type", "application/json")
        self.headers.setdefault("Accept", "application/json, text/javascript, */*; q=0.01")
