"""Where Scrapy's users look for selectors; they are in :mod:`trawl.selectors`."""

from trawl.selectors import Selector, SelectorList

__all__ = ["Selector", "SelectorList"]
