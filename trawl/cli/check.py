"""The command ``trawl check``: prints the errors in spiders and in the settings around them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import typer

from trawl.cli import FAILED, OK, USAGE
from trawl.cli.checks import CheckMessage, check_imports, check_parts, check_spider
from trawl.cli.list import files_in, spiders_in, unread_in
from trawl.cli.load import load_spiders
from trawl.compat import is_moved
from trawl.errors import PartLoadError, SettingsError, SpiderLoadError, UsageError
from trawl.observe import printable
from trawl.settings import Layer, Settings, ambient, is_moved_crawl, load, of_spider
from trawl.spiders import Spider
from trawl.throttling import ThrottlingSettings

__all__ = ["check_command"]


def check_command(targets: Sequence[str]) -> int:
    """Check the spiders in ``targets`` and print one line for each error, ``FILE:LINE: message``.

    Returns:
        The exit status. What only differs from Scrapy goes to standard error, and is nothing wrong. A target without a
        spider, and a spider, or any file of a folder, that imports Scrapy are wrong usage, as for ``trawl crawl``.
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
                moved = _is_moved(spider)
                wrong += _around(spider, moved)
                for finding in check_spider(spider, is_moved=moved, settings=_settings_of(spider)):
                    (wrong if finding.is_wrong else differing).append(str(finding))
    for place in filter(Path.is_dir, map(Path, targets)):  # once the spiders' folders are on sys.path
        imports = [str(finding) for path in files_in(place) for finding in check_imports(str(path))]
        status = USAGE if imports else status
        wrong += imports
    for line in dict.fromkeys(differing):
        typer.echo(printable(line), err=True)
    for line in dict.fromkeys(wrong):  # what several spiders share is told once
        typer.echo(printable(line))
    if not wrong:
        typer.echo(f"{spiders} spider{'' if spiders == 1 else 's'}: nothing wrong")
    return status if wrong else OK


def _files(target: str) -> list[str]:
    """Return the files in a folder that have spiders, or can't be parsed.

    None for an ``__init__.py`` without one (``spiders/*.py`` has it).
    """
    place = Path(target)
    if place.is_dir():
        spiders = (found.target.rpartition(":")[0] for found in spiders_in(place))
        return sorted({*spiders, *(path for path, _ in unread_in(place))}) or [target]
    return [] if place.name == "__init__.py" and place.is_file() and not any(spiders_in(place)) else [target]


def _is_moved(spider: type[Spider]) -> bool:
    """Return what the settings say; the spider's imports say it where these are wrong, which is reported elsewhere."""
    try:
        return is_moved_crawl(*ambient(spider=spider), of_spider(spider))
    except (SettingsError, PartLoadError):
        return is_moved(spider)


def _settings_of(spider: type[Spider]) -> Settings | None:
    """Return the settings of a crawl; None where they are wrong, which is reported elsewhere."""
    try:
        return load(*ambient(spider=spider), of_spider(spider))
    except (SettingsError, PartLoadError):
        return None


def _around(spider: type[Spider], moved: bool) -> Iterator[str]:
    """Yield errors in the settings around the spider, and in the parts that all its settings name."""
    own = Layer("own_settings", {}, own=getattr(spider, "own_settings", None) or {}, is_moved=moved)
    try:
        load(own)
    except SettingsError:
        return  # check_spider() reports it
    try:
        load(*ambient(spider=spider), own)
    except SettingsError as error:
        yield str(error)
        return
    with suppress(SettingsError, PartLoadError):  # check_spider() reports it
        settings = load(*ambient(spider=spider), of_spider(spider))
        yield from check_parts(settings)
        yield from settings.of(ThrottlingSettings).mistyped_methods()


@contextmanager
def _warned_once() -> Iterator[None]:
    """Print warnings about settings once: a check loads the settings several times."""
    collector = _WarningCollector()
    settings = logging.getLogger("trawl.settings")
    propagates, settings.propagate = settings.propagate, False
    settings.addHandler(collector)
    try:
        yield
    finally:
        settings.removeHandler(collector)
        settings.propagate = propagates
    for line in collector.lines:
        typer.echo(printable(line), err=True)


class _WarningCollector(logging.Handler):
    """Collects log messages, each once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines[record.getMessage()] = None
