"""Links: the class, the addresses in attributes, and the extractor that finds the wanted links of a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import attrs
from lxml import etree

from trawl.http import Response, canonicalize_url, host_of, join_url, normalize_url, scheme_of
from trawl.http.content import with_legacy_query
from trawl.selectors import MixedQuery, check_mixed, check_silent, css_to_xpath

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor", "Patterns", "Texts", "addresses_in"]


# Mutable, because many spiders assign `link.url` in a rule's process_links.
@attrs.define(unsafe_hash=True)
class Link:
    """A link found on a page. ``response.follow`` accepts it. Two links are equal if all their attributes are equal.

    Attributes:
        url: Absolute URL.
        text: Text inside the link.
        fragment: The part after the ``#``, if it was removed from the URL.
        nofollow: True if the page asks robots not to follow the link (``rel="nofollow"``).
    """

    url: str
    text: str = ""
    fragment: str = ""
    nofollow: bool = False


# Every repetition is possessive, because backtracking over a hostile page's text would take quadratic time.
_ADDRESS = re.compile(r"[ \t\n\f\r,]*+([^ \t\n\f\r]++)")

_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?+)*+,?+")

_LISTS = frozenset({"srcset", "imagesrcset", "data-srcset"})


def addresses_in(attribute: str, value: str) -> tuple[str, ...]:
    """Return the addresses in an attribute. ``srcset`` has several (HTML, section 4.8.4.3.10).

    Each candidate in ``srcset`` starts with an address, which ends at whitespace. A width or density follows, which
    ends at a comma outside of parentheses. After an address that ends with a comma, the width or density is missing.
    """
    if attribute not in _LISTS:
        return (value,)
    found: list[str] = []
    candidate = _ADDRESS.match(value)
    while candidate is not None:
        address, at = candidate[1], candidate.end()
        found.append(address.rstrip(","))
        if address[-1] != "," and (rest := _DESCRIPTORS.match(value, at)) is not None:
            at = rest.end()
        candidate = _ADDRESS.match(value, at)
    return tuple(found)


IGNORED_EXTENSIONS: tuple[str, ...] = (
    *("7z", "7zip", "bz2", "rar", "tar", "tar.gz", "xz", "zip"),  # archives
    *("mng", "pct", "bmp", "gif", "jpg", "jpeg", "png", "pst", "psp", "tif", "tiff", "ai", "drw", "dxf", "eps"),
    *("ps", "svg", "cdr", "ico", "webp", "avif"),  # images
    *("mp3", "wma", "ogg", "wav", "ra", "aac", "mid", "au", "aiff"),  # sound
    *("3gp", "asf", "asx", "avi", "mov", "mp4", "mpg", "qt", "rm", "swf", "wmv", "m4a", "m4v", "flv", "webm"),
    *("xls", "xlsm", "xlsx", "xltm", "xltx", "potm", "potx", "ppt", "pptm", "pptx", "pps", "doc", "docb", "docm"),
    *("docx", "dotm", "dotx", "odt", "ods", "odg", "odp"),  # office
    *("css", "pdf", "exe", "bin", "rss", "dmg", "iso", "apk", "jar", "sh", "rb", "js", "hta", "bat", "cpl", "msi"),
    *("msp", "py"),
)
"""The default of ``deny_extensions``: Scrapy's list and AVIF."""

Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None
"""One or several regular expressions, compiled or not."""

Texts = str | Iterable[str] | None
"""One or several strings."""

_SCHEMES = frozenset({"http", "https", "file", "ftp"})

_SPACE = " \t\n\r\f"

_NAMESPACES = {"re": "http://exslt.org/regular-expressions", "set": "http://exslt.org/sets"}

_MAX_TEXT = 10_000

_TEXT = etree.XPath(f"substring(string(), 1, {_MAX_TEXT})", smart_strings=False)
"""The start of a link's text. Without the limit, each unclosed link could contain the rest of a large page."""


class LinkExtractor:
    """Finds the wanted links of pages. It has the same arguments as Scrapy's link extractor.

    A domain includes its subdomains. It matches any port, unless the domain is given with a port.

    >>> page = HtmlResponse("http://a.example/", body="<a href='/item/1'>One</a> <a href='/help'>Help</a>")
    >>> [link.url for link in trawl.LinkExtractor(allow="/item/").extract_links(page)]
    ['http://a.example/item/1']
    """

    _is_scrapys = False
    """Whether to find exactly Scrapy's links, even if more could be found (see :mod:`trawl.linkextractors`)."""

    def __init__(  # noqa: PLR0917 - Scrapy's arguments, in its order
        self,
        allow: Patterns = (),
        deny: Patterns = (),
        allow_domains: Texts = (),
        deny_domains: Texts = (),
        restrict_xpaths: Texts = (),
        tags: Texts = ("a", "area"),
        attrs: Texts = ("href",),
        canonicalize: bool = False,
        unique: bool = True,
        process_value: Callable[[str], str | None] | None = None,
        deny_extensions: Texts = None,
        restrict_css: Texts = (),
        strip: bool = True,
        restrict_text: Patterns = None,
        deny_tags: Texts = (),
        deny_attrs: Texts = (),
    ) -> None:
        r"""Create an extractor of the wanted links.

        Args:
            allow: Regular expressions. A link is kept only if one of these matches anywhere in the link's URL. If
                empty, all links are kept.
            deny: Regular expressions. A link is dropped if one of these matches in the link's URL, even if ``allow``
                matches.
            allow_domains: Keep only links to these domains.
            deny_domains: Drop links to these domains.
            restrict_xpaths: Search only inside the elements that these queries select.
            tags: Names of the elements that are links; ``*`` for all.
            attrs: Names of the attributes that contain addresses; ``*`` for all. ``srcset`` contains several.
            canonicalize: True to return URLs in canonical form, with sorted query and without fragment.
            unique: True to return each URL once per page.
            process_value: Called with each absolute address. Returns this address, another address (for example from
                ``javascript:open('/a')``), or None to drop the link.
            deny_extensions: File extensions of links to drop, without the dot; None for :data:`IGNORED_EXTENSIONS`.
            restrict_css: Search only inside the elements that these queries select.
            strip: True to remove whitespace around addresses.
            restrict_text: Regular expressions. A link is kept only if one of these matches anywhere in the link's text.
            deny_tags: Names of elements that are not links, even if ``tags`` names them.
            deny_attrs: Names of attributes to ignore, even if ``attrs`` names them.

        Raises:
            ValueError: If a regular expression, an XPath or a CSS query is invalid. The message names that string.
        """
        try:
            queries = [*_texts(restrict_xpaths), *(css_to_xpath(query) for query in _texts(restrict_css))]
        except MixedQuery as error:
            raise error.named("restrict_css=...", "restrict_xpaths=...") from None
        extensions = IGNORED_EXTENSIONS if deny_extensions is None else _texts(deny_extensions)
        self._allow = _compiled("allow", allow)
        self._deny = _compiled("deny", deny)
        domain = str.lower if self._is_scrapys else _domain
        self._allow_domains = frozenset(map(domain, _texts(allow_domains)))
        self._deny_domains = frozenset(map(domain, _texts(deny_domains)))
        self._parts = tuple(_path(query) for query in queries)
        self._deny_tags = frozenset(_texts(deny_tags))
        self._deny_attributes = frozenset(_texts(deny_attrs))
        self._tags = tuple(tag for tag in _texts(tags) if tag not in self._deny_tags)
        self._attributes = tuple(name for name in _texts(attrs) if name not in self._deny_attributes)
        self._canonicalize = canonicalize
        self._unique = unique
        self._process_value = process_value
        self._endings = tuple(f".{extension}".lower() for extension in extensions)
        self._strip = strip
        self._words = _compiled("restrict_text", restrict_text)

    def extract_links(self, response: Response) -> list[Link]:
        """Return the wanted links of a page, in page order. If only parts are searched, the order is part by part.

        Links are relative to the page's ``<base href>``. A link is left out if its URL is not valid, or its scheme is
        not ``http``, ``https``, ``ftp`` or ``file``. The text of a link is the text inside its element, at most 10,000
        characters.
        """
        links = []
        seen: set[str] = set()
        base = response.base_url
        for root in self._roots(response):
            refused: set[str] = set()
            for element, address in self._addresses(root, response):
                found = self._url_of(address, base, response)
                if found is None or not self._is_wanted(found) or found in refused:
                    continue
                url = canonicalize_url(found) if self._canonicalize else found
                if self._unique and url in seen:
                    continue
                text = str(_TEXT(element)) if len(element) else (element.text or "")[:_MAX_TEXT]
                if self._words and not _finds(self._words, text):
                    if self._is_scrapys and self._unique:
                        refused.add(found)
                    continue
                seen.add(url)
                rel = element.get("rel")
                nofollow = rel is not None and "nofollow" in rel.lower().replace(",", " ").split()
                links.append(Link(url, text, "", nofollow))
        return links

    def matches(self, url: str) -> bool:
        """Return True if ``allow``, ``deny`` and the domains accept ``url``."""
        try:
            url = normalize_url(url)
        except ValueError:
            return False
        return self._is_in_domains(url) and self._is_allowed(url)

    def _roots(self, response: Response) -> Iterator[Element]:
        root = response.selector.root
        if not isinstance(root, etree._Element):  # the page is JSON
            return
        if not self._parts:
            yield root
        for part in self._parts:
            found: Any = part(root)
            for element in found if isinstance(found, list) else ():
                if isinstance(element, etree._Element):  # not a string or an attribute
                    yield element

    def _addresses(self, root: Element, response: Response) -> Iterator[tuple[Element, str]]:
        attributes, strip = self._attributes, self._strip
        tags = self._tags if response.selector.type == "html" else [f"{{*}}{tag}" for tag in self._tags]
        for element in self._everything(root) if "*" in self._tags else root.iter(*tags) if tags else ():
            for attribute in self._all_of(element) if "*" in attributes else attributes:
                value = element.get(attribute)
                if value is None:
                    continue
                for address in (value,) if self._is_scrapys else addresses_in(attribute, value):
                    yield element, address.strip(_SPACE) if strip else address

    def _everything(self, root: Element) -> Iterator[Element]:
        elements = root.iter(etree.Element)  # elements, but no comments
        return (each for each in elements if str(each.tag).rpartition("}")[2] not in self._deny_tags)

    def _all_of(self, element: Element) -> Iterator[str]:
        return (str(name) for name in element.attrib if name not in self._deny_attributes)

    def _url_of(self, address: str, base: str, response: Response) -> str | None:
        """Return the URL of an address on the page; None if it is not a valid URL."""
        try:
            if self._process_value is not None:
                value = self._process_value(urljoin(base, address))
                if value is None:
                    return None
                address = value
            if "?" in address and not address.isascii():
                address = with_legacy_query(address, response.output_encoding)
            return join_url(base, address)
        except ValueError:
            return None

    def _is_wanted(self, url: str) -> bool:
        if scheme_of(url) not in _SCHEMES or not self._is_allowed(url) or not self._is_in_domains(url):
            return False
        return not (self._endings and _path_of(url).lower().endswith(self._endings))

    def _is_allowed(self, url: str) -> bool:
        return (not self._allow or _finds(self._allow, url)) and not (self._deny and _finds(self._deny, url))

    def _is_in_domains(self, url: str) -> bool:
        if not self._allow_domains and not self._deny_domains:
            return True
        hosts = (url.partition("://")[2].partition("/")[0].lower(),) if self._is_scrapys else _hosts_of(url)
        return (not self._allow_domains or _match_domain(hosts, self._allow_domains)) and not _match_domain(
            hosts, self._deny_domains
        )


def _texts(given: Texts) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _compiled(name: str, patterns: Patterns) -> tuple[re.Pattern[str], ...]:
    several = () if patterns is None else (patterns,) if isinstance(patterns, str | re.Pattern) else tuple(patterns)
    try:
        return tuple([re.compile(pattern) for pattern in several])
    except re.error as error:
        raise ValueError(f"{name}: {error.pattern!r} is not a regular expression: {error}") from error


def _path(query: str) -> etree.XPath:
    check_silent(query, "restrict_css=...")
    try:
        return etree.XPath(query, namespaces=_NAMESPACES)
    except etree.XPathSyntaxError as error:
        check_mixed(query, "XPath", "restrict_css=...")
        raise ValueError(f"restrict_xpaths: {query!r} is not XPath: {error}") from error


def _finds(patterns: Iterable[re.Pattern[str]], text: str) -> bool:
    return any(pattern.search(text) for pattern in patterns)


def _path_of(url: str) -> str:
    """Return a URL in normal form without query and fragment."""
    return url.partition("#")[0].partition("?")[0]


def _hosts_of(url: str) -> tuple[str, ...]:
    """Return the host of a URL in normal form, and the host with its port if there is one; "" for a ``file:`` URL."""
    host = host_of(url)
    port = url.partition("://")[2].partition("/")[0].rpartition(host)[2] if host else ""
    host = host.removesuffix(".")
    return (host, f"{host}{port}") if port else (host,)


def _domain(name: str) -> str:
    """Return a domain, with or without a port, in normal form."""
    plain = name.strip().strip(".").lower()
    if plain.isascii():
        return plain
    host, colon, port = plain.partition(":")
    try:
        return f"{host_of(normalize_url(f'http://{host}/'))}{colon}{port}"
    except ValueError:
        return plain


def _match_domain(hosts: Iterable[str], domains: Iterable[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for host in hosts for domain in domains)
