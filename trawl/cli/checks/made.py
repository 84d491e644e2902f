"""Checks that a crawl can create the classes in its settings, by creating them as a crawl does.

The module is separate because this is the only check that runs user code. Only :mod:`trawl.cli.checks` imports it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from trawl._run import crawl_with
from trawl.cache import CacheSettings
from trawl.cache.policy import make_policy
from trawl.cli.checks.source import CheckMessage
from trawl.engine import try_crawl
from trawl.errors import SettingsError, TrawlError, UsageError, WrittenForScrapy
from trawl.feeds import FeedsSettings
from trawl.feeds.feed import Feed, refuse_for_job
from trawl.feeds.options import feed_options
from trawl.feeds.storages import store_of
from trawl.frontier import frontier_function
from trawl.frontier.redis.client import Address, check_installed
from trawl.middleware.factory import accepts_arguments
from trawl.settings import Layer, Settings, ambient, load, of_spider
from trawl.settings.load import PART_LISTS
from trawl.spiders import Spider
from trawl.testing import SimulatedWeb
from trawl.tracebacks import describe_error, user_place
from trawl.transport import TransportRouter, TransportSettings
from trawl.transport.resolver import DnsResolver
from trawl.transport.warc import warc_writer

__all__ = ["check_made"]

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
    settings, defaults = load(*layers, tell=_ignore), load()
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
    for name, path, is_folder in _files(spider, settings):
        if reason := _why_unwritable(path, is_folder=is_folder):
            yield f"{name}: {str(path)!r} can't be written: {reason}"


def _files(spider: type[Spider], settings: Settings) -> Iterator[tuple[str, Path, bool]]:
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
    settings = load(*layers, Layer("trawl check", {**_UNTOUCHED, **parts}), tell=_ignore)
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


def _ignore(warning: str) -> None:
    """Drop a warning, because another check reports it."""
