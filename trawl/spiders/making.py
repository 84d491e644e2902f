"""Makes the spider of a crawl, and says in one line why that can't be done."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trawl.errors import SpiderLoadError, TrawlError
from trawl.frames import told
from trawl.spiders.crawler import Crawler
from trawl.spiders.spider import Spider

__all__ = ["make_spider"]


def make_spider(spider: type[Spider], arguments: Mapping[str, Any] | None, crawler: Crawler) -> Spider:
    """The spider, made with ``arguments`` and checked.

    Raises:
        UsageError: An attribute of it is not what it has to be.
        SpiderLoadError: Its constructor, or its ``from_crawler``, failed; the sentence names the line and the error,
            which is the cause.
    """
    try:
        instance = spider.from_crawler(crawler, **arguments or {})
    except TrawlError:
        raise
    except Exception as error:
        raise SpiderLoadError(f"{_where(spider, error)}: {spider.__name__} can't be made: {told(error)}") from error
    instance.check()
    return instance


def _where(spider: type[Spider], error: Exception) -> str:
    """The innermost line of the spider's own file, or else of whatever file, that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        own = inspect.getsourcefile(spider)
    except TypeError:  # a class that no file has
        own = None
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1])
    return f"{Path(frame.filename).name}, line {frame.lineno}"
