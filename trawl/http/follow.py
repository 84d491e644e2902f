"""Links on a page: what they are relative to, and what may be followed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from lxml import etree

from trawl.http.content import with_legacy_query
from trawl.http.request import Callback, Request, RequestOptions
from trawl.http.url import is_joinable, join_url, scheme_of
from trawl.selectors import Selector, SelectorList

__all__ = ["HasUrl", "LinkTarget", "Page", "base_url_of", "followable", "link_of"]

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


LONGEST_BASE = 2_048
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
    return page.url if scheme_of(base) in {"data", "javascript"} or len(base) > LONGEST_BASE else base


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
