"""Where a name of Scrapy's is found here: mostly in the module that is called as Scrapy's is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

__all__ = ["MOVED", "TWISTED", "Place", "place", "place_of_twisteds"]

Place = tuple[str, str]
"""A module, and a name in it."""

_PROCESSORS = "itemloaders.processors"

MOVED: Mapping[str, Place] = {
    "exceptions.CannotResolveHostError": ("trawl.exceptions", "NameNotResolved"),
    "exceptions.DownloadCancelledError": ("trawl.exceptions", "BodyTooLarge"),
    "exceptions.DownloadConnectionRefusedError": ("trawl.exceptions", "ConnectFailed"),
    "exceptions.DownloadFailedError": ("trawl.exceptions", "DownloadError"),
    "exceptions.DownloadTimeoutError": ("trawl.exceptions", "DownloadTimeout"),
    "exceptions.ResponseDataLossError": ("trawl.exceptions", "ResponseBroken"),
    "exceptions.UnsupportedURLSchemeError": ("trawl.exceptions", "UnsupportedScheme"),
    "downloadermiddlewares.retry.get_retry_request": ("trawl.middleware", "get_retry_request"),
    "http.request.form.FormRequest": ("trawl.http", "FormRequest"),
    "http.request.json_request.JsonRequest": ("trawl.http", "JsonRequest"),
    "http.response.html.HtmlResponse": ("trawl.http", "HtmlResponse"),
    "http.response.json.JsonResponse": ("trawl.http", "JsonResponse"),
    "http.response.text.TextResponse": ("trawl.http", "TextResponse"),
    "http.response.xml.XmlResponse": ("trawl.http", "XmlResponse"),
    "linkextractors.lxmlhtml.LxmlLinkExtractor": ("trawl.linkextractors", "LxmlLinkExtractor"),
    "linkextractors.sgml.SgmlLinkExtractor": ("trawl.linkextractors", "LinkExtractor"),
    **{
        f"loader.processors.{name}": (_PROCESSORS, name)
        for name in ("Compose", "Identity", "Join", "MapCompose", "SelectJmes", "TakeFirst")
    },
    "loader.common.wrap_loader_context": ("itemloaders.common", "wrap_loader_context"),
    "pipelines.files.FileException": ("trawl.pipelines", "FileError"),
    "pipelines.images.ImageException": ("trawl.pipelines", "FileError"),
    "selector.unified.Selector": ("trawl.selector", "Selector"),
    "selector.unified.SelectorList": ("trawl.selector", "SelectorList"),
    "settings.BaseSettings": ("trawl.spiders", "CustomSettings"),
    "spidermiddlewares.httperror.HttpError": ("trawl.exceptions", "HttpError"),
    "spiders.crawl.CrawlSpider": ("trawl.spiders", "CrawlSpider"),
    "spiders.crawl.Rule": ("trawl.spiders", "Rule"),
    "spiders.feed.CSVFeedSpider": ("trawl.spiders", "CSVFeedSpider"),
    "spiders.feed.XMLFeedSpider": ("trawl.spiders", "XMLFeedSpider"),
    "spiders.sitemap.SitemapSpider": ("trawl.spiders", "SitemapSpider"),
    "statscollectors.StatsCollector": ("trawl.observe", "Stats"),
    "utils.request.fingerprint": ("trawl.http", "fingerprint"),
    "utils.url.canonicalize_url": ("trawl.http", "canonicalize_url"),
}
"""Dotted names without ``scrapy.`` that are elsewhere here, and where."""

TWISTED: Mapping[str, str] = {
    "internet.error.ConnectError": "ConnectFailed",
    "internet.error.ConnectionDone": "ResponseBroken",
    "internet.error.ConnectionLost": "ResponseBroken",
    "internet.error.ConnectionRefusedError": "ConnectFailed",
    "internet.error.DNSLookupError": "NameNotResolved",
    "internet.error.TCPTimedOutError": "ConnectTimeout",
    "internet.error.TimeoutError": "DownloadTimeout",
    "web.client.ResponseFailed": "ResponseBroken",
    "web._newclient.ResponseFailed": "ResponseBroken",
    "web._newclient.ResponseNeverReceived": "ResponseBroken",
}
"""Twisted's errors, which errbacks of Scrapy's ask for, without ``twisted.``: the name in ``trawl.exceptions``."""


def place_of_twisteds(module: str, name: str) -> Place | None:
    """Where a name of Twisted's is found here, as :func:`place` says it."""
    ours = TWISTED.get(f"{module}.{name}")
    return None if ours is None else ("trawl.exceptions", ours)


def place(module: str, name: str) -> Place | None:
    """Where ``from scrapy.MODULE import NAME`` is found here, as a module and a name in it; None: nowhere.

    Args:
        module: Without ``scrapy.``; "" for Scrapy itself.
        name: What is imported from it; "" for the module itself.
    """
    whole = f"{module}.{name}".strip(".")
    if whole in MOVED:
        return MOVED[whole]
    ours = f"trawl.{module}".rstrip(".")
    try:
        found = import_module(ours)
        if not name or hasattr(found, name):
            return ours, name
        import_module(f"{ours}.{name}")
    except ImportError:
        return None
    return ours, name
