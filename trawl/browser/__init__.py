"""Pages that need a browser: Chromium without a network, rendering as middleware, and the browsers of a crawl."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trawl.browser.pool import Browsers, BrowserSettings, Page, PageRenderer, check_browser, shared_hosts

if TYPE_CHECKING:
    from trawl.browser.devtools import find_chromium
    from trawl.browser.page import Answer, Ask, Asked, BrowserFrame, BrowserPage, Opening, OpenPage
    from trawl.browser.rendering import PageCrawl, PageDetails, RenderedResponse, Rendering, SubRequest

__all__ = [
    "Answer",
    "Ask",
    "Asked",
    "BrowserFrame",
    "BrowserPage",
    "BrowserSettings",
    "Browsers",
    "OpenPage",
    "Opening",
    "Page",
    "PageCrawl",
    "PageDetails",
    "PageRenderer",
    "RenderedResponse",
    "Rendering",
    "SubRequest",
    "check_browser",
    "find_chromium",
    "shared_hosts",
]

_HOMES = {"find_chromium": "devtools"}
_HOMES |= dict.fromkeys(("PageCrawl", "PageDetails", "RenderedResponse", "Rendering", "SubRequest"), "rendering")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loaded on first use, because most crawls render no pages.
    return getattr(import_module(f"trawl.browser.{_HOMES.get(name, 'page')}"), name)
