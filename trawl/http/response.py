"""The response that a callback receives, with methods for following its links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypedDict, TypeVar, Unpack, overload

import msgspec
import parsel
from lxml import etree

from trawl import scrapy_names
from trawl.http.content import decode_body, selector_type, with_charset, with_legacy_query
from trawl.http.encodings import decoding_codec, output_codec
from trawl.http.headers import Headers, HeadersInput, class_of_crawl
from trawl.http.request import Callback, Request, RequestOptions
from trawl.http.url import is_joinable, join_url, scheme_of
from trawl.passwords import without_passwords
from trawl.scrapy_names import Unsupported
from trawl.selectors import MixedQuery, Selector, SelectorList, SelectorType, find_links, select

if TYPE_CHECKING:
    from trawl.http.content import BodyText
    from trawl.http.outcome import Times

__all__ = ["Changes", "HasUrl", "LinkTarget", "Response"]

_ResponseT = TypeVar("_ResponseT", bound="Response")

_LINK_ELEMENTS = frozenset({"a", "area", "link"})

_BASE = re.compile("<[bB][aA][sS][eE]")  # a search for one fixed character is fast


class HasUrl(Protocol):
    """An object with a URL, such as a :class:`~trawl.links.Link`."""

    @property
    def url(self) -> str:
        """The object's URL."""


MAX_BASE_LENGTH = 2_048
"""Maximum length of a base URL, which the URL of each link may contain. A longer one would not be fetched."""

LinkTarget = str | parsel.Selector | HasUrl
"""An object that can be followed."""


def _base_url_of(page: Response) -> str:
    """Return the base URL of a page's links: the first ``<base href>`` of HTML, or the page's URL.

    A base does not count if it is no valid URL, too long, or ``data:`` or ``javascript:`` (HTML, 4.2.3).
    """
    selector = page._selector
    if selector is None:  # search the text first, because parsing the page takes longer
        if _BASE.search(page.text) is None:
            return page.url
        selector = page.selector
    if selector.type != "html":
        return page.url
    for element in selector.root.getroottree().iter("base"):  # search the whole page, even if the selector is a part
        if (href := element.get("href")) is not None:
            break
    else:
        return page.url
    try:
        base = join_url(page.url, href)
    except ValueError:
        return page.url
    return page.url if scheme_of(base) in {"data", "javascript"} or len(base) > MAX_BASE_LENGTH else base


def _link_of(target: LinkTarget | etree._Element, page: Response) -> str:
    """Return the URL of a link as a string, to be joined to the page's base URL, or raise ValueError or TypeError."""
    text = _text_of(target)
    if "?" in text and not text.isascii():
        return with_legacy_query(text, page.output_encoding)
    return text


def _followable(
    targets: Iterable[LinkTarget | etree._Element], page: Response, callback: Callback | None, options: RequestOptions
) -> Iterator[Request]:
    """Yield a request for each link or element in ``targets`` that has a valid URL."""
    base = page.base_url
    for target in targets:
        if type(target) is str and "?" not in target:
            text = target
        else:
            try:
                text = _link_of(target, page)
            except ValueError:
                continue
        try:
            request = (
                Request(text, callback, base=base, **options) if options else Request.of_link(text, callback, base)
            )
        except ValueError:
            if is_joinable(base, text):
                raise
            continue
        yield request


def _text_of(target: LinkTarget | etree._Element) -> str:
    if isinstance(target, parsel.Selector):
        target = target.root
    if isinstance(target, str):
        return target
    if isinstance(target, etree._Element):
        return _href_of(target)
    if isinstance(target, SelectorList):
        raise ValueError("a list of selectors has many links: use follow_all(), or follow one of them")
    if target is None:
        raise ValueError("there is no link to follow: it is None")
    url = getattr(target, "url", None)
    if isinstance(url, str):
        return url
    raise TypeError(f"a link must be a str, a Link or a selector, not {type(target).__name__}: {target!r}")


def _href_of(element: etree._Element) -> str:
    """Return the ``href`` of a link element, or raise ValueError."""
    tag = element.tag
    if tag not in _LINK_ELEMENTS:
        if not isinstance(tag, str):
            raise ValueError(f"{element!r} is neither an element nor an attribute")
        name = tag.rpartition("}")[2].lower()
        if name not in _LINK_ELEMENTS:
            raise ValueError(f"<{name}> is not a link: select <a>, <area>, <link> or an attribute")
    href = element.get("href")
    if href is None:
        raise ValueError(f"<{tag}> has no href")
    return str(href)


class Changes(TypedDict, total=False):
    """Keyword arguments of :meth:`Response.replace`."""

    url: str
    status: int
    headers: HeadersInput | None
    body: bytes
    encoding: str | None
    request: Request | None
    flags: Iterable[str]
    latency: float | None
    ip_address: str | None
    protocol: str | None


class Response:
    """A complete response, whose body was read and decompressed. Text and selectors are created once, on first use.

    >>> page = HtmlResponse("http://a.example/", body="<title>A</title> <a href='/b'>B</a>")
    >>> page.css("title::text").get()
    'A'
    >>> [request.url for request in page.follow_all(css="a")]
    ['http://a.example/b']

    Attributes:
        url: The URL, in WHATWG normal form and without the fragment. ``request.url`` keeps the fragment.
        status: The status code.
        headers: The headers as received.
        body: The decompressed bytes.
        request: The request; None if the response was created without a request. :attr:`sent_headers` has the headers
            that were added when the request was sent.
        flags: Strings such as ``"cached"``.
        latency: Seconds from the start of connecting to the headers; None if not measured.
        ip_address: The server's IP address; None if unknown.
        protocol: The protocol, such as ``"HTTP/1.1"``; None if unknown.
        times: The parts of the request's duration; None if not measured. ``parsing`` is known when the callback has
            ended.
    """

    __slots__ = (
        "__weakref__",
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
    _parsed_as: SelectorType | None = None  # None if the content decides
    _is_scrapys: bool = False
    page: Any = None  # details of a rendered page; None for other pages
    attributes: ClassVar[tuple[str, ...]] = (
        *("url", "status", "headers", "body", "request", "flags", "latency", "ip_address", "protocol"),
    )
    """The arguments of the constructor that :meth:`replace` copies. A subclass adds its own."""
    if not TYPE_CHECKING:
        certificate = Unsupported(
            "certificates are verified (DOWNLOAD_VERIFY_CERTIFICATES); Python's ssl.get_server_certificate() reads one"
        )

    def __init__(
        self,
        url: str,
        status: int = 200,
        headers: HeadersInput | None = None,
        body: bytes | None = b"",
        request: Request | None = None,
        flags: Iterable[str] | None = (),
        latency: float | None = None,
        *,
        ip_address: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Create a response. The arguments are the attributes.

        Raises:
            TypeError: If the body is not bytes.
            ValueError: If a header is invalid, or the status is not a number.
        """
        if body is None:
            body = b""
        if not isinstance(body, bytes):
            raise TypeError(f"the body of a response must be bytes, not {type(body).__name__}")
        self.url: str = url
        self.status: int = status if type(status) is int else int(status)
        self.headers: Headers = headers if isinstance(headers, Headers) else class_of_crawl.get()(headers)
        self.body: bytes = body
        self.request: Request | None = request
        self.flags: list[str] = list(flags or ())
        self.latency: float | None = latency
        self.ip_address: str | None = ip_address
        self.protocol: str | None = protocol
        self.times: Times | None = None
        self._decoded: BodyText | None = None
        self._selector: Selector | None = None
        self._base_url: str | None = None
        self._sent: Headers | None = None

    @property
    def sent_headers(self) -> Headers:
        """The headers sent with the request, including cookies and the credentials of ``HTTP_AUTH``.

        ``request.headers`` has neither cookies nor credentials, so that a request derived from this request does not
        copy them. ``sent_headers`` and ``request.headers`` do not have the headers that each connection adds: ``Host``,
        ``Accept-Encoding`` and the length of the body.
        """
        return self._answered("sent_headers").headers if self._sent is None else self._sent

    def answer(self, request: Request) -> None:
        """Set :attr:`request`. :attr:`sent_headers` keeps the headers of the copy that the transport has sent."""
        if self._sent is None and self.request is not None and self.request is not request:
            self._sent = self.request.headers
        self.request = request

    @property
    def meta(self) -> dict[str, Any]:
        """The ``meta`` of the request.

        Raises:
            AttributeError: If the response has no request.
        """
        return self._answered("meta").meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """The ``cb_kwargs`` of the request.

        Raises:
            AttributeError: If the response has no request.
        """
        return self._answered("cb_kwargs").cb_kwargs

    def _answered(self, name: str) -> Request:
        if self.request is None:
            raise AttributeError(f"{self!r} has no {name}: it was made without a request")
        return self.request

    @property
    def text(self) -> str:
        """The body as a string, decoded like in browsers, with U+FFFD for undecodable bytes. Never raises.

        A byte order mark takes precedence, then the charset of ``Content-Type``, then the page's own declaration
        (``<meta>``, ``<?xml?>``), then UTF-8 if the body is valid UTF-8, then windows-1252 (HTML, 13.2.3.2).
        """
        return self._read().text

    @property
    def encoding(self) -> str:
        """The encoding of :attr:`text`, as the name of Python's codec."""
        return decoding_codec(self._read().encoding)

    @property
    def output_encoding(self) -> str:
        """The encoding for sending the page's forms and the queries of its links (Encoding, 4.3)."""
        return output_codec(self._read().encoding)

    def _read(self) -> BodyText:
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = decode_body(self.body, self.headers.get("content-type"))
        return decoded

    @property
    def selector(self) -> Selector:
        """The selector of the whole page, parsed once.

        The page is parsed as XML or JSON if ``Content-Type`` names one of these, otherwise as HTML.
        """
        if self._selector is None:
            kind = self._parsed_as or selector_type(self.headers.get("content-type"), self.body)
            self._selector = select(self.text, kind, self.url)
        return self._selector

    @property
    def is_selected(self) -> bool:
        """True if :attr:`selector` was used, and the page is HTML."""
        return self._selector is not None and self._selector.type == "html"

    def css(self, query: str) -> SelectorList[Selector]:
        """Select with a CSS query, including parsel's ``::text`` and ``::attr(name)``.

        Raises:
            ValueError: If ``query`` is not CSS, or the page is JSON.
        """
        try:
            return self.selector.css(query)
        except MixedQuery as error:
            raise error.named("response.css(...)", "response.xpath(...)") from None

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Select with an XPath query. ``variables`` are the query's ``$names``, ``namespaces`` its prefixes.

        Raises:
            ValueError: If ``query`` is not XPath, or the page is JSON.
        """
        try:
            return self.selector.xpath(query, **variables)
        except MixedQuery as error:
            raise error.named("response.css(...)", "response.xpath(...)") from None

    def jmespath(self, query: str, **options: Any) -> SelectorList[Selector]:
        """Select with a JMESPath query in a JSON page, with any ``Content-Type``."""
        selector = self.selector
        if selector.type != "json" and self.body.lstrip()[:1] in (b"{", b"["):
            selector = select(self.text, "json")
        return selector.jmespath(query, **options)

    def json(self) -> Any:
        """Return the body parsed as JSON.

        Raises:
            ValueError: If the body is not JSON. The error is a :class:`json.JSONDecodeError` with the position.
        """
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return json.loads(self.text)  # accepts other encodings, NaN and lone surrogates, with a better message

    @property
    def base_url(self) -> str:
        """The base URL of links on the page: the page's ``<base href>``, or the page's URL (HTML, 4.2.3)."""
        if self._base_url is None:
            self._base_url = _base_url_of(self)
        return self._base_url

    def urljoin(self, url: str) -> str:
        """Return ``url`` joined to :attr:`base_url`, in WHATWG normal form.

        Raises:
            ValueError: If the result is not a valid URL.
        """
        return join_url(self.base_url, url)

    def follow(self, url: LinkTarget, callback: Callback | None = None, **options: Unpack[RequestOptions]) -> Request:
        """Return a request for a link on this page.

        Args:
            url: A URL, relative or not; a :class:`~trawl.links.Link`; a selector of an ``<a>``, ``<area>`` or
                ``<link>`` element; or a selector of an attribute, such as ``::attr(href)``.
            callback: Receives the response.
            options: Keyword arguments of :class:`Request`.

        Raises:
            ValueError: If ``url`` is not valid, or the selector is for another element or has no ``href``.
            TypeError: If ``url`` is an object of another type.
        """
        return Request(_link_of(url, self), callback, base=self.base_url, **options)

    def follow_all(
        self,
        urls: Iterable[LinkTarget] | None = None,
        callback: Callback | None = None,
        *,
        css: str | None = None,
        xpath: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Request]:
        """Return an iterator of requests for links on this page. Links without a valid URL are skipped.

        Args:
            urls: Links as accepted by :meth:`follow`; None to select links with ``css`` or ``xpath``.
            callback: Receives each response.
            css: A CSS query for elements or attributes.
            xpath: An XPath query for elements or attributes.
            options: Keyword arguments of :class:`Request`.

        Raises:
            ValueError: If not exactly one of ``urls``, ``css`` and ``xpath`` is given, or a query is invalid.
        """
        if (urls is None) + (css is None) + (xpath is None) != 2:
            raise ValueError("follow_all takes exactly one of urls, css and xpath")
        targets: Iterable[Any]
        try:
            if css is not None:
                targets = find_links(self.selector, css)
            else:
                targets = self.xpath(xpath) if xpath is not None else urls or ()
        except MixedQuery as error:
            raise error.named("follow_all(css=...)", "follow_all(xpath=...)") from None
        return _followable(targets, self, callback, options)

    @overload
    def replace(self, *, cls: type[_ResponseT], **changes: Any) -> _ResponseT: ...

    @overload
    def replace(self, *, cls: None = None, **changes: Unpack[Changes]) -> Self: ...

    def replace(self, *, cls: type[Response] | None = None, **changes: Any) -> Response:
        """Return a copy of this response with ``changes``.

        Args:
            cls: The class of the new response; None for the same class.
            changes: Arguments of the constructor of this class. ``encoding`` changes the charset of the content type.
        """
        encoding = changes.pop("encoding", None)
        # A body in a file is read only if it is needed.
        values: dict[str, Any] = {name: getattr(self, name) for name in self.attributes if name not in changes}
        values = {**values, "headers": self.headers.copy(), **changes}
        if encoding is not None:
            values["headers"] = headers = type(self.headers)(values["headers"])
            headers["Content-Type"] = with_charset(headers.get("Content-Type"), encoding)
            values["body"] = values["body"].encode(encoding) if isinstance(values["body"], str) else values["body"]
        changed = (type(self) if cls is None else cls)(**values)
        changed.times = self.times
        if "request" not in changes:
            changed._sent = self._sent
        return changed

    def copy(self) -> Self:
        """Return a copy of this response, with its own headers and flags."""
        return self.replace()

    def __repr__(self) -> str:
        return without_passwords(f"<{self.status} {self.url}>")


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a submodule of Scrapy's module with this module's name. User code needs it in annotations."""
        return scrapy_names.submodule(__name__, name)
