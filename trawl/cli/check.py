"""The command ``trawl check``: what can be known to be wrong before a crawl."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import typer

from trawl.cli import FAILED, OK, USAGE
from trawl.cli.checks import check_spider
from trawl.cli.checks.every import check_parts, imports_of
from trawl.cli.checks.source import CheckMessage
from trawl.cli.list import files_in, spiders_in
from trawl.cli.load import load_spiders
from trawl.errors import PartLoadError, SettingsError, SpiderLoadError, WrittenForScrapy
from trawl.observe import printable
from trawl.settings import Layer, ambient, load, of_spider
from trawl.spiders import Spider
from trawl.throttling import ThrottlingSettings

__all__ = ["check_command"]


def check_command(targets: Sequence[str]) -> int:
    """Check the spiders that ``targets`` name; the exit status.

    What is wrong is printed a line each, as ``FILE:LINE: what``; what can't be loaded too. A spider, or in a folder any
    file, that imports Scrapy is wrong usage, as it is for ``trawl crawl``.
    """
    spiders = 0
    wrong: list[str] = []
    status = FAILED
    for place in filter(Path.is_dir, map(Path, targets)):
        wrong += (str(finding) for path in files_in(place) for finding in imports_of(str(path)))
        status = USAGE if wrong else status
    for target in chain.from_iterable(map(_files, targets)):
        try:
            found = load_spiders(target)
        except SpiderLoadError as error:
            if isinstance(error, WrittenForScrapy):
                status = USAGE
                wrong += [str(CheckMessage(*place)) for place in error.places]
            if not getattr(error, "places", ()):
                wrong.append(str(error))
            continue
        spiders += len(found)
        for spider in found:
            with _warned_once():
                wrong += [*_around(spider), *(str(finding) for finding in check_spider(spider))]
    for line in dict.fromkeys(wrong):  # what several spiders share is collector once
        typer.echo(printable(line))
    if not wrong:
        typer.echo(f"{spiders} spider{'' if spiders == 1 else 's'}: nothing wrong")
    return status if wrong else OK


def _files(target: str) -> list[str]:
    """The files with spiders in a folder; none for an ``__init__.py`` without one, which ``spiders/*.py`` names too."""
    place = Path(target)
    if place.is_dir():
        return sorted({found.target.rpartition(":")[0] for found in spiders_in(place)}) or [target]
    return [] if place.name == "__init__.py" and place.is_file() and not any(spiders_in(place)) else [target]


def _around(spider: type[Spider]) -> Iterator[str]:
    """What a crawl would refuse of the settings around the spider, and of the parts that these and its own name."""
    own = Layer("own_settings", {}, own=getattr(spider, "own_settings", None) or {})
    try:
        load(own)
    except SettingsError:
        return  # told of the spider
    try:
        load(*ambient(spider=spider), own)
    except SettingsError as error:
        yield str(error)
        return
    with suppress(SettingsError, PartLoadError):  # told of the spider
        settings = load(*ambient(spider=spider), of_spider(spider))
        yield from check_parts(settings)
        yield from settings.of(ThrottlingSettings).mistyped_methods()


@contextmanager
def _warned_once() -> Iterator[None]:
    """Say what the settings warn of once, to standard error: they are loaded several times to be checked."""
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
    """Keeps what is logged, each line once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines[record.getMessage()] = None
