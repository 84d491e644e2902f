"""The names of Scrapy's signals, for ``crawler.signals.connect``: ``signals.spider_opened``.

Only users import this module.
"""

from __future__ import annotations

from trawl.spiders.crawler import SCRAPYS

__all__ = ["SCRAPYS"]


def __getattr__(name: str) -> str:
    if name in SCRAPYS:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
