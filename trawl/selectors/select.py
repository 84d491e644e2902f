"""One way to make a selector of a text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from cssselect import SelectorError
from lxml import etree
from parsel import Selector, SelectorList
from parsel.csstranslator import HTMLTranslator

from trawl.selectors.crowds import without_crowds

__all__ = ["Selector", "SelectorList", "SelectorType", "css_to_xpath", "found", "select"]

SelectorType = Literal["html", "xml", "json", "text"]
"""How a text is read: as browsers read HTML, as XML that is repaired, as JSON (JMESPath), or not at all."""


def select(text: str, type: SelectorType = "html", base_url: str | None = None) -> Selector:
    """Parse ``text`` once and return the selector of its root.

    Never raises for broken markup; text that is no JSON selects nothing with ``type="json"``. Of an HTML element's
    attributes no more than :data:`~trawl.selectors.crowds.MOST_ATTRIBUTES` are read: many more would take minutes.

    Args:
        text: The decoded page.
        type: How to read it.
        base_url: What the document's own URL is said to be.
    """
    if type == "html":
        text = without_crowds(text)
    return Selector(text=text, type=type, base_url=base_url)


def css_to_xpath(query: str) -> str:
    """Return the XPath query that finds what a CSS query finds, with ``::text`` and ``::attr(name)``.

    Raises:
        ValueError: ``query`` is not CSS.
    """
    try:
        return str(HTMLTranslator().css_to_xpath(query))
    except SelectorError as error:
        raise ValueError(f"{query!r} is not CSS: {error}") from error


def found(selector: Selector, css: str) -> list[Any]:
    """Return what a CSS query finds as elements of lxml and texts: to find them takes less than a selector for each.

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
