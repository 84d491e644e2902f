"""Items that a feed can't write. Each is counted and logged with its page. Other items are not affected.

An item is *lost* if no feed that accepts it can write it. Most feeds refuse an item when it is added. A table may
refuse an item later, when it is written (for example the 2,001st column of SQLite). At that time the item is already
counted as scraped, so the count is decreased again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

import attrs

from trawl.passwords import without_passwords

__all__ = ["Counts", "ItemErrors", "ItemOrigin", "listed", "reason_of"]

MAX_LOGGED = 10
"""Maximum number of refused items per feed that are logged. Further refused items are only counted."""

MAX_LISTED = 20  # maximum number of columns or fields that a message names

logger: logging.Logger = logging.getLogger("trawl.feeds")


class Counts(Protocol):
    """The statistics in which lost items are counted."""

    def inc(self, key: str, n: float = 1) -> None:
        """Add ``n`` under ``key``."""


@attrs.define
class ItemOrigin:
    """The origin of an item, and the number of feeds that have taken it and have not refused it later.

    ``page`` is "" for an item of ``start()``, and ``kind`` is "" if the class is unknown.
    """

    page: str = ""
    kind: str = "dict"
    feeds: int = 0

    def __str__(self) -> str:
        kind = f"an item of type {self.kind}" if self.kind else "an item"
        return f"{kind} from {self.page or 'start()'}"


class ItemErrors:
    """Logs and counts refused items. Without statistics, nothing is counted."""

    def __init__(self, stats: Counts | None) -> None:
        self._stats = stats
        self._told: dict[str, int] = {}

    def refused(self, uri: str, origin: ItemOrigin, error: Exception, counts: Counts | None = None) -> None:
        """Log that the feed at ``uri`` refuses an item, and count this in ``counts`` or else in the statistics."""
        if counts is None:
            self._inc("feed_item_errors")
        else:
            counts.inc("feed_item_errors")
        told = self._told[uri] = self._told.get(uri, 0) + 1
        if told <= MAX_LOGGED:
            logger.error("feed %s: %s is left out: %s", without_passwords(uri), origin, reason_of(error))
        if told == MAX_LOGGED:
            logger.error(
                "feed %s: further items that it can't write are only counted, as feed_item_errors",
                without_passwords(uri),
            )

    def refused_late(self, uri: str, refusals: Iterable[tuple[ItemOrigin, Exception]]) -> None:
        """Log and count items that the feed at ``uri`` has taken but could not write."""
        for origin, error in refusals:
            self.refused(uri, origin, error)
            origin.feeds -= 1
            if not origin.feeds:
                self.count_lost()

    def count_lost(self) -> None:
        """Count an item as lost, and no longer as scraped."""
        self._inc("item_scraped_count", -1)
        self._inc("item_lost_count")

    def _inc(self, key: str, n: float = 1) -> None:
        if self._stats is not None:
            self._stats.inc(key, n)


def listed(names: Iterable[object]) -> str:
    """Return a list of names for a message. If there are many names, it has only the first ones."""
    words = list(islice(map(str, names), MAX_LISTED + 1))
    return (",".join(words[:MAX_LISTED]) + (",..." if len(words) > MAX_LISTED else "")) or "no fields"


def reason_of(error: Exception) -> str:
    """Return why an item can't be written: the message of an expected error, or the repr of any other error."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    is_expected = isinstance(error, TypeError | ValueError)  # pydantic's errors are subclasses
    return str(error) if is_expected and str(error) else repr(error)
