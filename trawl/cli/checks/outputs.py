"""What a spider's methods make and do not give to the crawl, or give as a whole; and what blocks it.

What Scrapy's users write that fails here, when a page comes: header values as bytes, arguments that are not here.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping

import attrs

from trawl.cli.checks.source import CheckMessage, Function, Method, SpiderSource
from trawl.spiders import Spider

__all__ = ["check_habits", "check_outputs"]

_REQUESTS = frozenset({"Request", "FormRequest", "JsonRequest"})

_MODULES = frozenset({"scrapy", "trawl"})

_ABSENT = ("flags",)


def check_habits(source: SpiderSource) -> Iterator[CheckMessage]:
    """Say which calls in a spider's methods are Scrapy's way and not ours."""
    for method in source.methods():
        if method.node.name == "close":
            yield CheckMessage(method.path, method.node.lineno, "nothing calls close(): name it closed(self, reason)")
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                for message in _wrong(node):
                    yield CheckMessage(method.path, node.lineno, message)


def _wrong(call: ast.Call) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "decode" and _is_of_headers(function.value):
        yield "header values are text, not bytes: leave decode() out"
    if isinstance(function, ast.Attribute) and function.attr == "body_as_unicode":
        yield "there is no body_as_unicode(): use response.text"
    if isinstance(function, ast.Attribute) and function.attr == "to_unicode_dict":
        yield "there is no to_unicode_dict(): header values are text, so use dict(headers)"
    name = _name_of(function)
    given = {keyword.arg for keyword in call.keywords}
    first = call.args[0] if call.args else None
    if name == "Selector" and ("response" in given or (isinstance(first, ast.Name) and first.id == "response")):
        yield "Selector takes no response: use response.selector"
    if name in _REQUESTS:
        yield from (f"{name} has no {argument}: leave it out" for argument in _ABSENT if argument in given)
        if len(call.args) > 2:
            yield f"{name} takes a URL and a callback by their place: give what follows by its name"


def _is_of_headers(node: ast.expr) -> bool:
    """Whether a value is that of a header: ``x.headers[...]``, ``x.headers.get(...)``, an item of ``getlist``."""
    while not (isinstance(node, ast.Attribute) and node.attr == "headers"):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return False
    return True


def _name_of(function: ast.expr) -> str:
    """The name of what is called, where it is trawl's: by itself, or in its module."""
    if isinstance(function, ast.Name):
        return function.id
    is_ours = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in _MODULES
    return function.attr if is_ours and isinstance(function, ast.Attribute) else ""


_REQUEST_NAMES = frozenset({"Request", "FormRequest", "JsonRequest", "follow"})

_COROUTINES = frozenset({"trio.sleep", "trio.sleep_until", "trio.to_thread.run_sync", "self.fetch", "self.crawl.fetch"})

_BLOCKING: Mapping[str, str] = {
    "time.sleep": "await trio.sleep() in an async callback",
    **dict.fromkeys(
        ("requests.get", "requests.post", "requests.request", "urllib.request.urlopen", "urlopen", "httpx.get"),
        "await self.fetch(Request(url)), which is throttled too",
    ),
}

_IN_PLACE: Mapping[str, str] = {
    "sleep": "trio.sleep()",
    "gather": "a nursery of Trio's",
    "create_task": "a nursery of Trio's",
    "wait_for": "trio.fail_after()",
    "to_thread": "self.crawl.blocking.run()",
}


@attrs.frozen
class _Kinds:
    """What the spider's own methods give when they are called.

    Attributes:
        generators: The names of those that are generators.
        async_generators: Those that are async generators.
        coroutines: Those that are to be awaited.
    """

    generators: Collection[str]
    async_generators: Collection[str]
    coroutines: Collection[str]

    @classmethod
    def of(cls, spider: type[Spider], source: SpiderSource) -> _Kinds:
        """Those of a spider."""
        functions = {
            method.node.name: inspect.unwrap(function)
            for method in source.methods()
            if inspect.isfunction(function := inspect.getattr_static(spider, method.node.name, None))
        }
        return cls(
            {name for name, function in functions.items() if inspect.isgeneratorfunction(function)},
            {name for name, function in functions.items() if inspect.isasyncgenfunction(function)},
            {name for name, function in functions.items() if inspect.iscoroutinefunction(function)},
        )


def check_outputs(spider: type[Spider], source: SpiderSource, callbacks: Collection[str]) -> Iterator[CheckMessage]:
    """Say which requests and items come to nothing in a spider's methods, and which calls can't work there.

    Args:
        spider: The class.
        source: As it is written.
        callbacks: The names of the methods that get responses.
    """
    kinds = _Kinds.of(spider, source)
    given = {*callbacks, "start", "start_requests"}
    for method in source.methods():
        name = method.node.name
        if name in callbacks and (problem := _takes_no_response(spider, name)):
            yield CheckMessage(method.path, method.node.lineno, problem)
        for node, message in _wrong_outputs(method, kinds, is_given=name in given):
            yield CheckMessage(method.path, node.lineno, message)


def _takes_no_response(spider: type[Spider], name: str) -> str:
    function = inspect.getattr_static(spider, name)
    if not inspect.isfunction(function):
        return ""
    try:
        inspect.signature(function).bind_partial(None, None)
    except TypeError:
        return f"{name}() is called with the response: def {name}(self, response)"
    return ""


def _wrong_outputs(method: Method, kinds: _Kinds, *, is_given: bool) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    is_async = isinstance(method.node, ast.AsyncFunctionDef)
    awaited = {id(node.value) for node in _own(method.node) if isinstance(node, ast.Await)}
    for node in _own(method.node):
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Call) and is_given:
            if message := _whole(node.value, kinds, is_async=is_async):
                yield node, message
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if message := _unused(node.value, kinds, is_async=is_async):
                yield node, message
        elif isinstance(node, ast.Call) and id(node) not in awaited and _is_of_awaitable(node, method.node):
            yield (
                node,
                f"{_path_of(node.func)}() is used before it is awaited: write `await {_path_of(node.func)}(...)`",
            )
        if isinstance(node, ast.Call) and (is_given or is_async) and (message := _blocks(node)):
            yield node, message


def _whole(call: ast.Call, kinds: _Kinds, *, is_async: bool) -> str:
    """What is wrong with yielding what a call gives; "" if nothing is."""
    shown = f"{_path_of(call.func)}(...)"
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    is_own = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self"
    if name == "follow_all" or (is_own and name in kinds.generators):
        if is_async:
            return f"many outputs are yielded as one: write `for output in {shown}: yield output`"
        return f"many outputs are yielded as one: write `yield from {shown}`"
    if is_own and name in kinds.async_generators:
        return f"many outputs are yielded as one: write `async for output in {shown}: yield output`"
    if _path_of(call.func) in _COROUTINES or (is_own and name in kinds.coroutines):
        return f"an `await` is missing: write `yield await {shown}`"
    return ""


def _unused(call: ast.Call, kinds: _Kinds, *, is_async: bool) -> str:
    """What is missing before a call that stands alone; "" if nothing is."""
    path, shown = _path_of(call.func), f"{_path_of(call.func)}(...)"
    name = path.rpartition(".")[2]
    is_own = path == f"self.{name}"
    if path in _COROUTINES or (is_own and name in kinds.coroutines):
        return f"nothing is done, an `await` is missing: write `await {shown}`"
    if name in _REQUEST_NAMES and path in (name, f"trawl.{name}", f"scrapy.{name}", f"response.{name}"):
        return f"the request is not sent, it has to be given to the crawl: write `yield {shown}`"
    if name == "follow_all" or (is_own and name in (*kinds.generators, *kinds.async_generators)):
        each = f"{'async ' if name in kinds.async_generators else ''}for output in {shown}: yield output"
        is_each = is_async or name in kinds.async_generators
        return f"nothing comes of it: write `{each if is_each else f'yield from {shown}'}`"
    return ""


def _is_of_awaitable(call: ast.Call, function: Function) -> bool:
    """Whether an attribute or an item is asked of a response that was not awaited, here or by the name it is given."""
    if _path_of(call.func) not in ("self.fetch", "self.crawl.fetch"):
        return False
    names = {
        target.id
        for node in _own(function)
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, ast.Attribute) and (node.value is call or getattr(node.value, "id", None) in names)
        for node in _own(function)
    )


def _blocks(call: ast.Call) -> str:
    path = _path_of(call.func)
    if path in _BLOCKING:
        return f"{path}() holds up the whole crawl: {_BLOCKING[path]}"
    if path.startswith("asyncio."):
        better = _IN_PLACE.get(path.partition(".")[2].partition(".")[0], "what Trio has for it")
        return f"asyncio does not work in a crawl, which runs on Trio: use {better}"
    return ""


def _path_of(node: ast.expr) -> str:
    """``self.crawl.fetch`` of a call's function; its last name alone where something else stands before it."""
    if isinstance(node, ast.Attribute):
        before = _path_of(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions in it: they may run in a thread."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _own(node)
