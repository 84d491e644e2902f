"""Where Scrapy's users look for link extractors; they are in :mod:`trawl.links`."""

from trawl.links import IGNORED_EXTENSIONS, Link, LinkExtractor

LxmlLinkExtractor = LinkExtractor
"""Scrapy's other name for it."""

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor", "LxmlLinkExtractor"]
