"""Items at Scrapy's import path. They are defined in :mod:`trawl.items`."""

from trawl.items import Field, Item, ItemMeta

__all__ = ["Field", "Item", "ItemMeta"]
