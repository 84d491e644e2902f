"""Pages that need a browser: Chromium without a network, rendering as middleware, and the browsers of a crawl."""

from trawl.browser.devtools import find_chromium
from trawl.browser.page import Answer, Ask, Asked, BrowserFrame, BrowserPage, Opening, OpenPage
from trawl.browser.pool import Browsers, BrowserSettings, Page, check_browser, shared_hosts
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
    "RenderedResponse",
    "Rendering",
    "SubRequest",
    "check_browser",
    "find_chromium",
    "shared_hosts",
]
