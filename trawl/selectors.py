"""Selectors over a page: parsel's, with a limit for attributes.

libxml2 compares each attribute of an HTML element with all before it: 20,000 of them take a second, 50,000 more than a
minute, and they fit into a page of half a megabyte. No honest element has a hundred. So start tags with more than
:data:`MAX_ATTRIBUTES` are cut short before a page is parsed, unless the page is too small to hold many.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from cssselect import SelectorError
from lxml import etree
from parsel import Selector, SelectorList
from parsel.csstranslator import HTMLTranslator

__all__ = [
    "MAX_ATTRIBUTES",
    "Selector",
    "SelectorList",
    "SelectorType",
    "css_to_xpath",
    "find_css",
    "limit_attributes",
    "select",
]

MAX_ATTRIBUTES = 1_000
"""Maximum number of attributes of one element; a tag that has more ends after them."""

SMALL = 4 * 10_000
"""Characters up to which a page can't hold enough attributes to take long."""


# As HTML, 13.2.5.32 to 39 read attributes. Every repetition is possessive: nothing is read twice.
_ATTRIBUTE = r"""[\s/]*+(?:=[^\s/>=]*+|[^\s/>=]++)(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"']?+[^\s>]*+))?+"""

_TAG = re.compile(rf"<[A-Za-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{MAX_ATTRIBUTES}}}+")

_REST = re.compile(rf"(?:{_ATTRIBUTE})++")


def limit_attributes(text: str) -> str:
    """Return ``text``, an HTML page, without the attributes past :data:`MAX_ATTRIBUTES` of each element."""
    if len(text) <= SMALL:
        return text
    kept: list[str] = []
    begin = at = 0
    while (tag := _TAG.search(text, at)) is not None:
        at = tag.end()
        if at - tag.start() > 2 * MAX_ATTRIBUTES and (rest := _REST.match(text, at)) is not None:
            kept.append(text[begin:at])
            begin = at = rest.end()
    return "".join([*kept, text[begin:]]) if kept else text


SelectorType = Literal["html", "xml", "json", "text"]
"""The way to parse a text: HTML as browsers do, XML with repairs, JSON (JMESPath), or not at all."""


def select(text: str, type: SelectorType = "html", base_url: str | None = None) -> Selector:
    """Parse ``text`` once and return the selector of its root.

    Never raises for broken markup; a text that is not JSON selects nothing with ``type="json"``. At most
    :data:`MAX_ATTRIBUTES` attributes of an HTML element are read.

    Args:
        text: The decoded page.
        type: The way to parse it.
        base_url: The URL of the document.
    """
    if type == "html":
        text = limit_attributes(text)
    return Selector(text=text, type=type, base_url=base_url)


def css_to_xpath(query: str) -> str:
    """Return a CSS query, with ``::text`` and ``::attr(name)``, as an XPath query.

    Raises:
        ValueError: ``query`` is not CSS.
    """
    try:
        return str(HTMLTranslator().css_to_xpath(query))
    except SelectorError as error:
        raise ValueError(f"{query!r} is not CSS: {error}") from error


def find_css(selector: Selector, css: str) -> list[Any]:
    """Return the matches of a CSS query as elements of lxml and texts: faster than a selector for each.

    Raises:
        ValueError: ``css`` is not CSS, or the page is JSON.
    """
    if selector.type != "html" or "|" in css:  # a namespace: the selector knows its prefix
        return [each.root for each in selector.css(css)]
    results = _finder(css)(selector.root)
    return results if isinstance(results, list) else [results]


@lru_cache(maxsize=256)  # as many as parsel keeps
def _finder(css: str) -> etree.XPath:
    return etree.XPath(css_to_xpath(css), smart_strings=False)
