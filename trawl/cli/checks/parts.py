"""The parts that settings name by import paths (pipelines, middleware and their like): whether they can be imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trawl.errors import PartLoadError, SettingsError
from trawl.throttling.configuration import load_object

__all__ = ["check_parts"]

_LISTS = ("DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "ITEM_PIPELINES", "SPIDER_MIDDLEWARES", "WATCHERS")


def check_parts(settings: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the import paths in ``settings``, a sentence each; names without a dot are not looked at."""
    for setting in _LISTS:
        for entry, number in settings[setting].items():
            is_path = isinstance(entry, str) and "." in entry and not entry.startswith("scrapy.")
            if number is not None and is_path:
                try:
                    load_object(entry, setting)
                except (SettingsError, PartLoadError) as error:
                    yield str(error)
