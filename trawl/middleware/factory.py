"""Creates middleware from the entries of ``DOWNLOADER_MIDDLEWARES``: names, import paths, functions, classes, objects.

:class:`MiddlewareCrawl` is the interface of the crawl for user middleware. The same functions also create pipelines,
hooks and watchers.
"""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from trawl import scrapy_names
from trawl.blocking import Blocking
from trawl.errors import NotConfigured, SettingsError
from trawl.http import Drop, Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.observe import Stats
from trawl.plugins import load_plugin, plugin_names
from trawl.throttling.configuration import load_object
from trawl.tracebacks import check_part_imports, user_code

if TYPE_CHECKING:
    from trawl.middleware.stack import BuiltInMiddleware

__all__ = [
    "Adapt",
    "MiddlewareCrawl",
    "accepts_arguments",
    "entry_name",
    "load_function",
    "make_instance",
    "make_middleware",
    "split_setting",
]


class MiddlewareCrawl(Protocol):
    """The crawl, as the argument of a middleware's ``from_crawler``.

    If a middleware gets time, random numbers and blocking work from this object, it also runs on a test's virtual
    clock.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by upper-case name, with Scrapy's accessors (``getbool`` and so on)."""

    @property
    def stats(self) -> Stats:
        """The crawl's statistics."""

    @property
    def spider(self) -> Any:
        """The spider."""

    @property
    def blocking(self) -> Blocking:
        """Runs blocking work in a thread: ``await crawl.blocking.run(function, argument)``."""

    def now_utc(self) -> datetime:
        """Return the wall time."""

    def random(self, name: str) -> random.Random:
        """Return a separate random generator for ``name``."""

    async def fetch(self, request: Request) -> Response:
        """Send another request, which obeys the limits. A checkpoint.

        Do not call this while the middleware processes a request.
        """


logger: logging.Logger = logging.getLogger("trawl.middleware")

SETTING = "DOWNLOADER_MIDDLEWARES"
PLUGINS = "trawl.middleware"
_OURS = "trawl.middleware."
_SCRAPYS = "scrapy.downloadermiddlewares."


def split_setting(
    setting: Mapping[Any, float | None], built_in: Iterable[BuiltInMiddleware], spider: Any = None
) -> tuple[dict[str, float | None], list[tuple[str, Any, float]]]:
    """Split ``DOWNLOADER_MIDDLEWARES`` into built-in entries and user entries.

    Returns the new order of built-in middleware by name (None if removed), and tuples of display name, entry and order.
    """
    known: dict[str, str] = {}
    for each in built_in:
        known.update({each.name: each.name, _OURS + each.name: each.name})
        if each.scrapys:
            known[_SCRAPYS + each.scrapys] = each.name
    orders: dict[str, float | None] = {}
    own: list[tuple[str, Any, float]] = []
    for given, order in setting.items():
        entry = _scrapys_path(given)
        name = known.get(entry) if isinstance(entry, str) else None
        if name is not None:
            orders[name] = order
        elif isinstance(entry, str) and "." not in entry and entry in plugin_names(PLUGINS):
            if order is not None:
                own.append((entry, load_plugin(PLUGINS, entry), order))
        elif isinstance(entry, str) and (entry.startswith(_SCRAPYS) or "." not in entry):
            _check_elsewhere(entry, known, order, spider)
        elif order is not None:
            own.append((entry_name(entry), entry, order))
    return orders, own


def _scrapys_path(entry: Any) -> Any:
    """Return the import path in Scrapy if the entry is a Scrapy class or its path in trawl; else the entry itself."""
    if isinstance(entry, str):
        return f"scrapy{entry.removeprefix('trawl')}" if entry.startswith("trawl.downloadermiddlewares.") else entry
    # Read the attribute only from the class itself, because a subclass is user code.
    path = getattr(entry, "__dict__", {}).get("scrapys_path")
    return entry if path is None else _SCRAPYS + path


def _check_elsewhere(entry: str, known: Mapping[str, str], order: float | None, spider: Any) -> None:
    module = entry.rpartition(".")[0]
    why = "" if any(path.rpartition(".")[0] == module for path in known) else scrapy_names.names.class_advice(entry)
    if not why:
        names = [*sorted(set(known.values())), *plugin_names(PLUGINS)]
        raise SettingsError(f"{SETTING}: {entry!r} is not built in; use one of {', '.join(names)}", SETTING)
    if order is None and entry.endswith(".OffsiteMiddleware") and getattr(spider, "allowed_domains", None):
        raise SettingsError(
            f"{SETTING}: {entry} can't be removed: requests to other sites are dropped as allowed_domains says; "
            "remove allowed_domains from the spider, or set meta allow_offsite",
            SETTING,
        )
    if order is not None or not scrapy_names.moved.is_disabled(entry):
        logger.warning("%s: %s has no effect: %s", SETTING, entry, why)


def entry_name(entry: object) -> str:
    """Return the name of an entry for messages."""
    if isinstance(entry, str):
        return entry
    named: str = getattr(entry, "__qualname__", None) or type(entry).__qualname__
    return named


Adapt = Callable[[object, object], Middleware | None]
"""Function of an object and the spider. Converts an object with Scrapy's methods to middleware; returns None for any
other object.
"""


def make_middleware(entry: object, crawl: object, spider: object, adapt: Adapt | None = None) -> Middleware:
    """Return the middleware of an entry: the entry itself, an instance of its class, or the result of ``adapt``."""
    found = make_instance(entry, SETTING, crawl)
    if found is None:
        return lambda fetch: fetch
    if adapt is not None and (middleware := adapt(found, spider)) is not None:
        return middleware
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    is_other = any(is_kind(found) for is_kind in kinds)  # it may take a request instead of a ``Fetch``
    if is_other or not callable(found) or not accepts_arguments(found, 1):
        raise SettingsError(
            f"{SETTING}: {entry_name(entry)} is not middleware: a function from Fetch to Fetch, a class whose objects"
            " are, or one with process_request, process_response or process_exception",
            SETTING,
        )
    return _checked(found, entry_name(entry))


def _checked(middleware: Middleware, name: str) -> Middleware:
    """Return a user's middleware. Wrong return values and arguments of ``fetch`` raise an error with its ``name``."""

    def around(fetch: Fetch) -> Fetch:
        def fetch_request(request: Request) -> Awaitable[Outcome]:
            if not isinstance(request, Request):
                raise TypeError(f"{SETTING}: {name} called fetch() with {request!r:.100}: it takes a Request")
            return fetch(request)

        own: Any = middleware(fetch_request)
        if not callable(own):
            if inspect.iscoroutine(own):
                own.close()
            raise SettingsError(f"{SETTING}: {name} must return an async function of a request, not {own!r}", SETTING)

        async def send(request: Request) -> Outcome:
            awaitable = own(request)
            if not inspect.isawaitable(awaitable):
                raise TypeError(
                    f"{SETTING}: the function of a request that {name} returns must be async, without yield, and return"
                    f" an Outcome; its call returned {awaitable!r:.100}"
                )
            outcome: Outcome = await awaitable
            if wrong := _mistake(outcome):
                raise TypeError(f"{SETTING}: {name} returned {outcome!r:.100}: {wrong}")
            return outcome

        return send

    return around


_KINDS: Mapping[str, Any] = {"request": Request, "response": Response | None, "error": Exception | None}


def _mistake(outcome: Any) -> str:
    """Return what user middleware must return instead of ``outcome``; "" if it is right."""
    if isinstance(outcome, Outcome):
        wrong = [name for name, kind in _KINDS.items() if not isinstance(getattr(outcome, name), kind)]
        if outcome.then is not None and not _is_step(outcome.then):
            wrong.append("then")
        parts = (outcome.response, outcome.error, outcome.then)
        if not wrong and parts != (None, None, None):
            return ""
        return (
            "an Outcome needs the Request, and a Response as response, an exception as error, or as then a Replace (a"
            " Request, seconds and a reason) or a Drop (a reason), not "
            + (", ".join([f"{name}={getattr(outcome, name)!r:.100}" for name in wrong]) or "none of these")
        )
    if isinstance(outcome, Request):
        return "to send it now, return await fetch(it); to send it later, return Outcome(request, then=Replace(it))"
    if isinstance(outcome, Response):
        return "return Outcome(request, response=it), with Outcome from trawl.http"
    if inspect.iscoroutine(outcome):
        outcome.close()
        return "await it, as in: return await fetch(request)"
    return "return await fetch(request), or an Outcome (of trawl.http) with a trawl.Response as response"


def _is_step(then: Any) -> bool:
    """Return True if ``then`` is a :class:`Drop` or a :class:`Replace` whose values have the right types."""
    if isinstance(then, Drop):
        return all(map(isinstance, (then.reason, then.failure), (str, str | None)))
    if isinstance(then, Replace):
        return all(map(isinstance, (then.request, then.delay, then.reason), (Request, int | float, str)))
    return False


def accepts_arguments(found: Callable[..., object], arguments: int) -> bool:
    """Return False if ``found`` can't be called with this number of arguments; True if it can, or can't be checked."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # for example, a function in C
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def make_instance(entry: object, setting: str, crawl: object) -> Any:
    """Load an entry. A class is instantiated with ``from_crawler(crawl)``, or without arguments.

    Returns None if the class raises ``NotConfigured``. The error is logged, as a warning if it has a reason.

    Raises:
        SettingsError: If the import path does not exist, or the class needs other arguments.
        PartLoadError: If the code of the entry or its module failed.
        WrittenForScrapy: If the module imports Twisted.
    """
    if isinstance(entry, str) and (why := scrapy_names.names.plugin_advice(entry)):
        raise SettingsError(f"{setting}: {entry} does not run here: {why}", setting)
    found = load_object(entry, setting)
    check_part_imports(found, f"{setting}: {entry_name(entry)}")
    if not isinstance(found, type):
        return found
    make: Callable[[], Any] = found
    from_crawler = getattr(found, "from_crawler", None)
    try:
        with user_code(f"{setting}: {entry_name(entry)} can't be made"):
            return make() if from_crawler is None else from_crawler(crawl)
    except NotConfigured as reason:
        level = logging.WARNING if str(reason) else logging.INFO  # as in Scrapy
        logger.log(level, "%s: %s is left out: %s", setting, entry_name(entry), str(reason) or "it is not configured")
        return None
    except TypeError as error:
        raise SettingsError(f"{setting}: {entry_name(entry)} can't be made: {error}", setting) from error


def load_function(value: object, setting: str, *arguments: str) -> Any:
    """Return the function that a setting names, with these ``arguments``; None for an empty setting.

    Raises:
        SettingsError: If the path does not exist, or the object can't be called with this number of arguments.
    """
    if value is None or value == "":
        return None
    found = load_object(value, setting)
    if not callable(found):
        raise SettingsError(f"{setting} must be a function or the import path of one, not {value!r}", setting)
    if not accepts_arguments(found, len(arguments)):
        raise SettingsError(f"{setting}: {entry_name(found)} has to take {', '.join(arguments)}", setting)
    return found
