"""Links where Scrapy's users look for them; they are in :mod:`trawl.links`."""

from trawl.links import Link

__all__ = ["Link"]
