"""A polite, fast web crawler on Trio, with Scrapy's interface, exact throttling and tests on a virtual clock.

Names are loaded when they are first used, so importing a request does not import the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trawl import signals as signals  # spiders use `trawl.signals` without importing it
    from trawl._asyncio import crawl_in_asyncio
    from trawl._run import CrawlResult, OpenCrawl, crawl, open_crawl, run
    from trawl.browser import Page
    from trawl.exceptions import CloseSpider, DropItem, HttpError, IgnoreRequest
    from trawl.http import FormRequest, Request, Response
    from trawl.items import Field, Item
    from trawl.links import Link, LinkExtractor
    from trawl.selectors import Selector
    from trawl.spiders import (
        CrawlSpider,
        CSVFeedSpider,
        FeedEntry,
        FeedSpider,
        Rule,
        SitemapSpider,
        Spider,
        XMLFeedSpider,
    )

__all__ = [
    "CSVFeedSpider",
    "CloseSpider",
    "CrawlResult",
    "CrawlSpider",
    "DropItem",
    "FeedEntry",
    "FeedSpider",
    "Field",
    "FormRequest",
    "HttpError",
    "IgnoreRequest",
    "Item",
    "Link",
    "LinkExtractor",
    "OpenCrawl",
    "Page",
    "Request",
    "Response",
    "Rule",
    "Selector",
    "SitemapSpider",
    "Spider",
    "XMLFeedSpider",
    "__version__",
    "crawl",
    "crawl_in_asyncio",
    "open_crawl",
    "run",
]

__version__ = "0.1.0.dev0"
"""The version of trawl, such as ``"0.1.0"``. Between releases it ends in ``.dev0``."""

_HOMES = {
    "CSVFeedSpider": "trawl.spiders",
    "CloseSpider": "trawl.exceptions",
    "CrawlResult": "trawl._run",
    "CrawlSpider": "trawl.spiders",
    "DropItem": "trawl.exceptions",
    "FeedEntry": "trawl.spiders",
    "FeedSpider": "trawl.spiders",
    "Field": "trawl.items",
    "FormRequest": "trawl.http",
    "HttpError": "trawl.exceptions",
    "IgnoreRequest": "trawl.exceptions",
    "Item": "trawl.items",
    "Link": "trawl.links",
    "LinkExtractor": "trawl.links",
    "OpenCrawl": "trawl._run",
    "Page": "trawl.browser",
    "Request": "trawl.http",
    "Response": "trawl.http",
    "Rule": "trawl.spiders",
    "Selector": "trawl.selectors",
    "SitemapSpider": "trawl.spiders",
    "Spider": "trawl.spiders",
    "XMLFeedSpider": "trawl.spiders",
    "crawl": "trawl._run",
    "crawl_in_asyncio": "trawl._asyncio",
    "open_crawl": "trawl._run",
    "run": "trawl._run",
}
_PARTS = frozenset(
    {
        "browser",
        "crawler",
        "errors",
        "exceptions",
        "feeds",
        "http",
        "item",
        "items",
        "scrapy_names",
        "link",
        "linkextractors",
        "links",
        "loader",
        "middleware",
        "pipelines",
        "selector",
        "selectors",
        "settings",
        "signals",
        "spiders",
        "throttling",
        "transport",
        "utils",
    }
)
"""Modules that are loaded on first use, so that ``import trawl`` is enough to use them."""

if not TYPE_CHECKING:  # a type checker should report a misspelled name

    def __getattr__(name: str) -> Any:
        if name in _PARTS:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def _instead(name: str) -> str:
    """Return advice on a Scrapy name, as the end of a sentence; "" if there is none."""
    if name.startswith("_"):
        return ""
    words: str = import_module(f"{__name__}.scrapy_names.names").name_advice(name)
    return f": {words}" if words else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
