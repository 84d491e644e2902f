"""Checks of a spider's methods: callbacks and their annotations, lost outputs, calls that fail or block."""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from functools import lru_cache
from inspect import formatannotation
from pathlib import Path
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import attrs

from trawl.cli.checks.scrapy_only import asyncio_advice, own_nodes, urls_of
from trawl.cli.checks.source import (
    PLACEHOLDER,
    REQUESTS,
    CheckMessage,
    Function,
    Method,
    SpiderSource,
    placeholder_words,
)
from trawl.http import Request
from trawl.items import is_item_type
from trawl.settings.check import members_of, nearest
from trawl.spiders import CrawlSpider, SitemapSpider, Spider
from trawl.spiders.item_check import item_type_of

__all__ = ["callbacks_of", "check_annotations", "check_callbacks", "check_outputs"]

_MANY = (Iterable, Iterator, Generator, list, tuple)

_MANY_LATER = (AsyncIterable, AsyncIterator, AsyncGenerator)

_LATER = (Awaitable, Coroutine)


def check_annotations(spider: type[Spider], source: SpiderSource, callbacks: Iterable[str]) -> Iterator[CheckMessage]:
    """Report return annotations that do not fit the kind of callback or the item type of the spider."""
    found = item_type_of(spider)
    items = Any if found is None else found
    for name in callbacks:
        function = inspect.getattr_static(spider, name)
        function = getattr(function, "__func__", function)
        annotation = _returned(function)
        if annotation is inspect.Parameter.empty:
            continue
        if problem := _shape_problem(function, annotation):
            yield source.at(f"{name}() {problem}", name)
            continue
        for output in _outputs(annotation):
            if problem := _output_problem(output, items):
                yield source.at(f"{name}() is annotated with {formatannotation(output)}, {problem}", name)


def _returned(function: Callable[..., Any]) -> Any:
    """Return the return annotation of a function; ``empty`` if there is none or it can't be evaluated."""
    try:
        return get_type_hints(function).get("return", inspect.Parameter.empty)
    except Exception:  # a name that exists only for type checkers, or an error in a string
        return inspect.Parameter.empty


def _shape_problem(function: Callable[..., Any], annotation: Any) -> str:
    origins = {get_origin(member) or member for member in members_of(annotation)}
    if origins & {Any, object}:
        return ""
    if inspect.isasyncgenfunction(function) and not origins & {*_MANY_LATER}:
        return f"is an async generator: annotate it AsyncIterator[...], not {formatannotation(annotation)}"
    if inspect.isgeneratorfunction(function) and not origins & {Iterable, Iterator, Generator}:
        return f"is a generator: annotate it Iterator[...], not {formatannotation(annotation)}"
    return ""


def _outputs(annotation: Any) -> Iterator[Any]:
    """Yield the types of single outputs in a return annotation."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        for member in args:
            yield from _outputs(member)
    elif origin in (Coroutine, Generator) and args:
        yield from _outputs(args[-1] if origin is Coroutine else args[0])
    elif origin in (*_MANY, *_MANY_LATER, *_LATER) and args:
        for member in args[:1] if origin is not tuple else args:
            if member is not Ellipsis:
                yield from _outputs(member)
    elif annotation not in (*_MANY, *_MANY_LATER, *_LATER):
        yield annotation


def _output_problem(output: Any, items: Any) -> str:
    kind = get_origin(output) or output
    if kind in (None, type(None), Any, object) or isinstance(kind, TypeVar) or not isinstance(kind, type):
        return ""
    if issubclass(kind, Request) or kind is Mapping or getattr(kind, "_is_protocol", False) or kind is Protocol:
        return ""
    if not is_typeddict(kind) and not is_item_type(kind):
        return "which is neither a request nor an item (dict, dataclass, attrs, pydantic, msgspec)"
    wanted = [get_origin(member) or member for member in members_of(items)]
    kinds = [dict if is_typeddict(member) and not is_typeddict(kind) else member for member in wanted]
    if any(member is Any or not isinstance(member, type) for member in kinds):
        return ""
    if any(kind is member or (not is_typeddict(member) and issubclass(kind, member)) for member in kinds):
        return ""
    return f"but the spider's items are {formatannotation(items)}"


_CALLBACK_SECOND = REQUESTS | {"follow", "follow_all"}

_KNOWN = ("parse", "parse_start_url", "parse_node", "parse_row", "parse_entry")


@attrs.frozen
class _Use:
    """A callback or errback: a method of ``self``, or a string; None for ``cb_kwargs`` that are not literals."""

    path: str
    line: int
    role: str
    name: str
    text: str
    by_name: tuple[str, ...] | None


def check_callbacks(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    """Report callbacks of requests that do not exist or can't be called with their arguments."""
    assigned = _assigned(source)
    for use in _uses(source):
        if use.text:
            words = f"{use.role} is the string {use.text!r}; pass the method self.{use.text}"
            yield CheckMessage(use.path, use.line, words)
        elif use.name not in assigned and not hasattr(spider, use.name):
            close = nearest(use.name, [name for name in dir(spider) if callable(getattr(spider, name, None))])
            hint = f"; did you mean self.{close}?" if close else ""
            yield CheckMessage(use.path, use.line, f"{spider.__name__} has no method {use.name!r}{hint}")
        elif use.name not in assigned and (problem := _problem(spider, use.name, use.by_name)):
            yield CheckMessage(use.path, use.line, f"{use.role} {use.name}() can't be called: {problem}")


def callbacks_of(spider: type[Spider], source: SpiderSource) -> list[str]:
    """Return the sorted names of the user's methods that receive responses."""
    names = {use.name for use in _uses(source) if use.role == "callback"}
    if issubclass(spider, CrawlSpider):
        given = [getattr(rule, "callback", None) for rule in spider.rules]
        names.update(callback for callback in given if isinstance(callback, str))
    if issubclass(spider, SitemapSpider):
        names.update(callback for _, callback in spider.sitemap_rules if isinstance(callback, str))
    names.update(_KNOWN)
    return sorted(name for name in names if source.is_own(name) and callable(getattr(spider, name, None)))


def _uses(source: SpiderSource) -> Iterator[_Use]:
    for method in source.methods():
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                for role, value in _named(node):
                    if (use := _use(method.path, node, role, value)) is not None:
                        yield use


def _named(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function in _CALLBACK_SECOND and len(call.args) > 1:
        yield "callback", call.args[1]
    if function != "Rule":
        yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg in ("callback", "errback"))


def _use(path: str, call: ast.Call, role: str, value: ast.expr) -> _Use | None:
    by_name = _by_name(call) if role == "callback" else ()
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return _Use(path, value.lineno, role, "", value.value, by_name)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        return _Use(path, value.lineno, role, value.attr, "", by_name)
    return None


def _by_name(call: ast.Call) -> tuple[str, ...] | None:
    """Return the names in ``cb_kwargs``; None if they are not literals."""
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        if keyword.arg == "cb_kwargs":
            given = keyword.value
            if isinstance(given, ast.Call) and getattr(given.func, "id", "") == "dict" and not given.args:
                names: Iterable[Any] = [each.arg for each in given.keywords]
            elif isinstance(given, ast.Dict):
                names = [key.value if isinstance(key, ast.Constant) else None for key in given.keys]
            else:
                return None
            known = [name for name in names if isinstance(name, str)]
            return tuple(known) if len(known) == len(list(names)) else None
    return ()


def _assigned(source: SpiderSource) -> set[str]:
    """Return the attributes that methods set on ``self``."""
    return {
        node.attr
        for method in source.methods()
        for node in ast.walk(method.node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _problem(spider: type[Spider], name: str, by_name: Collection[str] | None = ()) -> str:
    """Return why a callback can't be called; "" if it can."""
    function = inspect.getattr_static(spider, name)
    if by_name is None or not inspect.isfunction(function):
        return ""
    try:
        # Missing arguments are not errors, because code may add them later (`request.cb_kwargs["x"] = ...`).
        inspect.signature(function).bind_partial(None, None, **dict.fromkeys(by_name))
    except TypeError as error:
        return str(error)
    return ""


_COROUTINES = frozenset(
    {
        *("trio.sleep", "trio.sleep_until", "trio.to_thread.run_sync"),
        *("self.fetch", "self.crawl.fetch", "self.crawl.render"),
    }
)

_HTTP_METHODS = ("delete", "get", "head", "patch", "post", "put", "request")
_DRIVERS = ("Chrome", "ChromiumEdge", "Edge", "Firefox", "Remote", "Safari")
_BROWSER = "meta browser, which renders the page in Chromium (guide: Pages that need a browser)"

_BLOCKING: Mapping[str, str] = {
    "time.sleep": "await trio.sleep() in an async callback",
    **dict.fromkeys(
        (
            *(f"{library}.{method}" for library in ("requests", "httpx") for method in _HTTP_METHODS),
            *("urllib.request.urlopen", "request.urlopen", "urlopen"),
        ),
        "await self.fetch(Request(url)), which is throttled too",
    ),
    **dict.fromkeys(("sync_playwright", "sync_api.sync_playwright", "playwright.sync_api.sync_playwright"), _BROWSER),
    **{
        f"{module}{driver}": _BROWSER
        for module in ("webdriver.", "selenium.webdriver.", "uc.", "")
        for driver in _DRIVERS
    },
}
"""Calls that block, with their replacements."""

_BROWSER_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(?:selenium|undetected_chromedriver|splinter|playwright\.sync_api)", re.MULTILINE
)

_OF_A_BROWSER = frozenset(
    (
        *("browser.get", "driver.get", "self.browser.get", "self.driver.get", "self.browser.visit", "browser.visit"),
        *("page.goto", "self.page.goto", "tab.goto"),
    )
)
"""Calls that block if the file uses a browser and the call is not awaited."""


_KINDS: Mapping[str, Callable[[object], bool]] = {
    "generator": inspect.isgeneratorfunction,
    "async generator": inspect.isasyncgenfunction,
    "coroutine": inspect.iscoroutinefunction,
}


def _kinds_of(spider: type[Spider], source: SpiderSource) -> dict[str, str]:
    """Return the spider's methods that are generators or coroutines, each with its kind, a key of :data:`_KINDS`."""
    kinds: dict[str, str] = {}
    for method in source.methods():
        name = method.node.name
        if inspect.isfunction(function := inspect.getattr_static(spider, name, None)):
            for kind, is_it in _KINDS.items():
                if is_it(inspect.unwrap(function)):
                    kinds[name] = kind
    return kinds


def check_outputs(spider: type[Spider], source: SpiderSource, callbacks: Collection[str]) -> Iterator[CheckMessage]:
    """Report requests and items that never reach the crawl, and calls that can't work in a crawl."""
    kinds = _kinds_of(spider, source)
    given = {*callbacks, "start", "start_requests"}
    for method in source.methods():
        name = method.node.name
        if name in callbacks and _problem(spider, name):
            words = f"{name}() must accept the response; write def {name}(self, response)"
            yield CheckMessage(method.path, method.node.lineno, words)
        for node, message in _wrong_outputs(method, kinds, is_given=name in given):
            yield CheckMessage(method.path, node.lineno, message)


def _wrong_outputs(
    method: Method, kinds: Mapping[str, str], *, is_given: bool
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    is_async = isinstance(method.node, ast.AsyncFunctionDef)
    awaited = {id(node.value) for node in own_nodes(method.node) if isinstance(node, ast.Await)}
    for node in own_nodes(method.node):
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Call) and is_given:
            if message := _whole(node.value, kinds, is_async=is_async):
                yield node, message
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if message := _unused(node.value, kinds, is_async=is_async):
                yield node, message
        elif isinstance(node, ast.Call) and id(node) not in awaited and _is_of_awaitable(node, method.node):
            path = _path_of(node.func)
            yield node, f"missing `await` before {path}(); write `await {path}(...)`"
        if isinstance(node, ast.Call) and (found := _placeholder(node)):
            yield node, placeholder_words(found)
        if isinstance(node, ast.Call) and (is_given or is_async):
            has_browser = (
                id(node) not in awaited and _path_of(node.func) in _OF_A_BROWSER and _uses_browser(method.path)
            )
            if message := _blocks(node, has_browser=has_browser):
                yield node, message


def _whole(call: ast.Call, kinds: Mapping[str, str], *, is_async: bool) -> str:
    """Return the problem if a callback yields the result of this call; "" if there is none."""
    shown = f"{_path_of(call.func)}(...)"
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    is_own = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self"
    kind = kinds.get(name) if is_own else None
    if name == "follow_all" or kind == "generator":
        if is_async:
            return f"yields a whole generator instead of its outputs; write `for output in {shown}: yield output`"
        return f"yields a whole generator instead of its outputs; write `yield from {shown}`"
    if kind == "async generator":
        return f"yields a whole generator instead of its outputs; write `async for output in {shown}: yield output`"
    if _path_of(call.func) in _COROUTINES or kind == "coroutine":
        return f"missing `await`; write `yield await {shown}`"
    return ""


def _unused(call: ast.Call, kinds: Mapping[str, str], *, is_async: bool) -> str:
    """Return the problem of a call whose result is not used; "" if there is none."""
    path, shown = _path_of(call.func), f"{_path_of(call.func)}(...)"
    name = path.rpartition(".")[2]
    kind = kinds.get(name) if path == f"self.{name}" else None
    if path in _COROUTINES or kind == "coroutine":
        return f"missing `await`, so nothing is done; write `await {shown}`"
    if name in {*REQUESTS, "follow"} and path in (name, f"trawl.{name}", f"scrapy.{name}", f"response.{name}"):
        return f"the request is never sent; write `yield {shown}`"
    if name == "follow_all" or kind is not None:
        is_later = kind == "async generator"
        each = f"{'async ' if is_later else ''}for output in {shown}: yield output"
        return f"the result is discarded; write `{each if is_async or is_later else f'yield from {shown}'}`"
    return ""


def _is_of_awaitable(call: ast.Call, function: Function) -> bool:
    """Return True if the result of ``fetch()`` is used without ``await``, here or through its variable."""
    if _path_of(call.func) not in ("self.fetch", "self.crawl.fetch"):
        return False
    names = {
        target.id
        for node in own_nodes(function)
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, ast.Attribute) and (node.value is call or getattr(node.value, "id", None) in names)
        for node in own_nodes(function)
    )


def _blocks(call: ast.Call, *, has_browser: bool) -> str:
    path = _path_of(call.func)
    if path in _BLOCKING or has_browser:
        return f"{path}() blocks the whole crawl; use {_BLOCKING.get(path, _BROWSER)}"
    if path.startswith("asyncio."):
        return asyncio_advice(path.split(".")[1])
    return ""


@lru_cache(maxsize=64)
def _uses_browser(path: str) -> bool:
    """Return True if a file imports Selenium, Splinter or Playwright's synchronous API."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError):
        return False
    return _BROWSER_IMPORT.search(text) is not None


def _placeholder(call: ast.Call) -> str:
    """Return the name in braces in the literal URL of a request; "" if there is none."""
    given = urls_of(call)
    if _path_of(call.func).rpartition(".")[2] not in {*REQUESTS, "fetch", "follow"} or not given:
        return ""
    url = given[0].value if isinstance(given[0], ast.Constant) else None
    found = PLACEHOLDER.search(url) if isinstance(url, str) else None
    return "" if found is None else found[1]


def _path_of(node: ast.expr) -> str:
    """Return the dotted path of a function, such as ``self.crawl.fetch``. After an expression, return the last name."""
    if isinstance(node, ast.Attribute):
        before = _path_of(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""
