"""Selectors where Scrapy's users look for them; they are in :mod:`trawl.selectors`."""

from typing import TYPE_CHECKING, Any

from trawl import scrapy_names
from trawl.selectors import Selector, SelectorList

__all__ = ["Selector", "SelectorList"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Scrapy's modules below this one, which annotations name."""
        return scrapy_names.submodule(__name__, name)
