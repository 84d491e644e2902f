"""The command ``trawl check``: finds errors in spiders and their settings without running a crawl.

:func:`check_made` is the only check that runs user code besides the code of imported modules: it creates the classes in
the settings, as a crawl does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio
import typer

from trawl._run import crawl_with
from trawl.cache import CacheSettings
from trawl.cache.policy import make_policy
from trawl.cli import FAILED, OK, USAGE
from trawl.cli.checks.attributes import check_attributes, check_starts, has_no_start, ignore
from trawl.cli.checks.compat import check_compat, check_file
from trawl.cli.checks.methods import callbacks_of, check_annotations, check_callbacks, check_outputs
from trawl.cli.checks.scrapy_only import check_scrapy_only
from trawl.cli.checks.source import CheckMessage, SpiderSource
from trawl.cli.list import files_in, find_spiders
from trawl.cli.load import all_spiders, load_spiders
from trawl.compat.middleware import check_start_kept
from trawl.engine import try_crawl
from trawl.errors import PartLoadError, SettingsError, SpiderLoadError, TrawlError, UsageError, WrittenForScrapy
from trawl.feeds import FeedsSettings
from trawl.feeds.feed import Feed, refuse_for_job
from trawl.feeds.options import feed_options
from trawl.feeds.storages import store_of
from trawl.frontier import frontier_function
from trawl.frontier.redis.client import Address, check_installed
from trawl.middleware.factory import accepts_arguments
from trawl.observe import printable
from trawl.scrapy_names.imports import changes
from trawl.scrapy_names.moved import is_moved, is_moved_file
from trawl.scrapy_names.names import plugin_advice
from trawl.settings import Layer, Settings, ambient, is_moved_crawl, load, of_spider
from trawl.settings.hidden import without_effect
from trawl.settings.load import PART_LISTS
from trawl.spiders import Spider
from trawl.testing import SimulatedWeb
from trawl.throttling import ThrottlingSettings
from trawl.throttling.configuration import load_object
from trawl.tracebacks import check_part_imports, describe_error, user_place
from trawl.transport import TransportRouter, TransportSettings
from trawl.transport.resolver import DnsResolver
from trawl.transport.warc import warc_writer

__all__ = ["CheckMessage", "check_command", "check_made", "check_spider", "check_work", "has_no_start"]


def check_spider(
    spider: type[Spider], *, is_moved: bool = False, settings: Settings | None = None
) -> list[CheckMessage]:
    """Return every error in a spider's class by line; with ``settings``, in the project of a moved spider too."""
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
    """Yield a sentence for each import path in ``settings`` that can't be loaded or removed, or imports Twisted."""
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
    """Check the spiders in ``targets`` and print one line for each error. Differences from Scrapy are not errors."""
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
            moved_settings = load(Layer("moved", {"SCRAPY_COMPAT": True}))
            for path in filter(is_moved_file, map(str, files_in(place))):
                for finding in check_file(path, moved_settings):
                    (wrong if finding.is_wrong else differing).append(str(finding))
    for line in dict.fromkeys(differing):
        typer.echo(printable(line), err=True)
    for line in dict.fromkeys(wrong):  # print an error of several spiders only once
        typer.echo(printable(line))
    if not wrong:
        typer.echo(f"{spiders} spider{'' if spiders == 1 else 's'}: nothing wrong")
    return status if wrong else OK


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
    lines: dict[str, None] = {}

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            lines[record.getMessage()] = None
        return False

    loggers = [logging.getLogger(name) for name in ("trawl.engine", "trawl.settings")]
    for each in loggers:
        each.addFilter(collect)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(collect)
    for line in lines:
        typer.echo(printable(line), err=True)


_UNTOUCHED = {
    "COOKIES_FILE": "",
    "FEEDS": {},
    "FRONTIER": "",
    "HTTPCACHE_ENABLED": False,
    "JOB_DIR": "",
    "THROTTLING_SHARED": False,
    "WARC_FILE": "",
}
"""Settings of a trial crawl, so that it opens no files."""

_SINGLE = (
    *("DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS", "RETRY_PREDICATE", "SOFT_BLOCK_DETECTOR"),
    *("THROTTLING_MANAGER", "THROTTLING_SCOPE_MANAGER"),
)
"""Settings that name one class or function."""


def check_made(spider: type[Spider]) -> Iterator[str]:
    """Yield a sentence for each class that a crawl could not create: the spider, and classes that its settings name.

    The same code as in a crawl creates the classes one by one, but no crawl starts. If the spider needs arguments, a
    copy of the spider without its constructor is used. Then errors in other user code are not reported, because the
    missing constructor may be their cause.
    """
    layers = (*ambient(spider=spider), of_spider(spider))
    settings, defaults = load(*layers, tell=ignore), load()
    without: dict[str, Any] = {name: defaults[name] for name in _SINGLE}
    entries: list[tuple[str, Any]] = [(name, settings[name]) for name in _SINGLE if settings[name] != defaults[name]]
    for name in (*PART_LISTS, "WATCHERS"):
        off = without[name] = {entry: None for entry, order in settings[name].items() if order is None}
        entries += [(name, {**off, entry: order}) for entry, order in settings[name].items() if order is not None]
    without["THROTTLING_SCOPES"] = {}
    entries += [("THROTTLING_SCOPES", {id: scope}) for id, scope in settings["THROTTLING_SCOPES"].items()]
    tried = spider if accepts_arguments(spider, 0) else _bare(spider)
    if tried is spider and (error := _refusal(spider, layers, without)) is not None:
        if type(error) is not UsageError:  # check_attributes() reports a plain UsageError, with its line
            yield from _sentences(error)
        tried = _bare(spider)
    for name, value in entries:
        error = _refusal(tried, layers, {**without, name: value})
        if error is not None and (tried is spider or isinstance(error, SettingsError)):
            yield from _sentences(error, name)
    for error in trio.run(_wrong_feeds, spider, settings):
        yield from _sentences(error)
    for opens in _opened(settings):
        try:
            opens()
        except UsageError as error:
            yield from _sentences(error)
    for name, path, is_folder in _written_files(spider, settings):
        if reason := _why_unwritable(path, is_folder=is_folder):
            yield f"{name}: {str(path)!r} can't be written: {reason}"


def _written_files(spider: type[Spider], settings: Settings) -> Iterator[tuple[str, Path, bool]]:
    """Yield the files and folders that a crawl writes, each with its setting, and True for a folder."""
    with suppress(UsageError, ImportError):  # _wrong_feeds() reports the error
        for options in feed_options(settings.of(FeedsSettings), spider_name=spider.name, started_utc=datetime.now(UTC)):
            if options.path is not None and not options.is_remote:
                yield "FEEDS", options.path, False
    for name in ("LOG_FILE", "COOKIES_FILE", "WARC_FILE"):
        if settings[name]:
            yield name, Path(settings[name]), False
    if settings["HTTPCACHE_ENABLED"]:
        yield "HTTPCACHE_DIR", Path(settings["HTTPCACHE_DIR"]), True
    if settings["JOB_DIR"] and "://" not in settings["JOB_DIR"]:
        yield "JOB_DIR", Path(settings["JOB_DIR"]), True


def _why_unwritable(path: Path, *, is_folder: bool) -> str:
    """Return why a crawl could not write a file, or files in a folder; "" if it could. It creates a missing folder."""
    at = path.absolute()
    try:
        while not at.exists():
            at = at.parent
        if at.is_dir() is not (is_folder or at != path.absolute()):
            return f"{str(at)!r} is {'a folder' if at.is_dir() else 'no folder'}"
    except OSError as error:
        return f"{str(at)!r}: {error.strerror}"
    return "" if os.access(at, os.W_OK) else f"this user may not write {str(at)!r}"


def _opened(settings: Settings) -> Iterator[Callable[[], object]]:
    """Yield functions that raise if an extra or name server that a setting needs is missing. Opens no files."""
    transport, cache = settings.of(TransportSettings), settings.of(CacheSettings)
    yield partial(TransportRouter, transport)
    if transport.dns_resolver == "dnspython":
        yield DnsResolver
    if transport.warc_file:
        yield partial(warc_writer, transport.warc_file)
    if cache.httpcache_enabled:
        yield partial(make_policy, cache)
    if "://" in settings["JOB_DIR"]:
        yield partial(Address.parse, settings["JOB_DIR"])
        yield check_installed
    if settings["FRONTIER"]:
        yield partial(frontier_function, settings["FRONTIER"])


def _refusal(spider: type[Spider], layers: Sequence[Layer], parts: Mapping[str, object]) -> Exception | None:
    """Create a crawl with only these classes. Returns the error, or None if there was none."""
    settings = load(*layers, Layer("trawl check", {**_UNTOUCHED, **parts}), tell=ignore)
    disabled, logging.root.manager.disable = logging.root.manager.disable, logging.CRITICAL
    try:
        web = SimulatedWeb()
        transport = web.transport(settings.of(TransportSettings))
        trio.run(partial(crawl_with, spider, settings, transport=transport, resolve=web.resolve, run=try_crawl))
    except Exception as error:
        return error
    finally:
        logging.root.manager.disable = disabled
    return None


def _sentences(error: Exception, setting: str = "") -> Iterator[str]:
    if isinstance(error, WrittenForScrapy) and error.places:
        yield from (str(CheckMessage(*place)) for place in error.places)
    elif isinstance(error, TrawlError):
        yield str(error)
    else:
        yield ": ".join(part for part in (setting, user_place(error), describe_error(error)) if part)


def _bare(spider: type[Spider]) -> type[Spider]:
    """Return a copy of the spider without its own constructor and start URLs."""
    ours = next(kind for kind in spider.__mro__ if kind.__module__.partition(".")[0] == "trawl")
    changes = {
        "__init__": vars(ours).get("__init__", Spider.__init__),
        "__module__": spider.__module__,
        "start_urls": [],
        "allowed_domains": [],
    }
    return type(spider.__name__, (spider,), changes)


async def _wrong_feeds(spider: type[Spider], settings: Settings) -> list[Exception]:
    """Return the errors of feeds. The exporters are created, but no files are opened. A checkpoint."""
    await trio.lowlevel.checkpoint()
    now, found = datetime.now(UTC), []
    for path, given in settings["FEEDS"].items():
        values = msgspec.structs.replace(settings.of(FeedsSettings), feeds={path: given})
        try:
            for options in feed_options(values, spider_name=spider.name, started_utc=now):
                Feed(options, started_utc=now)
                Feed(attrs.evolve(options, batch_items=0, batch_bytes=0), started_utc=now)  # makes a batch's file
                if options.is_remote:
                    store_of(options)
                if settings["JOB_DIR"]:
                    refuse_for_job(options)
        except Exception as error:
            found.append(error)
    return found
