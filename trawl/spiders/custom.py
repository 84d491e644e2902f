"""A spider's own settings while ``update_settings`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CustomSettings"]


class CustomSettings(dict[str, Any]):
    """Names to values, with the words of Scrapy's settings: what :meth:`trawl.Spider.update_settings` is given.

    Whatever it writes has the strength of ``custom_settings``; a ``priority`` is taken and not looked at.
    """

    def set(self, name: str, value: Any, priority: str | int = "spider") -> None:
        """Set one."""
        self[name] = value

    def setdict(self, values: Mapping[str, Any], priority: str | int = "spider") -> None:
        """Set many."""
        self.update(values)

    def getdict(self, name: str) -> dict[str, Any]:
        """A copy of a mapping that was set here; empty if it was not."""
        return dict(self.get(name) or {})

    def getlist(self, name: str) -> list[Any]:
        """A copy of a list that was set here; empty if it was not."""
        return list(self.get(name) or ())
