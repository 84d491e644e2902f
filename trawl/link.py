"""Where Scrapy's users look for links; they are in :mod:`trawl.links`."""

from trawl.links import Link

__all__ = ["Link"]
