"""Scrapy's extensions: classes that connect to signals in their ``from_crawler``, made as the crawl begins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trawl.middleware.factory import entry_name, make_instance
from trawl.moving import why_absent

__all__ = ["own_extensions"]

SETTING = "EXTENSIONS"
_SCRAPYS = "scrapy."

logger: logging.Logger = logging.getLogger("trawl.engine")


def own_extensions(setting: Mapping[Any, float | None], crawl: object) -> list[object]:
    """The objects that ``EXTENSIONS`` names, made in their order; Scrapy's own are passed over with a warning.

    What they connect to keeps them.

    Args:
        setting: What it names, with numbers; None: left out.
        crawl: What classes are made with.

    Raises:
        SettingsError: An entry leads to nothing, or can't be made so.
        PartLoadError: Its own code failed.
    """
    made: list[object] = []
    for entry, order in sorted(setting.items(), key=lambda pair: pair[1] or 0.0):
        if order is None:
            continue
        if isinstance(entry, str) and entry.startswith(_SCRAPYS):
            why = why_absent(entry.removeprefix(_SCRAPYS))
            logger.warning("%s: %s has no effect: %s", SETTING, entry_name(entry), why)
        elif (found := make_instance(entry, SETTING, crawl)) is not None:
            made.append(found)
    return made
