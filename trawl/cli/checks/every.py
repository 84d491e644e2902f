"""All checks of one spider.

What a spider's file still imports of Scrapy's, which may be installed beside trawl and does nothing for it.

The parts that settings name by import paths (pipelines, middleware and their like): whether they can be imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trawl.cli.checks.attributes import check_attributes, check_starts
from trawl.cli.checks.callbacks import callbacks_of, check_annotations, check_callbacks
from trawl.cli.checks.outputs import check_habits, check_outputs
from trawl.cli.checks.source import CheckMessage, SpiderSource
from trawl.compat import changes
from trawl.errors import PartLoadError, SettingsError
from trawl.spiders import Spider
from trawl.throttling.configuration import load_object

__all__ = ["check_imports", "check_parts", "check_spider", "check_work", "imports_of"]


def check_imports(source: SpiderSource) -> Iterator[CheckMessage]:
    """Say what each import of Scrapy's in a spider's own file is to be changed to."""
    yield from imports_of(source.home()[0])


def imports_of(path: str) -> Iterator[CheckMessage]:
    """Say what each import of Scrapy's in a file is to be changed to; nothing of one that can't be read."""
    try:
        found = changes(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):  # a class that no file has
        return
    yield from (CheckMessage(path, change.line, str(change)) for change in found)


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


def check_spider(spider: type[Spider]) -> list[CheckMessage]:
    """Everything wrong with a spider's class that can be seen without running it, in the order of its lines."""
    source = SpiderSource(spider)
    found = [
        *check_imports(source),
        *check_habits(source),
        *check_attributes(spider, source),
        *check_callbacks(spider, source),
        *check_annotations(spider, source, callbacks_of(spider, source)),
    ]
    return sorted({*found, *check_work(spider)})


def check_work(spider: type[Spider]) -> list[CheckMessage]:
    """What keeps a spider from sending anything, or what it makes from reaching the crawl, by its lines."""
    source = SpiderSource(spider)
    found = [*check_starts(spider, source), *check_outputs(spider, source, callbacks_of(spider, source))]
    return sorted(set(found))
