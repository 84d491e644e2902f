"""Links at Scrapy's import path. They are defined in :mod:`trawl.links`."""

from trawl.links import Link

__all__ = ["Link"]
