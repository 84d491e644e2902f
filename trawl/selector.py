"""Selectors at Scrapy's import path. They are defined in :mod:`trawl.selectors`."""

from typing import TYPE_CHECKING, Any

from trawl import scrapy_names
from trawl.selectors import Selector, SelectorList

__all__ = ["Selector", "SelectorList"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a submodule with Scrapy's name, for annotations."""
        return scrapy_names.submodule(__name__, name)
