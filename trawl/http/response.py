"""The response: what a callback gets.

Links on a page: what they are relative to, and what may be followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

import msgspec
from lxml import etree

from trawl.http.content import decode_body, selector_type, with_legacy_query
from trawl.http.headers import Headers, HeadersInput
from trawl.http.request import Callback, Request, RequestOptions
from trawl.http.url import is_joinable, join_url, scheme_of
from trawl.migration import Unsupported
from trawl.selectors import Selector, SelectorList, found, select

if TYPE_CHECKING:
    from trawl.http.content import DecodedBody
    from trawl.http.times import Times

__all__ = ["Changes", "HasUrl", "LinkTarget", "Page", "Response", "base_url_of", "followable", "link_of"]

_LINK_ELEMENTS = frozenset({"a", "area", "link"})

_BASE = re.compile("<base", re.IGNORECASE)
"""Looking for it takes three microseconds; walking the parsed page takes more than fifty."""


class HasUrl(Protocol):
    """A link: whatever has a URL."""

    @property
    def url(self) -> str:
        """Where it leads."""
        ...


class Page(Protocol):
    """What a link needs to know of the page it is on."""

    url: str

    @property
    def text(self) -> str:
        """The page, decoded."""
        ...

    @property
    def selector(self) -> Selector:
        """The whole page, parsed."""
        ...

    @property
    def encoding(self) -> str:
        """The codec that the page's text was decoded with."""
        ...

    @property
    def base_url(self) -> str:
        """What links are relative to."""
        ...


MAX_BASE_LENGTH = 2_048
"""Characters of a base URL. Each link on a page may repeat it, and no URL that is as long is asked for."""

LinkTarget = str | Selector | HasUrl
"""What can be followed."""


def base_url_of(page: Page) -> str:
    """Return what links on the page are relative to: the first ``<base href>`` of HTML, else the page's URL.

    A base that makes no URL, or one of ``data:`` or ``javascript:``, does not count (HTML, 4.2.3), nor does one that is
    longer than any URL that is fetched.
    """
    if _BASE.search(page.text) is None or page.selector.type != "html":
        return page.url
    href = page.selector.xpath("(//base/@href)[1]").get()
    if href is None:
        return page.url
    try:
        base = join_url(page.url, href)
    except ValueError:
        return page.url
    return page.url if scheme_of(base) in {"data", "javascript"} or len(base) > MAX_BASE_LENGTH else base


def link_of(target: LinkTarget | etree._Element, page: Page) -> str:
    """Return what a link says, not joined yet, ready to be joined to the page's base URL.

    Raises:
        ValueError: None, a list of selectors, or a selector that is no link.
        TypeError: another kind of thing.
    """
    text = _text_of(target)
    if "?" in text and not text.isascii():
        return with_legacy_query(text, page.encoding)
    return text


def followable(
    targets: Iterable[LinkTarget | etree._Element], page: Page, callback: Callback | None, options: RequestOptions
) -> Iterator[Request]:
    """Go through ``targets``, or elements of the parsed page, and give a request for each that makes a URL.

    Raises:
        ValueError: from the first request on, when ``options`` make none.
    """
    base = page.base_url
    for target in targets:
        try:
            text = link_of(target, page)
        except ValueError:
            continue
        try:
            request = Request(text, callback, base=base, **options)
        except ValueError:
            if is_joinable(base, text):
                raise
            continue
        yield request


def _text_of(target: LinkTarget | etree._Element) -> str:
    if isinstance(target, Selector):
        target = target.root
    if isinstance(target, str):
        return target
    if isinstance(target, etree._Element):
        return _href_of(target)
    if isinstance(target, SelectorList):
        raise ValueError("a list of selectors is many links: use follow_all(), or one of them")
    if target is None:
        raise ValueError("there is no link to follow: it is None")
    url = getattr(target, "url", None)
    if isinstance(url, str):
        return url
    raise TypeError(f"a link is a str, a Link or a selector, not {type(target).__name__}: {target!r}")


def _href_of(element: etree._Element) -> str:
    """Return the address that an element stands for.

    Raises:
        ValueError: It is no link, or one without ``href``.
    """
    tag = element.tag
    if tag not in _LINK_ELEMENTS:
        if not isinstance(tag, str):
            raise ValueError(f"{element!r} is no element and no attribute")
        name = tag.rpartition("}")[2].lower()
        if name not in _LINK_ELEMENTS:
            raise ValueError(f"<{name}> is no link: select <a>, <area>, <link> or an attribute")
    href = element.get("href")
    if href is None:
        raise ValueError(f"<{tag}> has no href")
    return str(href)


class Changes(TypedDict, total=False):
    """What :meth:`Response.replace` takes."""

    url: str
    status: int
    headers: HeadersInput | None
    body: bytes
    request: Request | None
    flags: Iterable[str]
    latency: float | None
    ip_address: str | None
    protocol: str | None


class Response:
    """A whole response: its body has been read and decompressed. Text and selectors are made on first use, once.

    Attributes:
        url: Where it came from, in WHATWG normal form.
        status: The status code.
        headers: The fields as they came.
        body: The bytes after decompression.
        request: What it answers; None on one made by hand. :attr:`sent_headers` has what was added when it was sent.
        flags: Words that say what is special about it (``"cached"``).
        latency: Seconds from the start of connecting to the headers; None if it was not measured.
        ip_address: The address that answered, if known.
        protocol: ``"HTTP/1.1"`` and the like, if known.
        times: Where the time of its request went; ``parsing`` is known when the callback has ended. None if it was not
            measured.
    """

    __slots__ = (
        "_base_url",
        "_decoded",
        "_selector",
        "_sent",
        "body",
        "flags",
        "headers",
        "ip_address",
        "latency",
        "protocol",
        "request",
        "status",
        "times",
        "url",
    )
    if not TYPE_CHECKING:
        certificate = Unsupported(
            "certificates are verified (DOWNLOAD_VERIFY_CERTIFICATES); Python's ssl.get_server_certificate() reads one"
        )

    def __init__(
        self,
        url: str,
        status: int = 200,
        headers: HeadersInput | None = None,
        body: bytes = b"",
        request: Request | None = None,
        flags: Iterable[str] = (),
        latency: float | None = None,
        *,
        ip_address: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Make a response; the arguments are the attributes.

        Raises:
            TypeError: the body is not bytes.
            ValueError: a header is none.
        """
        if not isinstance(body, bytes):
            raise TypeError(f"the body of a response is bytes, not {type(body).__name__}")
        self.url: str = url
        self.status: int = status
        self.headers: Headers = headers if isinstance(headers, Headers) else Headers(headers)
        self.body: bytes = body
        self.request: Request | None = request
        self.flags: list[str] = list(flags)
        self.latency: float | None = latency
        self.ip_address: str | None = ip_address
        self.protocol: str | None = protocol
        self.times: Times | None = None
        self._decoded: DecodedBody | None = None
        self._selector: Selector | None = None
        self._base_url: str | None = None
        self._sent: Headers | None = None

    @property
    def sent_headers(self) -> Headers:
        """The fields that its request was sent with: the cookies, and the credentials of ``HTTP_AUTH``, too.

        ``request.headers`` is without these, so that a request which is made of it takes none of them along. Neither
        has what each connection adds by itself: ``Host``, ``Accept-Encoding`` and how long the body is.
        """
        return self._answered("sent_headers").headers if self._sent is None else self._sent

    def answer(self, request: Request) -> None:
        """Be what answers ``request``, of which a copy was sent; :attr:`sent_headers` goes on to tell the copy's."""
        if self._sent is None and self.request is not None and self.request is not request:
            self._sent = self.request.headers
        self.request = request

    @property
    def meta(self) -> dict[str, Any]:
        """The ``meta`` of the request.

        Raises:
            AttributeError: the response has no request.
        """
        return self._answered("meta").meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """The ``cb_kwargs`` of the request.

        Raises:
            AttributeError: the response has no request.
        """
        return self._answered("cb_kwargs").cb_kwargs

    def _answered(self, name: str) -> Request:
        if self.request is None:
            raise AttributeError(f"{self!r} has no {name}: it was made without a request")
        return self.request

    @property
    def text(self) -> str:
        """The body as text, decoded as browsers do; what can't be decoded is U+FFFD. Never raises.

        A byte order mark decides, then the charset of ``Content-Type``, then what the page says of itself (``<meta>``,
        ``<?xml?>``), then UTF-8 if the body is valid UTF-8, then windows-1252 (HTML, 13.2.3.2).
        """
        return self._read().text

    @property
    def encoding(self) -> str:
        """The encoding of :attr:`text`, under the name that Python's codecs have for it."""
        return self._read().encoding

    def _read(self) -> DecodedBody:
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = decode_body(self.body, self.headers.get("content-type"))
        return decoded

    @property
    def selector(self) -> Selector:
        """The selector of the whole page, parsed once: as XML or JSON if ``Content-Type`` says so, else as HTML."""
        if self._selector is None:
            kind = selector_type(self.headers.get("content-type"), self.body)
            self._selector = select(self.text, kind, self.url)
        return self._selector

    def css(self, query: str) -> SelectorList[Selector]:
        """Return what a CSS query finds, with ``::text`` and ``::attr(name)`` as parsel has them.

        Raises:
            ValueError: ``query`` is not CSS, or the page is JSON.
        """
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Return what an XPath query finds; ``variables`` are its ``$names``, ``namespaces`` its prefixes.

        Raises:
            ValueError: ``query`` is not XPath, or the page is JSON.
        """
        return self.selector.xpath(query, **variables)

    def jmespath(self, query: str, **options: Any) -> SelectorList[Selector]:
        """Return what a JMESPath query finds in a page of JSON, whatever its ``Content-Type`` says it is."""
        selector = self.selector
        if selector.type != "json" and self.body.lstrip()[:1] in (b"{", b"["):
            selector = select(self.text, "json")
        return selector.jmespath(query, **options)

    def json(self) -> Any:
        """Return the body read as JSON.

        Raises:
            ValueError: it is not JSON (a :class:`json.JSONDecodeError`, which says where).
        """
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return json.loads(self.text)  # other encodings, NaN, lone surrogates, and the better message

    @property
    def base_url(self) -> str:
        """What links on the page are relative to: its ``<base href>``, else its URL (HTML, 4.2.3)."""
        if self._base_url is None:
            self._base_url = base_url_of(self)
        return self._base_url

    def urljoin(self, url: str) -> str:
        """Return the address that ``url`` has as a link on this page, in WHATWG normal form.

        Raises:
            ValueError: it makes no URL.
        """
        return join_url(self.base_url, url)

    def follow(self, url: LinkTarget, callback: Callback | None = None, **options: Unpack[RequestOptions]) -> Request:
        """Return a request for a link on this page.

        Args:
            url: A URL, relative or not; a :class:`~trawl.links.Link`; a selector of an ``<a>``, ``<area>`` or
                ``<link>`` element; or a selector of an attribute, as ``::attr(href)`` gives.
            callback: Gets the response.
            options: As :class:`Request` takes them.

        Raises:
            ValueError: ``url`` makes no URL, or the selector is of another element or has no ``href``.
            TypeError: ``url`` is none of these.
        """
        return Request(link_of(url, self), callback, base=self.base_url, **options)

    def follow_all(
        self,
        urls: Iterable[LinkTarget] | None = None,
        callback: Callback | None = None,
        *,
        css: str | None = None,
        xpath: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Request]:
        """Return the requests for many links on this page, one by one; links that make no URL are left out.

        Args:
            urls: What :meth:`follow` takes; or use one of the queries in its place.
            callback: Gets each response.
            css: A CSS query for elements or attributes.
            xpath: An XPath query for the same.
            options: As :class:`Request` takes them.

        Raises:
            ValueError: not exactly one of ``urls``, ``css`` and ``xpath`` is given, or a query is wrong.
        """
        if sum(given is not None for given in (urls, css, xpath)) != 1:
            raise ValueError("follow_all takes exactly one of urls, css and xpath")
        targets: Iterable[Any]
        if css is not None:
            targets = found(self.selector, css)
        elif xpath is not None:
            targets = self.xpath(xpath)
        else:
            targets = urls or ()
        return followable(targets, self, callback, options)

    def replace(self, **changes: Unpack[Changes]) -> Self:
        """Return a response like this one but for ``changes``."""
        values: dict[str, Any] = {
            "url": self.url,
            "status": self.status,
            "headers": self.headers.copy(),
            "body": None if "body" in changes else self.body,  # one in a file is not read for nothing
            "request": self.request,
            "flags": self.flags,
            "latency": self.latency,
            "ip_address": self.ip_address,
            "protocol": self.protocol,
        }
        values.update(changes)
        changed = type(self)(**values)
        changed.times = self.times
        if "request" not in changes:
            changed._sent = self._sent
        return changed

    def copy(self) -> Self:
        """Return a response like this one, with headers and flags of its own."""
        return self.replace()

    def __repr__(self) -> str:
        return f"<{self.status} {self.url}>"
