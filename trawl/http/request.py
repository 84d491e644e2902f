"""The request, and the fingerprint that identifies equal requests.

Length: half of the module documents the class that every spider uses. No other module reads and writes the slots of
this class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from trawl import scrapy_names
from trawl.http.content import with_legacy_query
from trawl.http.encodings import codec_named
from trawl.http.headers import Headers, HeadersInput, SharedHeaders, check_cookie, class_of_crawl
from trawl.http.notes import RequestNotes, notes_of, set_notes
from trawl.http.url import Fields, encode_form, join_url, lacks_path, normalize_url, sorted_url
from trawl.passwords import without_passwords
from trawl.scrapy_names import Unsupported

if TYPE_CHECKING:
    from trawl.http.response_types import BodySink

__all__ = [
    "FINGERPRINT_BYTES",
    "NO_CALLBACK",
    "Callback",
    "Cookies",
    "Extras",
    "FormOptions",
    "Request",
    "RequestChanges",
    "RequestOptions",
    "fingerprint",
]

FINGERPRINT_BYTES = 16
"""Length of a fingerprint in bytes. Two of 10^9 requests collide with a probability below 10^-20."""


REMEMBERED = 16_384
"""Number of URLs whose fingerprints are cached, because the links of a site occur on many pages. They take about 4 MB.
"""


def fingerprint(request: Request) -> bytes:
    """Return 16 bytes that are equal for requests with the same method, body, URL and session.

    URLs are compared in the canonical form of ``w3lib.url``, as in Scrapy: without the fragment, with sorted arguments
    and uniform percent-encoding. Headers, cookies and meta are ignored, except meta ``session``, because another
    visitor may see another page.
    """
    if request._meta is None or (session := request._meta.get("session")) is None:
        if request.method == "GET" and not request.body:
            return _of_page(request.url)
        session = None
    # Neither a method nor a URL in normal form contains a space or line break, so this string is unique.
    visitor = "" if session is None else f" {session!r}"
    text = f"{request.method} {sorted_url(request.url)}{visitor}\n".encode()
    return blake2b(text + request.body, digest_size=FINGERPRINT_BYTES).digest()


@lru_cache(maxsize=REMEMBERED)
def _of_page(url: str) -> bytes:
    """Return the fingerprint of a plain GET request. Most links of a page also occur on earlier pages."""
    return blake2b(f"GET {sorted_url(url)}\n".encode(), digest_size=FINGERPRINT_BYTES).digest()


Callback = Callable[..., Any]
"""A function or generator, async or not. It gets the response and ``cb_kwargs``; an errback gets the error."""

Cookies = Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""Names and values, or one mapping per cookie with ``name``, ``value`` and optionally ``domain`` and ``path``."""

Extras = tuple[Headers | None, Any, dict[str, Any] | None, dict[str, Any] | None]
"""A request's headers, cookies, meta and cb_kwargs; None for each that was never set or read."""

_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 9.1: a token


class FormOptions(TypedDict, total=False):
    """Keyword arguments of a request with a form, except the form."""

    method: str
    headers: HeadersInput | None
    body: bytes | str | None
    cookies: Cookies | None
    meta: Mapping[str, Any] | None
    cb_kwargs: Mapping[str, Any] | None
    priority: int
    dont_filter: bool
    errback: Callback | None


class RequestOptions(FormOptions, total=False):
    """Keyword arguments of a request."""

    encoding: str


class RequestChanges(RequestOptions, total=False):
    """Keyword arguments of :meth:`Request.replace`."""

    url: str
    callback: Callback | None


_RequestT = TypeVar("_RequestT", bound="Request")

_Cookies = dict[str, Any] | list[Mapping[str, Any]]


class _OptionalFields(TypedDict, total=False):
    """Attributes that few requests have. A slot for each attribute would cost memory in every pending request."""

    cookies: _Cookies
    is_start_url: bool
    lacks_path: bool
    placeholder: str
    sink: BodySink
    notes: RequestNotes


class Request:
    """A request to a server. Treat it as immutable: :meth:`replace` returns a changed copy.

    >>> request = trawl.Request("http://a.example/list", cb_kwargs={"page": 1}, priority=5)
    >>> request.replace(url="http://a.example/list?page=2").url
    'http://a.example/list?page=2'
    >>> trawl.Request.json("http://a.example/api", {"q": "chair"}).method
    'POST'

    Attributes:
        url: The URL, in WHATWG normal form.
        callback: Receives the response; None for the spider's ``parse``.
        errback: Receives the error if there is no response, or a status code that the spider does not handle; None to
            log it.
        method: The method, in upper case.
        body: The bytes after the headers; empty if there are none.
        priority: Requests with a higher priority go first.
        dont_filter: Whether to send the request even if an equal request was seen.
        depth: Number of links followed from a start request to this request. Set by the crawl.
    """

    __slots__ = (
        "__weakref__",  # needed for a WeakKeyDictionary of fingerprints, as in Scrapy's documentation
        "_cb_kwargs",
        "_headers",
        "_meta",
        "_optional",
        "body",
        "callback",
        "depth",
        "dont_filter",
        "errback",
        "method",
        "priority",
        "url",
    )
    if not TYPE_CHECKING:
        flags = Unsupported("only Scrapy's log shows them: put them into meta")
        encoding = Unsupported("the URL and the body are encoded when the request is created")
        to_dict = Unsupported("with JOB_DIR, a job stores its requests")
        to_curl = Unsupported("method, url, headers and body have all that is sent")

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        method: str = "GET",
        headers: HeadersInput | None = None,
        body: bytes | str | None = None,
        cookies: Cookies | None = None,
        meta: Mapping[str, Any] | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        priority: int = 0,
        dont_filter: bool = False,
        errback: Callback | None = None,
        encoding: str = "utf-8",
        flags: None = None,
        base: str | None = None,
    ) -> None:
        """Create a request.

        Args:
            url: The URL, absolute with any scheme, or relative with ``base``.
            callback: Receives the response.
            method: The method, any token (RFC 9110, 9.1). Converted to upper case.
            headers: A mapping (values may be lists) or pairs. A value of None disables a default header.
            body: The body. A str is encoded with ``encoding``.
            cookies: Cookies to send in addition to the site's cookies. Values must not contain control characters or
                ``;`` (RFC 6265, 4.1.1).
            meta: Values that are kept with the request and available as ``response.meta``. The request keeps a shallow
                copy.
            cb_kwargs: Keyword arguments of the callback. An errback finds them in ``error.request``. The request keeps
                a shallow copy.
            priority: Requests with a higher priority go first.
            dont_filter: Whether to send the request even if an equal request was seen.
            errback: Receives the error.
            encoding: The encoding of the URL's query (WHATWG URL, 4.4) and of a str body. The request does not store
                it.
            flags: Not supported. Use ``meta`` instead.
            base: The base of a relative ``url``.

        Raises:
            ValueError: If the URL is relative or can't be parsed, the method is not a token, a header or a cookie can't
                be sent, or the encoding is unknown.
            TypeError: If a callback is not callable, the priority is not an int, or another value has the wrong type.
        """
        if encoding != "utf-8" or flags is not None:
            url, body = _encoded(url, body, encoding, flags)
        self.url: str = normalize_url(url) if base is None else join_url(base, url)
        self.method: str = method if method == "GET" else _checked_method(method)
        self.body: bytes = b"" if body is None else _to_bytes(body)
        self.callback: Callback | None = callback
        self.errback: Callback | None = errback
        if callback is not None:
            _check_callable("callback", callback)
        if errback is not None:
            _check_callable("errback", errback)
        if type(priority) is not int and not isinstance(priority, int):
            raise TypeError(f"priority must be an int, not {priority!r}")
        self.priority: int = priority
        self.dont_filter: bool = dont_filter
        self.depth: int = 0
        self._headers = None if headers is None else class_of_crawl.get()(headers)
        self._meta = dict(meta) if meta else None
        self._cb_kwargs = dict(cb_kwargs) if cb_kwargs else None
        self._optional: _OptionalFields | None = {"cookies": _copied(cookies)} if cookies else None
        if self.url[-1] == "/" and url[-1:] != "/" and lacks_path(url):
            self.lacks_path = True
        if "{" in url:
            self._note_placeholder(url)

    @classmethod
    def of_link(cls, link: str, callback: Callback | None, base: str) -> Self:
        """Return the same request (or error) as ``cls(link, callback, base=base)``, in a third of the time."""
        url = join_url(base, link)
        if callback is not None:
            _check_callable("callback", callback)
        request = cls.__new__(cls)
        request.url = url
        request.method = "GET"
        request.body = b""
        request.callback = callback
        request.errback = None
        request.priority = 0
        request.dont_filter = False
        request.depth = 0
        request._headers = request._meta = request._cb_kwargs = request._optional = None
        if url[-1] == "/" and link[-1:] != "/" and lacks_path(link):
            request.lacks_path = True
        if "{" in link:
            request._note_placeholder(link)
        return request

    @classmethod
    def json(cls, url: str, payload: Any, callback: Callback | None = None, **options: Unpack[RequestOptions]) -> Self:
        """Return a request that sends ``payload`` as JSON. The default method is POST.

        Raises:
            TypeError: If ``payload`` contains a value that has no form in JSON.
        """
        options.setdefault("method", "POST")
        request = cls(url, callback, **options)
        # Sort the keys, so that requests with equal payloads have equal fingerprints.
        request.body = msgspec.json.encode(payload, order="deterministic")
        request.headers.setdefault("Content-Type", "application/json")
        return request

    @classmethod
    def form(
        cls, url: str, fields: Fields, callback: Callback | None = None, **options: Unpack[RequestOptions]
    ) -> Self:
        """Return a request that sends ``fields`` like an HTML form. The default method is POST.

        With ``method="GET"``, the fields replace the URL's query (HTML, 4.10.21.3: mutate action URL).

        Args:
            url: The form's action.
            fields: Names and values. A value may be a list of values.
            callback: Receives the response.
            options: Keyword arguments of :class:`Request`.
        """
        options.setdefault("method", "POST")
        encoded = encode_form(fields)
        request = cls(url, callback, **options)
        if request.method in {"GET", "HEAD"}:
            request.url = f"{request.url.partition('#')[0].partition('?')[0]}?{encoded}"
            return request
        request.body = encoded.encode()
        request.headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        return request

    @classmethod
    def from_curl(cls, curl_command: str, ignore_unknown_options: bool = True, **options: Any) -> Self:
        """Return a request for a curl command, such as from "Copy as cURL" in a browser.

        Args:
            curl_command: The command for a POSIX shell. It starts with ``curl``.
            ignore_unknown_options: Whether to warn about unknown options instead of raising an error.
            options: Keyword arguments of :class:`Request`, which override the command.

        Raises:
            ValueError: If ``curl_command`` is not a curl command, or has an unknown option that must not be ignored.
        """
        from trawl.http.curl import options_of_curl  # noqa: PLC0415 - few programs need it, and it imports argparse

        return cls(**{**options_of_curl(curl_command, ignore_unknown_options=ignore_unknown_options), **options})

    @property
    def headers(self) -> Headers:
        """The request's own headers. Default headers are added when the request is sent."""
        headers = self._headers
        if headers is None:
            headers = self._headers = class_of_crawl.get()()
        elif type(headers) is SharedHeaders:
            headers = self._headers = class_of_crawl.get()(headers)
        return headers

    @headers.setter
    def headers(self, headers: HeadersInput | None) -> None:
        self._headers = headers if headers is None or isinstance(headers, Headers) else class_of_crawl.get()(headers)

    def share_headers(self, headers: SharedHeaders) -> None:
        """Add each of ``headers`` that the request does not set itself. Without own headers, it shares the object."""
        if self._headers is None:
            self._headers = headers
        else:
            self.headers.fill(headers)

    @property
    def meta(self) -> dict[str, Any]:
        """Values of the spider and the crawl that are kept with the request. ``response.meta`` returns them too."""
        if self._meta is None:
            self._meta = {}
        return self._meta

    @property
    def has_meta(self) -> bool:
        """True if :attr:`meta` is not empty. Unlike reading :attr:`meta`, this creates no dictionary."""
        return bool(self._meta)

    def meta_get(self, key: str, default: Any = None) -> Any:
        """Return ``meta.get(key, default)``. Unlike reading ``meta``, this creates no dictionary."""
        return default if self._meta is None else self._meta.get(key, default)

    def wants_status(self, status: int, codes: Container[int]) -> bool:
        """Return whether the spider handles responses with ``status``.

        ``handle_httpstatus_all`` and ``handle_httpstatus_list`` (one or several status codes) in the meta decide. If
        they are not set, ``codes`` decides.
        """
        if self._meta is None:
            return status in codes
        if self._meta.get("handle_httpstatus_all"):
            return True
        wanted = self._meta.get("handle_httpstatus_list")
        if wanted is None:
            wanted = codes
        return status in wanted if isinstance(wanted, Container) else wanted == status

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the callback."""
        if self._cb_kwargs is None:
            self._cb_kwargs = {}
        return self._cb_kwargs

    @property
    def cookies(self) -> _Cookies:
        """The cookies given with the request: names and values, or one mapping per cookie."""
        if self._optional is None:
            self._optional = {}
        return self._optional.setdefault("cookies", {})

    @cookies.setter
    def cookies(self, cookies: Cookies | None) -> None:
        self._keep("cookies", _copied(cookies) if cookies else None)

    @property
    def has_cookies(self) -> bool:
        """True if :attr:`cookies` is not empty. Unlike reading :attr:`cookies`, this creates no dictionary."""
        return self._optional is not None and bool(self._optional.get("cookies"))

    @property
    def sink(self) -> BodySink | None:
        """The sink for a large body of a successful response; None if the body stays in memory.

        It is for direct fetches only, because a job does not store the sink.
        """
        return None if self._optional is None else self._optional.get("sink")

    @sink.setter
    def sink(self, sink: BodySink | None) -> None:
        self._keep("sink", sink)

    @property
    def is_start_url(self) -> bool:
        """True if the request comes from ``start_urls`` and has ``dont_filter``.

        A job counts equal start requests, so that a resumed job does not send them again after a kill.
        """
        return self._optional is not None and self._optional.get("is_start_url", False)

    @is_start_url.setter
    def is_start_url(self, is_start_url: bool) -> None:
        self._keep("is_start_url", is_start_url or None)

    @property
    def lacks_path(self) -> bool:
        """True if the URL was given without a path, such as ``http://a.example``. :attr:`url` always has a path."""
        return self._optional is not None and self._optional.get("lacks_path", False)

    @lacks_path.setter
    def lacks_path(self, lacks_path: bool) -> None:
        self._keep("lacks_path", lacks_path or None)

    @property
    def placeholder(self) -> str:
        """A name in braces in the given URL, such as ``{page}``; "" if there is none.

        In :attr:`url`, the braces may be percent-encoded.
        """
        return "" if self._optional is None else self._optional.get("placeholder", "")

    def _note_placeholder(self, written: str) -> None:
        if (found := _PLACEHOLDER.search(written)) is not None:
            self._keep("placeholder", found[1])

    def _keep(self, name: str, value: object) -> None:
        """Store a value that few requests have. None removes it, as if it had never been set."""
        kept: Any = {**(self._optional or {}), name: value}
        if value is None:
            del kept[name]
        self._optional = kept or None

    @property
    def written_url(self) -> str:
        """The URL, without a path if it was given without a path."""
        return (
            self.url[:-1] if self.lacks_path and self.url.count("/") == _SLASHES and self.url[-1] == "/" else self.url
        )

    def plain_values(self) -> tuple[Any, ...] | None:
        """Return all values except the callbacks if they are plain (strings, numbers, bytes, dicts of these), or None.

        A mutable value, such as a list in the meta, is not plain, because other objects may share it.
        """
        meta, cb_kwargs, headers = self._meta, self._cb_kwargs, self._headers
        if self._optional or not (_is_plain(meta) and _is_plain(cb_kwargs)):
            return None
        fields = None if headers is None else list(headers._fields.values())
        return (
            *(self.url, self.method, self.body, self.priority, self.dont_filter, self.depth),
            *(fields, meta or None, cb_kwargs or None),
        )

    @classmethod
    def of_plain_values(cls, callback: Callback | None, errback: Callback | None, values: Sequence[Any]) -> Self:
        """Return a request from its callbacks and the result of :meth:`plain_values`, without checks."""
        request = cls.__new__(cls)
        request.callback = callback
        request.errback = errback
        request.url, request.method, request.body, request.priority, request.dont_filter, request.depth = values[:6]
        fields, request._meta, request._cb_kwargs = values[6:]
        request._headers = None if fields is None else SharedHeaders.of_fields(fields)
        request._optional = None
        return request

    def extras(self) -> Extras:
        """Return headers, cookies, meta and cb_kwargs without copying them; None for each that does not exist yet."""
        return self._headers, self._given_cookies(), self._meta, self._cb_kwargs

    def _given_cookies(self) -> _Cookies | None:
        return None if self._optional is None else self._optional.get("cookies")

    @overload
    def replace(self, *, cls: type[_RequestT], **changes: Any) -> _RequestT: ...

    @overload
    def replace(self, *, cls: None = None, **changes: Unpack[RequestChanges]) -> Self: ...

    def replace(self, *, cls: type[Request] | None = None, **changes: Any) -> Request:
        """Return a copy of this request with ``changes``. Headers, meta and cb_kwargs are copied.

        Args:
            cls: The class of the new request, whose constructor is called. If None, the class stays the same, the
                attributes that a subclass has added are copied, and the subclass's constructor is not called.
            changes: Keyword arguments of :class:`Request`, and of ``cls``.

        Raises:
            ValueError: As in the constructor.
            TypeError: If an argument's name is unknown, or as in the constructor.
        """
        values: dict[str, Any] = {
            "url": self.written_url,
            "callback": self.callback,
            "method": self.method,
            "headers": self._headers,
            "body": self.body,
            "cookies": self._given_cookies(),
            "meta": self._meta,
            "cb_kwargs": self._cb_kwargs,
            "priority": self.priority,
            "dont_filter": self.dont_filter,
            "errback": self.errback,
        }
        values.update(changes)
        kind = type(self) if cls is None else cls
        if cls is not None or kind is Request:
            request = kind(**values)
        else:  # the subclass's constructor may take other arguments
            request = kind.__new__(kind)
            _carry(self, request)
            Request.__init__(request, **values)
        request.depth = self.depth
        if self._optional is not None:
            request.sink = self.sink
            set_notes(request, notes_of(self))
        return request

    def copy(self) -> Self:
        """Return a copy of this request, with its own headers, meta and cb_kwargs."""
        return self.replace()

    def __repr__(self) -> str:
        return without_passwords(f"<{self.method} {self.url}>")


_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*)\}")

_SLASHES = 3
"""Number of slashes in a URL with the path ``/``."""

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def _is_plain(values: dict[str, Any] | None) -> bool:
    """Return whether the values are immutable and the keys are strings."""
    return not values or (_PLAIN.issuperset(map(type, values.values())) and {str}.issuperset(map(type, values)))


def _carry(source: Request, target: Request) -> None:
    """Copy from ``source`` to ``target`` the attributes that a subclass has added."""
    names = [name for kind in type(source).__mro__ for name in _slots_of(kind)] + list(getattr(source, "__dict__", ()))
    for name in names:
        if not name.startswith("__") and hasattr(source, name):
            setattr(target, name, getattr(source, name))


def _slots_of(kind: type) -> Iterable[str]:
    slots = kind.__dict__.get("__slots__", ()) if kind is not Request else ()
    return [slots] if isinstance(slots, str) else slots


def _check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function or None, not {value!r}")


def _checked_method(method: object) -> str:
    if not isinstance(method, str):
        raise TypeError(f"a method must be a str, not {type(method).__name__}: {method!r}")
    if not _METHOD.fullmatch(method):
        raise ValueError(f"{method!r} is not an HTTP method")
    return method.upper()


def _to_bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body must be bytes or str, not {type(body).__name__}: {body!r}")


def _encoded(url: Any, body: Any, encoding: str, flags: object) -> tuple[Any, Any]:
    """Return the URL and the body, encoded with ``encoding``."""
    if flags is not None:
        raise TypeError("Request() got 'flags', which trawl does not support; use meta instead")
    codec = codec_named(encoding)
    url = with_legacy_query(url, codec) if isinstance(url, str) else url
    return url, body.encode(codec) if isinstance(body, str) else body


def NO_CALLBACK(*args: Any, **kwargs: Any) -> NoReturn:
    """The callback of a request that is only fetched, with ``spider.fetch()`` or ``engine.download_async()``.

    Middleware may compare ``request.callback`` with it.

    Raises:
        RuntimeError: Always, because nothing should call it.
    """
    raise RuntimeError("NO_CALLBACK was called, but it only marks requests that are only fetched, without a callback")


def _copied(cookies: Any) -> _Cookies:
    """Return a checked copy of a request's cookies."""
    if isinstance(cookies, str | bytes):
        raise TypeError(
            f"cookies must be a mapping, not {type(cookies).__name__}: put the value of a Cookie header into headers"
        )
    if isinstance(cookies, Mapping):
        for name, value in cookies.items():
            _check_cookie(name, value)
        return dict(cookies)
    copied = list(cookies)
    for each in copied:
        if not isinstance(each, Mapping):
            raise TypeError(f"a cookie must be a mapping with name and value, not {each!r:.100}")
        _check_cookie(each.get("name"), each.get("value"))
    return copied


def _check_cookie(name: object, value: object) -> None:
    if isinstance(value, Mapping | list | tuple | set):
        raise TypeError(f"the cookie {name!r} can't be sent: its value must be a str, not {type(value).__name__}")
    if name is not None and value is not None:
        check_cookie(*(each.decode("latin-1") if isinstance(each, bytes) else str(each) for each in (name, value)))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a submodule of Scrapy's module with this module's name. User code needs it in annotations."""
        return scrapy_names.submodule(__name__, name)
