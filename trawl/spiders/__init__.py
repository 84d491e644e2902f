"""Spiders, and what they see of their crawl."""

from trawl.spiders.running import RunningCrawl, ThrottlingControl
from trawl.spiders.spider import Spider

__all__ = ["RunningCrawl", "Spider", "ThrottlingControl"]
