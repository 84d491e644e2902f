"""Spiders, and what they see of their crawl."""

from trawl.spiders.crawl_spider import CrawlSpider
from trawl.spiders.crawler import Crawler
from trawl.spiders.custom import CustomSettings
from trawl.spiders.outputs import ItemT, Output, Outputs
from trawl.spiders.rules import Rule
from trawl.spiders.running import RunningCrawl, ThrottlingControl
from trawl.spiders.settings import SpidersSettings
from trawl.spiders.spider import Spider

__all__ = [
    "CrawlSpider",
    "Crawler",
    "CustomSettings",
    "ItemT",
    "Output",
    "Outputs",
    "Rule",
    "RunningCrawl",
    "Spider",
    "SpidersSettings",
    "ThrottlingControl",
]
