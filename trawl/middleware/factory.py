"""From the entries of a setting to middleware: names, import paths, functions, classes, objects.

What a middleware of the user's is given when it is made: the crawl, as far as a middleware may see it.
"""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from trawl.blocking import Blocking
from trawl.errors import NotConfigured, SettingsError
from trawl.http import Fetch, Middleware, Request, Response
from trawl.middleware.scrapy_style import adapted, is_scrapy_style
from trawl.moving import in_place_of
from trawl.observe import Stats
from trawl.plugins import load_plugin, plugin_names
from trawl.throttling.configuration import load_object
from trawl.tracebacks import user_code, warn_of_scrapy

__all__ = [
    "Named",
    "Surroundings",
    "accepts_arguments",
    "entry_name",
    "load_function",
    "make_instance",
    "make_middleware",
    "split_setting",
]


class Surroundings(Protocol):
    """The argument of a middleware's ``from_crawler``: the crawl that it is made for.

    Time, chance and blocking work come from here, so that a middleware works on the virtual clock of a test as it does
    in a real crawl.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by their upper-case names, with Scrapy's accessors (``getbool`` and the like)."""
        ...

    @property
    def stats(self) -> Stats:
        """Where everything is counted."""
        ...

    @property
    def spider(self) -> Any:
        """The spider, whose attributes a middleware may read."""
        ...

    @property
    def blocking(self) -> Blocking:
        """How work that blocks is done: ``await crawl.blocking.run(function, argument)``."""
        ...

    def now_utc(self) -> datetime:
        """Wall time now."""
        ...

    def random(self, name: str) -> random.Random:
        """A source of chance of one's own; ``name`` tells it from others."""
        ...

    async def fetch(self, request: Request) -> Response:
        """Send a request of one's own, in its turn; not while a middleware holds one (see the how-to)."""
        ...


logger: logging.Logger = logging.getLogger("trawl.middleware")

SETTING = "DOWNLOADER_MIDDLEWARES"

PLUGINS = "trawl.middleware"

_OURS = "trawl.middleware."

_SCRAPYS = "scrapy.downloadermiddlewares."


class Named(Protocol):
    """What is known of a built-in middleware here."""

    @property
    def name(self) -> str:
        """Its short name."""
        ...

    @property
    def scrapys(self) -> str:
        """The class of Scrapy's that does the same."""
        ...


def split_setting(
    setting: Mapping[Any, float | None], built_in: Iterable[Named]
) -> tuple[dict[str, float | None], list[tuple[str, Any, float]]]:
    """What ``DOWNLOADER_MIDDLEWARES`` says: of the built-in ones by name, and of the user's own.

    Returns:
        Names of built-in ones with their new place (None: taken out); and each of the user's with a name for people,
        the entry itself and its place.

    Raises:
        SettingsError: A name of trawl's or Scrapy's that there is not.
    """
    known: dict[str, str] = {}
    for each in built_in:
        known.update({each.name: each.name, _OURS + each.name: each.name})
        if each.scrapys:
            known[_SCRAPYS + each.scrapys] = each.name
    orders: dict[str, float | None] = {}
    own: list[tuple[str, Any, float]] = []
    for entry, order in setting.items():
        name = known.get(entry) if isinstance(entry, str) else None
        if name is not None:
            orders[name] = order
        elif isinstance(entry, str) and "." not in entry and entry in plugin_names(PLUGINS):
            if order is not None:
                own.append((entry, load_plugin(PLUGINS, entry), order))
        elif isinstance(entry, str) and (entry.startswith(_SCRAPYS) or "." not in entry):
            _check_elsewhere(entry, known)
        elif order is not None:
            own.append((entry_name(entry), entry, order))
    return orders, own


def _check_elsewhere(entry: str, known: Mapping[str, str]) -> None:
    module = entry.rpartition(".")[0]
    why = "" if any(path.rpartition(".")[0] == module for path in known) else in_place_of(entry)
    if not why:
        names = [*sorted(set(known.values())), *plugin_names(PLUGINS)]
        raise SettingsError(f"{SETTING}: {entry!r} is no middleware of trawl's: there are {', '.join(names)}", SETTING)
    logger.warning("%s: %s has no effect: %s", SETTING, entry, why)


def entry_name(entry: object) -> str:
    """An entry as people know it."""
    if isinstance(entry, str):
        return entry
    named: str = getattr(entry, "__qualname__", None) or type(entry).__qualname__
    return named


def make_middleware(entry: object, crawl: object, spider: object) -> Middleware:
    """The middleware of an entry: itself, or what its class makes, or an adapter around Scrapy's three methods.

    Raises:
        SettingsError: It leads to nothing, can't be made, or is no middleware.
    """
    found = make_instance(entry, SETTING, crawl)
    if found is None:
        return _as_it_is
    if is_scrapy_style(found):
        return adapted(found, spider)
    if not callable(found) or not accepts_arguments(found, 1) or _is_of_another_kind(found):
        raise SettingsError(
            f"{SETTING}: {entry_name(entry)} is not middleware: a function from Fetch to Fetch, a class whose objects"
            " are, or one with process_request, process_response or process_exception",
            SETTING,
        )
    middleware: Middleware = found
    return middleware


def _is_of_another_kind(found: Any) -> bool:
    """Whether something is an async function, or a generator: of a request itself, say."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(found) for is_kind in kinds)


def accepts_arguments(found: Callable[..., object], arguments: int) -> bool:
    """Whether something can be called with so many arguments, as far as can be told before."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of a function in C, say
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def make_instance(entry: object, setting: str, crawl: object) -> Any:
    """What an entry names; a class is made by its ``from_crawler(crawl)``, else without arguments.

    None where the class raises ``NotConfigured``, which is logged: as a warning if it says why.

    Raises:
        SettingsError: There is nothing under its path, or its class can't be made so.
        PartLoadError: Its own code failed, or its module's.
    """
    found = load_object(entry, setting)
    warn_of_scrapy(found, f"{setting}: {entry_name(entry)}")
    if not isinstance(found, type):
        return found
    make: Callable[[], Any] = found
    from_crawler = getattr(found, "from_crawler", None)
    try:
        with user_code(f"{setting}: {entry_name(entry)} can't be made"):
            return make() if from_crawler is None else from_crawler(crawl)
    except NotConfigured as reason:
        level = logging.WARNING if str(reason) else logging.INFO  # who says why is heard, as in Scrapy
        logger.log(level, "%s: %s is left out: %s", setting, entry_name(entry), str(reason) or "it is not configured")
        return None
    except TypeError as error:
        raise SettingsError(f"{setting}: {entry_name(entry)} can't be made: {error}", setting) from error


def load_function(value: object, setting: str) -> Any:
    """The function that a setting names; None where it names none.

    Raises:
        SettingsError: There is nothing under its path, or it can't be called.
    """
    if value is None or value == "":
        return None
    found = load_object(value, setting)
    if not callable(found):
        raise SettingsError(f"{setting} must be a function or the import path of one, not {value!r}", setting)
    return found


def _as_it_is(fetch: Fetch) -> Fetch:
    return fetch
