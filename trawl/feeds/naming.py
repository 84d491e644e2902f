"""What stands for what in the path of a feed: ``%(name)s``, ``%(time)s``, and for batches ``%(batch)05d``.

Any other name is that of an attribute of the spider, as Scrapy has it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import partial
from os import PathLike, fspath
from pathlib import PurePath

import msgspec

from trawl.errors import FeedError
from trawl.feeds.settings import FeedsSettings

__all__ = ["BATCH_NAMES", "filled", "is_numbered", "names_in", "with_attributes"]

BATCH_NAMES = frozenset({"batch", "batch_id", "batch_time"})
"""The names that differ from one batch to the next; one of them must be in the path of a feed in batches."""

_NAME = re.compile(r"%\((name|time|batch|batch_id|batch_time)\)(0?\d{0,2})([sd])")
_OTHER = re.compile(r"%\((?!(?:name|time|batch|batch_id|batch_time)\))(\w+)\)(0?\d{0,2})([sd])")


def names_in(path: str) -> frozenset[str]:
    """The names that stand in a path."""
    return frozenset(match[1] for match in _NAME.finditer(path))


def is_numbered(path: str) -> bool:
    """Whether a path has the number of the batch in it."""
    return bool(names_in(path) & {"batch", "batch_id"})


def filled(
    path: str,
    *,
    name: str | None = None,
    time_utc: datetime | None = None,
    batch: int | None = None,
    batch_time_utc: datetime | None = None,
) -> str:
    """The path with what is given put in; names of what is not given stay as they are.

    Args:
        path: As the user wrote it.
        name: The spider's name.
        time_utc: When the crawl began; written as Scrapy does (``2025-01-01T12-30-00+00-00``).
        batch: The number of the batch, from 1.
        batch_time_utc: When the batch was begun.
    """
    values: dict[str, object] = {"name": name, "batch": batch, "batch_id": batch}
    if time_utc is not None:
        values["time"] = _written(time_utc.replace(microsecond=0))
    if batch_time_utc is not None:
        values["batch_time"] = _written(batch_time_utc)

    def one(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None:
            return match[0]
        width = match[2] if isinstance(value, int) else ""
        return f"{value:{width}}" if width else str(value)

    return _NAME.sub(one, path)


def _written(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace(":", "-")


def with_attributes(settings: FeedsSettings, spider: object) -> FeedsSettings:
    """The settings with attributes of the spider put into the paths of feeds, where they name some.

    Raises:
        FeedError: The spider has no such attribute, or it is nothing that can be in a path.
    """
    feeds = {}
    for key, options in settings.feeds.items():
        path = fspath(key) if isinstance(key, str | PathLike) else key
        if isinstance(path, str) and _OTHER.search(path):
            key = _OTHER.sub(partial(_attribute, spider, path), path)  # noqa: PLW2901
            if key in settings.feeds or key in feeds:
                raise FeedError(f"feed {key}: another feed goes to the same place", key)
        feeds[key] = options
    return msgspec.structs.replace(settings, feeds=feeds)


def _attribute(spider: object, path: str, match: re.Match[str]) -> str:
    value = getattr(spider, match[1], None)
    if not isinstance(value, str | int | float | date | PurePath) or value == "":
        why = "is none" if value is None else f"is {value!r}"
        raise FeedError(
            f"feed {path}: {match[0]} stands for an attribute of the spider, which {why}; "
            "other names are name, time, batch and batch_time",
            path,
        )
    try:
        return f"{int(str(value)):{match[2]}}" if match[3] == "d" else str(value)
    except ValueError:
        raise FeedError(f"feed {path}: {match[0]}: {value!r} is no whole number", path) from None
