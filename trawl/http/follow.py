"""Links on a page: what they are relative to, and what may be followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from trawl.http.content import with_legacy_query
from trawl.http.url import join_url, scheme_of
from trawl.selectors import Selector, SelectorList

if TYPE_CHECKING:
    from trawl.http.response import Response

__all__ = ["HasUrl", "LinkTarget", "base_url_of", "followable", "link_of"]

_LINK_ELEMENTS = frozenset({"a", "area", "link"})


class HasUrl(Protocol):
    """A link: whatever has a URL."""

    @property
    def url(self) -> str:
        """Where it leads."""
        ...


LinkTarget = str | Selector | HasUrl
"""What can be followed."""


def base_url_of(response: Response) -> str:
    """Return what links on the page are relative to: the first ``<base href>`` of HTML, else the page's URL.

    A base that makes no URL, or one of ``data:`` or ``javascript:``, does not count (HTML, 4.2.3).
    """
    body = response.body
    # Three searches of memory take a microsecond; walking the parsed page takes more than fifty.
    if b"<base" not in body and b"<BASE" not in body and b"<Base" not in body:
        return response.url
    if response.selector.type != "html":
        return response.url
    href = response.selector.xpath("(//base/@href)[1]").get()
    if href is None:
        return response.url
    try:
        base = join_url(response.url, href)
    except ValueError:
        return response.url
    return response.url if scheme_of(base) in {"data", "javascript"} else base


def link_of(target: LinkTarget, response: Response) -> str:
    """Return what a link says, not joined yet, ready to be joined to the page's base URL.

    Raises:
        ValueError: a selector that is no link.
        TypeError: no kind of link.
    """
    text = _text_of(target)
    if "?" in text and not text.isascii():
        return with_legacy_query(text, response.encoding)
    return text


def followable(targets: Iterable[LinkTarget], response: Response) -> Iterator[str]:
    """Go through ``targets`` and give the address of each that makes a URL."""
    base = response.base_url
    for target in targets:
        try:
            url = join_url(base, link_of(target, response))
        except ValueError:
            continue
        yield url


def _text_of(target: LinkTarget) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, Selector):
        return _href_of(target)
    if isinstance(target, SelectorList):
        raise TypeError("a list of selectors is many links: use follow_all()")
    url = getattr(target, "url", None)
    if isinstance(url, str):
        return url
    raise TypeError(f"a link is a str, a Link or a selector, not {type(target).__name__}: {target!r}")


def _href_of(selector: Selector) -> str:
    """Return the address that a selector stands for.

    Raises:
        ValueError: an element that is no link, or one without ``href``.
    """
    root = selector.root
    if isinstance(root, str):
        return root
    tag = getattr(root, "tag", None)
    if not isinstance(tag, str):
        raise ValueError(f"{selector!r} is no element and no attribute")
    name = tag.rpartition("}")[2].lower()
    if name not in _LINK_ELEMENTS:
        raise ValueError(f"<{name}> is no link: select <a>, <area>, <link> or an attribute")
    href = root.get("href")
    if href is None:
        raise ValueError(f"<{name}> has no href")
    return str(href)
