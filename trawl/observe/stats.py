"""The statistics of a crawl: keys with numbers and a few other values, cheap enough to count on every page.

Only one thread writes them. The part of a key after ``/`` names a kind (``response_status_count/200``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from trawl.http import Times, TimesTotal
from trawl.observe.status import LATENCY_BOUNDS

__all__ = ["SCRAPYS", "Stat", "Stats"]

Stat = int | float | str | bool | None
"""A value of a statistic."""

D = TypeVar("D")

_PARTS = Times.__struct_fields__

SCRAPYS: Mapping[str, str] = {
    "downloader/exception_count": "download_error_count",
    "downloader/exception_type_count/": "download_error_count/",
    "downloader/request_count": "request_count",
    "downloader/response_bytes": "response_bytes",
    "downloader/response_count": "response_count",
    "downloader/response_status_count/": "response_status_count/",
    "dupefilter/filtered": "dupefilter_filtered",
    "elapsed_time_seconds": "elapsed_seconds",
    "httperror/response_ignored_count": "httperror_ignored_count",
    "offsite/filtered": "offsite_filtered",
    "retry/count": "retry_count",
    "retry/max_reached": "retry_max_reached",
    "response_received_count": "response_count",
    "robotstxt/forbidden": "robots_forbidden",
    "spider_exceptions/count": "spider_exceptions",
    "urllength/request_ignored_count": "urllength_filtered",
}
"""Scrapy's keys with their names in trawl. A key that ends in ``/`` stands for all keys below it."""


class Stats:
    """The counters and values of one crawl. A key that was never counted is absent, not 0.

    Attributes:
        latency: Number of responses by latency, with the bounds of :data:`trawl.observe.LATENCY_BOUNDS`, in this run.
        latency_seconds: Sum of these latencies.
        times: Total times of all requests, in seconds. They can also be read as ``queued_seconds`` and so on.
        item_types: Number of items that passed the pipelines in this run, by type.
    """

    __slots__ = ("_status_keys", "_values", "item_types", "latency", "latency_seconds", "times")

    def __init__(self) -> None:
        self._values: dict[str, Stat] = {}
        self.times: TimesTotal = TimesTotal()
        self.item_types: dict[type, int] = {}
        self.latency: list[int] = [0] * (len(LATENCY_BOUNDS) + 1)
        self.latency_seconds: float = 0.0
        self._status_keys: dict[int, str] = {}

    def inc(self, key: str, n: float = 1) -> None:
        """Add ``n`` to the number under ``key``. A new key starts at 0."""
        values = self._values
        values[key] = values.get(key, 0) + n  # type: ignore[operator]  # a counted key is never set to a string

    def inc_status(self, status: int) -> None:
        """Count one response with this status, under ``response_status_count/<status>``."""
        try:
            key = self._status_keys[status]
        except KeyError:  # format the key once per status code, not once per page
            key = self._status_keys[status] = f"response_status_count/{status}"
        self.inc(key)

    def add_latency(self, seconds: float) -> None:
        """Count one response with this latency."""
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.latency_seconds += seconds

    def set(self, key: str, value: Stat) -> None:
        """Set ``key`` to ``value``."""
        self._values[key] = value

    def restore(self, values: Mapping[str, Stat]) -> None:
        """Restore the values of an earlier run. Other values are kept."""
        self._values.update(values)
        for part in _PARTS:
            seconds = values.get(f"{part}_seconds")
            setattr(self.times, part, seconds if isinstance(seconds, int | float) else 0.0)

    def _read(self) -> dict[str, Stat]:
        """Return all values with the current times. The times are copied only here, not after each page."""
        for part in _PARTS:
            if seconds := getattr(self.times, part):
                self._values[f"{part}_seconds"] = seconds
        return self._values

    def max(self, key: str, value: float) -> None:
        """Set ``key`` to ``value`` if that is larger."""
        before = self._values.get(key)
        if not isinstance(before, int | float) or value > before:
            self._values[key] = value

    def min(self, key: str, value: float) -> None:
        """Set ``key`` to ``value`` if that is smaller."""
        before = self._values.get(key)
        if not isinstance(before, int | float) or value < before:
            self._values[key] = value

    @overload
    def get(self, key: str) -> Stat: ...
    @overload
    def get(self, key: str, default: D) -> Stat | D: ...
    def get(self, key: str, default: object = None) -> object:
        """Return the value under ``key``, or ``default``."""
        return self._read().get(key, default)

    def count(self, key: str) -> int:
        """Return the whole number under ``key``; 0 if the key is absent."""
        value = self._read().get(key, 0)
        return int(value) if isinstance(value, int | float) else 0

    def starting(self, prefix: str) -> dict[str, Stat]:
        """Return all values whose keys start with ``prefix``, sorted, without the prefix."""
        return {key[len(prefix) :]: value for key, value in self.as_dict().items() if key.startswith(prefix)}

    def as_dict(self) -> dict[str, Stat]:
        """Return a copy of all values, sorted by key."""
        return dict(sorted(self._read().items()))

    def storable(self) -> dict[str, Stat]:
        """Return a copy of the values that a job can store. Other values of a spider, such as a date, are left out."""
        values: dict[str, Any] = self._read()
        return {key: value for key, value in values.items() if isinstance(value, int | float | str | None)}

    # Scrapy's names, so that spiders with their own statistics need no change.

    def inc_value(self, key: str, count: int = 1, start: int = 0, spider: object = None) -> None:
        """Scrapy's name for :meth:`inc`; a new key starts at ``start``."""
        self._values.setdefault(key, start)
        self.inc(key, count)

    def set_value(self, key: str, value: Stat, spider: object = None) -> None:
        """Scrapy's name for :meth:`set`."""
        self.set(key, value)

    def max_value(self, key: str, value: float, spider: object = None) -> None:
        """Scrapy's name for :meth:`max`."""
        self.max(key, value)

    def min_value(self, key: str, value: float, spider: object = None) -> None:
        """Scrapy's name for :meth:`min`."""
        self.min(key, value)

    def get_value(self, key: str, default: Stat = None, spider: object = None) -> Stat:
        """Scrapy's name for :meth:`get`; the keys of :data:`SCRAPYS` work too."""
        values = self._read()
        if key not in values:
            kinds, slash, kind = key.rpartition("/")
            key = SCRAPYS.get(key) or f"{SCRAPYS.get(f'{kinds}{slash}', f'{kinds}{slash}')}{kind}"
        return values.get(key, default)

    def get_stats(self, spider: object = None) -> dict[str, Stat]:
        """Scrapy's name for :meth:`as_dict`."""
        return self.as_dict()

    def __repr__(self) -> str:
        return f"<Stats of {len(self._read())} keys>"
