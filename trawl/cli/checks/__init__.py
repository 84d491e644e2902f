"""The checks of ``trawl check``: errors in a spider that can be found without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trawl.cli.checks.attributes import check_attributes, check_starts, has_no_start
from trawl.cli.checks.methods import callbacks_of, check_annotations, check_callbacks, check_outputs
from trawl.cli.checks.moved import check_moved
from trawl.cli.checks.scrapy_only import check_scrapy_only
from trawl.cli.checks.source import CheckMessage, SpiderSource
from trawl.compat import changes, plugin_advice
from trawl.compat.middleware import check_start_kept
from trawl.errors import PartLoadError, SettingsError, WrittenForScrapy
from trawl.settings import Settings
from trawl.spiders import Spider
from trawl.throttling.configuration import load_object
from trawl.tracebacks import check_part_imports

__all__ = ["CheckMessage", "check_imports", "check_parts", "check_spider", "check_work", "has_no_start"]

_LISTS = ("DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "ITEM_PIPELINES", "SPIDER_MIDDLEWARES", "WATCHERS")


def check_spider(
    spider: type[Spider], *, is_moved: bool = False, settings: Settings | None = None
) -> list[CheckMessage]:
    """Return every error in a spider's class, by line.

    Args:
        spider: The class.
        is_moved: Its crawl is that of a spider that was written for Scrapy.
        settings: The settings of such a crawl: with them the project around the spider is looked at too.
    """
    source = SpiderSource(spider)
    found = {
        *check_imports(source.home()[0]),
        *check_scrapy_only(source, is_moved=is_moved),
        *check_attributes(spider, source, is_moved=is_moved),
        *check_callbacks(spider, source),
        *check_annotations(spider, source, callbacks_of(spider, source)),
        *check_work(spider),
        *(check_moved(spider, settings) if is_moved and settings is not None else ()),
    }
    return sorted(found)


def check_work(spider: type[Spider]) -> list[CheckMessage]:
    """Return the errors by which a spider sends nothing or loses what it makes, by line."""
    source = SpiderSource(spider)
    return sorted({*check_starts(spider, source), *check_outputs(spider, source, callbacks_of(spider, source))})


def check_imports(path: str) -> Iterator[CheckMessage]:
    """Yield the change that each import of Scrapy in a file needs; nothing for a file that can't be read."""
    try:
        found = changes(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):  # a class that no file has
        return
    yield from (CheckMessage(path, change.line, str(change)) for change in found)


def check_parts(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each import path in ``settings`` that can't be loaded or taken out, or imports Twisted.

    Names without a dot are skipped.
    """
    try:
        check_start_kept(settings["SPIDER_MIDDLEWARES"])
    except SettingsError as error:
        yield str(error)
    for setting in _LISTS:
        for entry, number in settings[setting].items():
            is_path = isinstance(entry, str) and "." in entry and not entry.startswith("scrapy.")
            if number is not None and is_path:
                if why := plugin_advice(entry):
                    yield f"{setting}: {entry} does not run here: {why}"
                    continue
                try:
                    check_part_imports(load_object(entry, setting), f"{setting}: {entry}")
                except WrittenForScrapy as error:
                    yield from (str(CheckMessage(*place)) for place in error.places)
                except (SettingsError, PartLoadError) as error:
                    yield str(error)
