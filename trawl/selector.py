"""Selectors where Scrapy's users look for them; they are in :mod:`trawl.selectors`."""

from typing import TYPE_CHECKING, Any

from trawl import lazy_compat
from trawl.selectors import Selector, SelectorList

__all__ = ["Selector", "SelectorList"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Scrapy's modules below this one, which annotations name."""
        return lazy_compat.submodule(__name__, name)
