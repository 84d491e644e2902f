"""Items where Scrapy's users look for them; they are in :mod:`trawl.items`."""

from trawl.items import Field, Item

__all__ = ["Field", "Item"]
