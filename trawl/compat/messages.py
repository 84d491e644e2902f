"""Messages of a moved crawl: header values that equal their bytes, and URLs that are joined as written.

Scrapy's header values are bytes, but moved spiders may already use strings. A :class:`HeaderText` works as a string and
as bytes, and ``trawl check`` finds code that needs real bytes (``b", ".join(...)``). :class:`ScrapyResponse` joins URLs
without normalizing them, so that URLs in items stay the same. :func:`with_messages` adds a middleware to a moved crawl.
The middleware passes such messages to callbacks, errbacks and ``fetch()``, and sets the ``meta`` keys that Scrapy sets.
:func:`show` prepares messages for the methods of middleware classes. Other crawls do not load this module.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urljoin

import msgspec
from charset_normalizer import from_bytes
from w3lib.encoding import resolve_encoding
from w3lib.url import safe_url_string

from trawl.engine.state import current_attempt
from trawl.errors import IgnoreRequest, TrawlError
from trawl.http import Fetch, Headers, Outcome, Replace, Request, Response, host_scope, kind_of
from trawl.http.content import PRESCAN_BYTES, BodyText, decode_body
from trawl.http.notes import note, notes_of
from trawl.http.request import Callback
from trawl.middleware import MiddlewareSettings, Referrer, load_referrer_policy
from trawl.spiders.crawler import Failure
from trawl.tracebacks import contained

logger: logging.Logger = logging.getLogger("trawl.engine")

__all__ = ["HeaderText", "ScrapyHeaders", "ScrapyResponse", "show", "show_headers", "with_messages"]


def _plain(value: Any) -> Any:
    """Return the string for a bytes value, and other values unchanged."""
    if isinstance(value, bytes | bytearray):
        return value.decode("latin-1")
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return HeaderText(value)
    return type(value)(map(_shown, value)) if isinstance(value, list | tuple) else value


def _method(name: str) -> Callable[..., Any]:
    """Return a version of a ``str`` method that also accepts bytes and returns :class:`HeaderText`."""
    of_text = getattr(str, name)

    def method(self: str, *given: Any, **named: Any) -> Any:
        return _shown(of_text(self, *map(_plain, given), **named))

    method.__name__ = name
    return method


class HeaderText(str):
    """A header value as a string that can be compared, searched, split and decoded like its bytes."""

    __slots__ = ()

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, _plain(other))

    def __ne__(self, other: object) -> bool:
        return str.__ne__(self, _plain(other))

    def __contains__(self, part: object) -> bool:
        return str.__contains__(self, _plain(part))

    def __getitem__(self, index: Any) -> HeaderText:
        """Return a slice or a character. Unlike with bytes, a single index does not return a number."""
        return HeaderText(str.__getitem__(self, index))

    def __add__(self, other: Any) -> HeaderText:
        return HeaderText(str.__add__(self, _plain(other)))

    def __radd__(self, other: Any) -> HeaderText:
        return HeaderText(_plain(other) + str(self))

    def __bytes__(self) -> bytes:
        try:
            return self.encode("latin-1")
        except UnicodeEncodeError:  # use the encoding in which the value would be sent
            return self.encode()

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the string that the bytes of the value encode."""
        return bytes(self).decode(encoding, errors)


for _name in (
    *("split", "rsplit", "partition", "rpartition", "splitlines", "strip", "lstrip", "rstrip", "replace"),
    *("removeprefix", "removesuffix", "lower", "upper", "title", "startswith", "endswith"),
    *("find", "rfind", "index", "rindex", "count"),
):
    setattr(HeaderText, _name, _method(_name))


class ScrapyHeaders(Headers):
    """Headers whose values are :class:`HeaderText`. ``get`` returns the last value, and ``items()`` returns lists."""

    __slots__ = ()

    def __getitem__(self, name: Any) -> Any:
        values = self._fields[_key(name)][1:]
        return HeaderText(values[-1]) if values else None

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the last value of ``name``, or ``default`` as a header value."""
        field = self._fields.get(_key(name))
        if field is not None:
            return self[name]
        default = default[-1] if isinstance(default, list | tuple) and default else default
        return HeaderText(_plain(default)) if isinstance(default, str | bytes) else default

    def getlist(self, name: Any, default: Any = None) -> Any:
        """Return all values of ``name``, or ``default`` as a list if there are none."""
        return [HeaderText(value) for value in super().getlist(name, default)]

    def __iter__(self) -> Iterator[str]:
        return (HeaderText(name.title()) for name in super().__iter__())

    def items(self) -> Any:
        """Return pairs of each name and the list of its values."""
        return [(name, self.getlist(name)) for name in self]

    def values(self) -> Any:
        """Return the last value of each name."""
        return [self[name] for name in self]

    def pop(self, name: Any, *default: Any) -> Any:
        """Remove a header, and return the list of its values."""
        if name not in self and default:
            return default[0]
        values = self.getlist(name)
        del self[name]
        return values

    def copy(self) -> ScrapyHeaders:
        """Return a copy of the headers."""
        return ScrapyHeaders(self)

    __copy__ = copy


class ScrapyResponse(Response):
    """A response that joins URLs, guesses encodings and refuses text methods for binary content as in Scrapy.

    Its text and selector methods raise ``AttributeError`` if Scrapy would use the plain ``Response`` class.
    """

    __slots__ = ()
    _is_scrapys = True

    def _read(self) -> BodyText:
        if self._decoded is None:
            if _is_binary(self):
                raise AttributeError("Response content isn't text")
            self._decoded = _decoded(self.body, self.headers.get("content-type"))
        return self._decoded

    @property
    def base_url(self) -> str:
        """The base URL of links on the page; the URL of the response if the response is not text."""
        if self._base_url is None and _is_binary(self):
            self._base_url = self.url
        return super().base_url

    def urljoin(self, url: str) -> str:
        """Return ``url`` joined to the base URL as written (RFC 3986, section 5.2), so URLs in items stay the same.

        A request for this URL uses the URL's normalized form (:meth:`Response.urljoin <trawl.http.Response.urljoin>`).
        """
        return urljoin(self.base_url, url)

    def follow(self, url: Any, callback: Callback | None = None, **options: Any) -> Request:
        """Return a request for a link, like :meth:`Response.follow <trawl.http.Response.follow>`.

        As in Scrapy, a ``mailto:``, ``javascript:`` or other URL without ``//`` is a ValueError.
        """
        if isinstance(url, str) and _is_binary(self):  # a binary response has no encoding
            return _with_place(Request(url, callback, base=self.url, **options))
        return _with_place(super().follow(url, callback, **options))

    def follow_all(self, *given: Any, **options: Any) -> Any:
        """Return the requests for many links, like :meth:`Response.follow_all <trawl.http.Response.follow_all>`.

        For a URL that only :meth:`follow` of this class refuses, the iteration raises ValueError at this link.
        """
        return map(_with_place, super().follow_all(*given, **options))


def _with_place(request: Request) -> Request:
    """Return the request; raise ValueError, as Scrapy does, if its URL lacks the ``://`` that its scheme needs."""
    url = request.url
    if "://" not in url and not url.startswith(("about:", "data:")):
        raise ValueError(f"Missing scheme in request url: {url}")
    return request


_CONTROLS = re.compile(rb"[\x01-\x08\x0b\x0c\x0e-\x1f]")
_SNIFFED_BYTES = 5000


def _is_binary(response: Response) -> bool:
    """Return whether a response is not text, by its content type and then by the start of its body, as in Scrapy."""
    return kind_of(response) == "binary" and _CONTROLS.search(response.body, 0, _SNIFFED_BYTES) is not None


def _decoded(body: bytes, content_type: str | None) -> BodyText:
    """Return a body as a string. Without a declared encoding, use the same encoding as Scrapy 2.19."""
    decoded = decode_body(body, content_type, _guessed)
    if decoded.encoding == "utf-8" and body.isascii():
        named = decode_body(body[:PRESCAN_BYTES] + _NOT_UTF_8, content_type, lambda _: _OF_ASCII).encoding
        return BodyText(decoded.text, named)
    return decoded


_NOT_UTF_8 = b"\xff"
_OF_ASCII = "cp1252"


def _guessed(body: bytes) -> str:
    """Return the codec that Scrapy 2.19 uses for a body that declares no encoding and is not UTF-8."""
    match = from_bytes(body).best()
    return (resolve_encoding(match.encoding) if match else None) or "ascii"


def _key(name: Any) -> str:
    key: str = _plain(name).lower()
    return key


# Matches URLs with a character after the host that w3lib escapes but a normalized URL keeps (WHATWG URL, section 1.3).
# Brackets around the host do not match.
_UNESCAPED = re.compile(r"[^/]+//[^/]*/.*[][|\\^`{}]")


def show_headers(message: Request | Response | None) -> None:
    """Make a request, or a response and its request, behave as in Scrapy, and show URLs in Scrapy's form."""
    if message is None:
        return
    if _UNESCAPED.match(message.url) or message.url.endswith("?"):
        message.url = safe_url_string(message.url)
    headers = message.headers
    if type(headers) is Headers:
        headers.__class__ = ScrapyHeaders  # allowed because the subclass adds no slots
    if isinstance(message, Response):
        if type(message) is Response:
            message.__class__ = ScrapyResponse
        show_headers(message.request)


def _show_written_url(request: Request, response: Response | None) -> None:
    """Remove the slash that a URL was written without, as in Scrapy, if its request will not be sent again."""
    if not request.lacks_path:
        return
    url = request.written_url
    if response is not None and response.url == f"{url}/":
        response.url = url
    for each in (request, response and response.request):  # if cookies were added, response.request is a copy
        if each is not None and each.url == f"{url}/":
            each.url = url


def _fail(outcome: Outcome, error: Exception) -> None:
    """Set a middleware's error as a Failure in the outcome, so that the errback can use ``check`` and ``value``."""
    failure: Any = Failure(error)
    outcome.error = failure


def _with_habits(settings: MiddlewareSettings, fetch: Fetch) -> Fetch:
    """Add to requests and responses the data that Scrapy's components add. Must be the outermost middleware.

    Messages get Scrapy-style headers. The meta of each request gets its depth and, if it was sent, its latency and
    slot. The target of a redirect gets the redirecting page as its ``Referer``.
    """
    refer = Referrer(load_referrer_policy(settings.referrer_policy)).refer if settings.referer_enabled else None

    async def send(request: Request) -> Outcome:
        attempt = current_attempt.get()
        if request.depth and attempt is not None and attempt.is_page:  # not for direct fetches
            request.meta["depth"] = request.depth
        try:
            with contained:
                outcome = await fetch(request)
            then, page = outcome.then, outcome.response
            if isinstance(then, Replace) and page is not None and _redirects(then.request) > _redirects(request):
                then.request.headers.pop("Referer", None)
                if refer is not None:
                    refer(then.request, page)
            if then is None:
                _tell(request, page)
        except IgnoreRequest:
            raise
        except Exception as error:  # raised by a middleware; an errback may check its type
            logger.exception("%r: a middleware failed", request)
            outcome = Outcome(request)
            _fail(outcome, error)
        raised: Any = outcome.error  # an exception of process_request has no Failure yet; `_fail()` adds one
        if raised is not None and not isinstance(raised, TrawlError):
            _fail(outcome, raised)
        show_headers(outcome.response)
        show_headers(request)
        if outcome.then is None:
            _show_written_url(request, outcome.response)
        return outcome

    return send


def _redirects(request: Request) -> int:
    times: int = request.meta_get("redirect_times", 0)
    return times


def _tell_timeout(seconds: float, fetch: Fetch) -> Fetch:
    """Set the meta key ``download_timeout`` of each request, like Scrapy's ``DownloadTimeoutMiddleware``."""

    def send(request: Request) -> Awaitable[Outcome]:
        request.meta.setdefault("download_timeout", seconds)
        return fetch(request)

    return send


def _tell(request: Request, response: Response | None) -> None:
    """Write latency and slot into the meta of a request. The sent request may have been a copy with cookies."""
    told = notes_of(request).told_slot
    if request.meta.get("download_slot", told) == told:
        request.meta["download_slot"] = host_scope(request.url)
        note(request, told_slot=request.meta["download_slot"])
    if response is not None and response.latency is not None:
        request.meta["download_latency"] = response.latency


def show(request: Request, response: Response | None) -> None:
    """Prepare a request or a response for the methods of Scrapy's middleware classes."""
    if response is None:
        show_headers(request)
    else:
        show_headers(response)
        _tell(request, response)


def with_messages(settings: MiddlewareSettings, timeout: float) -> MiddlewareSettings:
    """Return the middleware settings of a moved crawl, with this module's middleware. ``timeout`` is in seconds."""
    around: dict[Any, float | None] = {
        partial(_with_habits, settings): -math.inf,
        **settings.downloader_middlewares,
        partial(_tell_timeout, timeout): 350,
    }
    return msgspec.structs.replace(settings, downloader_middlewares=around)
