"""The command ``trawl check``: finds errors in spiders and their settings without running a crawl."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from trawl.cli import FAILED, OK, USAGE
from trawl.cli.checks.attributes import check_attributes, check_starts, has_no_start
from trawl.cli.checks.compat import check_compat, check_file
from trawl.cli.checks.made import check_made
from trawl.cli.checks.methods import callbacks_of, check_annotations, check_callbacks, check_outputs
from trawl.cli.checks.scrapy_only import check_scrapy_only
from trawl.cli.checks.source import CheckMessage, SpiderSource
from trawl.cli.list import files_in, find_spiders
from trawl.cli.load import all_spiders, load_spiders
from trawl.compat.middleware import check_start_kept
from trawl.errors import PartLoadError, SettingsError, SpiderLoadError, UsageError, WrittenForScrapy
from trawl.observe import printable
from trawl.scrapy_names import changes, is_moved, is_moved_file, plugin_advice
from trawl.settings import Layer, Settings, ambient, is_moved_crawl, load, of_spider
from trawl.settings.hidden import without_effect
from trawl.settings.load import PART_LISTS
from trawl.spiders import Spider
from trawl.throttling import ThrottlingSettings
from trawl.throttling.configuration import load_object
from trawl.tracebacks import check_part_imports

__all__ = [
    "CheckMessage",
    "check_command",
    "check_imports",
    "check_parts",
    "check_spider",
    "check_work",
    "has_no_start",
]


def check_spider(
    spider: type[Spider], *, is_moved: bool = False, settings: Settings | None = None
) -> list[CheckMessage]:
    """Return every error in a spider's class, sorted by line.

    Args:
        spider: The class.
        is_moved: Whether to treat the spider as written for Scrapy.
        settings: The settings of its crawl. With settings, the project of a moved spider is checked too.
    """
    source = SpiderSource(spider)
    found = {
        *check_imports(source.home()[0]),
        *check_scrapy_only(source, is_moved=is_moved),
        *check_attributes(spider, source, is_moved=is_moved),
        *check_callbacks(spider, source),
        *check_annotations(spider, source, callbacks_of(spider, source)),
        *check_work(spider),
        *(check_compat(spider, settings) if is_moved and settings is not None else ()),
    }
    return sorted(found)


def check_work(spider: type[Spider]) -> list[CheckMessage]:
    """Return the errors that prevent a spider's requests or lose its outputs, sorted by line."""
    source = SpiderSource(spider)
    return sorted({*check_starts(spider, source), *check_outputs(spider, source, callbacks_of(spider, source))})


def check_imports(path: str) -> Iterator[CheckMessage]:
    """Yield the necessary change for each import of Scrapy in a file. A file that can't be read is skipped."""
    try:
        found = changes(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):  # the class may have no file
        return
    yield from (CheckMessage(path, change.line, str(change)) for change in found)


def check_parts(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each component in ``settings`` that can't be loaded, can't be removed, or imports Twisted.

    Names without a dot are skipped.
    """
    try:
        check_start_kept(settings["SPIDER_MIDDLEWARES"])
    except SettingsError as error:
        yield str(error)
    for setting in (*PART_LISTS, "WATCHERS"):
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


def check_command(targets: Sequence[str]) -> int:
    """Check the spiders in ``targets`` and print one line for each error, ``FILE:LINE: message``.

    Returns:
        The exit status. As for ``trawl crawl``, it is USAGE if a target has no spider or a file imports Scrapy.
        Differences from Scrapy are not errors. They are printed to standard error.
    """
    spiders = 0
    wrong: list[str] = []
    differing: list[str] = []
    status = FAILED
    for target in chain.from_iterable(map(_files, targets)):
        try:
            found = load_spiders(target)
        except SpiderLoadError as error:
            if isinstance(error, UsageError):
                status = USAGE
            places = getattr(error, "places", ())
            wrong += [str(CheckMessage(*place)) for place in places] or [str(error)]
            continue
        spiders += len(found)
        for spider in found:
            with _warned_once():
                moved, settings = _is_moved(spider), _settings_of(spider)
                wrong += _around(spider, moved, settings)
                differing += _hidden(spider, settings)
                for finding in check_spider(spider, is_moved=moved, settings=settings):
                    (wrong if finding.is_wrong else differing).append(str(finding))
    # Check imports after the spiders are loaded, because loading adds the spiders' folders to sys.path.
    for place in filter(Path.is_dir, map(Path, targets)):
        imports = [str(finding) for path in files_in(place) for finding in check_imports(str(path))]
        status = USAGE if imports else status
        wrong += imports
        if not all_spiders(place)[0]:  # a folder without a spider is a plug-in
            for finding in (each for path in files_in(place) for each in _of_plugin(str(path))):
                (wrong if finding.is_wrong else differing).append(str(finding))
    for line in dict.fromkeys(differing):
        typer.echo(printable(line), err=True)
    for line in dict.fromkeys(wrong):  # print an error of several spiders only once
        typer.echo(printable(line))
    if not wrong:
        typer.echo(f"{spiders} spider{'' if spiders == 1 else 's'}: nothing wrong")
    return status if wrong else OK


def _of_plugin(path: str) -> Iterator[CheckMessage]:
    """Yield the differences from Scrapy in a file that was written for Scrapy and has no spider."""
    if is_moved_file(path):
        yield from check_file(path, load(Layer("moved", {"SCRAPY_COMPAT": True})))


def _files(target: str) -> list[str]:
    """Return the files in a folder that have spiders or can't be parsed; the folder if it has no Python files at all.

    An ``__init__.py`` without a spider is skipped, because the pattern ``spiders/*.py`` matches it.
    """
    place = Path(target)
    if place.is_dir():
        found, unread = all_spiders(place)
        files = sorted({*(each.target.rpartition(":")[0] for each in found), *unread})
        return files if files or any(files_in(place)) else [target]
    return [] if place.name == "__init__.py" and place.is_file() and not find_spiders(place)[0] else [target]


def _is_moved(spider: type[Spider]) -> bool:
    """Return whether the settings treat the spider as moved. If the settings are wrong, the spider's imports decide."""
    try:
        return is_moved_crawl(*ambient(spider=spider), of_spider(spider))
    except (SettingsError, PartLoadError):
        return is_moved(spider)


def _settings_of(spider: type[Spider]) -> Settings | None:
    """Return the settings of a crawl; None if they are wrong. Another check reports wrong settings."""
    try:
        return load(*ambient(spider=spider), of_spider(spider))
    except (SettingsError, PartLoadError):
        return None


def _around(spider: type[Spider], moved: bool, settings: Settings | None) -> Iterator[str]:
    """Yield errors in settings outside the spider, and in the classes and functions that settings name."""
    own = Layer("own_settings", {}, own=getattr(spider, "own_settings", None) or {}, is_moved=moved)
    try:
        load(own)
    except SettingsError:
        return  # check_spider() reports this error
    try:
        load(*ambient(spider=spider), own)
    except SettingsError as error:
        yield str(error)
        return
    if settings is not None:
        yield from check_parts(settings)
        with suppress(SettingsError, PartLoadError):  # check_spider() reports this error
            yield from settings.of(ThrottlingSettings).mistyped_methods()
        yield from check_made(spider)


def _hidden(spider: type[Spider], settings: Settings | None) -> list[str]:
    """Return a sentence with the spider's name for each setting that another setting hides."""
    with suppress(SettingsError):  # another check reports a wrong download_delay
        found = [] if settings is None else without_effect(settings, spider, is_whole=False)
        name = getattr(spider, "name", None) or spider.__name__
        return [f"{name}: {sentence}" for sentence in found]
    return []


@contextmanager
def _warned_once() -> Iterator[None]:
    """Print each warning about settings once, although a check loads the settings several times."""
    collector = _WarningCollector()
    loggers = [logging.getLogger(name) for name in ("trawl.engine", "trawl.settings")]
    before = [each.propagate for each in loggers]
    for each in loggers:
        each.propagate = False
        each.addHandler(collector)
    try:
        yield
    finally:
        for each, propagates in zip(loggers, before, strict=True):
            each.removeHandler(collector)
            each.propagate = propagates
    for line in collector.lines:
        typer.echo(printable(line), err=True)


class _WarningCollector(logging.Handler):
    """Collects log messages without duplicates."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines[record.getMessage()] = None
