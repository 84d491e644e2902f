"""A polite, fast web crawler on Trio: Scrapy's habits, exact throttling, tests on a virtual clock."""

from trawl.crawl import CrawlResult, OpenCrawl, crawl, open_crawl, run
from trawl.exceptions import CloseSpider, DropItem, HttpError, IgnoreRequest
from trawl.http import FormRequest, Request, Response
from trawl.items import Field, Item
from trawl.links import Link, LinkExtractor
from trawl.selectors import Selector
from trawl.spiders import CrawlSpider, CSVFeedSpider, FeedEntry, FeedSpider, Rule, SitemapSpider, Spider, XMLFeedSpider

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
    "Request",
    "Response",
    "Rule",
    "Selector",
    "SitemapSpider",
    "Spider",
    "XMLFeedSpider",
    "__version__",
    "crawl",
    "open_crawl",
    "run",
]

__version__ = "0.1.0"
