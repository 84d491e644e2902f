"""Checks for code that only works in Scrapy: asyncio, header values used as bytes, names that trawl does not have."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import attrs

from trawl.cli.checks.source import REQUESTS, CheckMessage, Function, SpiderSource
from trawl.scrapy_names.imports import Edit
from trawl.scrapy_names.names import PLUGIN_META

__all__ = [
    "Finding",
    "asyncio_advice",
    "asyncio_uses",
    "by_position",
    "check_scrapy_only",
    "foreign_names",
    "is_bytes",
    "is_of_headers",
    "last_name",
    "own_nodes",
    "plugin_meta_uses",
    "urls_of",
    "wrong_calls",
]

_POSITIONAL = 2

_SPIDERS = frozenset({"self", "spider"})

_MODULES = frozenset({"scrapy", "trawl"})


def check_scrapy_only(source: SpiderSource, *, is_moved: bool = False) -> Iterator[CheckMessage]:
    """Report code that only works in Scrapy. A moved spider may compare header values with bytes and have close()."""
    yield from _state(source)
    foreign_in = cache(lambda path: foreign_names(ast.walk(ast.parse(Path(path).read_text("utf-8")))))
    for method in source.methods():
        if method.node.name == "close" and not is_moved:
            yield CheckMessage(method.path, method.node.lineno, "close() is never called; name it closed(self, reason)")
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                yield from (CheckMessage(method.path, *found) for found in wrong_calls(node, foreign_in(method.path)))
                messages = [] if is_moved else list(_taken_for_bytes(node))
            elif isinstance(node, ast.Compare) and not is_moved:
                messages = list(_compared_with_bytes(node))
            else:
                continue
            yield from (CheckMessage(method.path, node.lineno, message) for message in messages)


def _state(source: SpiderSource) -> Iterator[CheckMessage]:
    """Report code that reads ``self.state``, unless the spider defines that attribute."""
    found = [
        (method.path, node)
        for method in source.methods()
        for node in ast.walk(method.node)
        if isinstance(node, ast.Attribute) and node.attr == "state" and getattr(node.value, "id", "") in _SPIDERS
    ]
    if source.is_own("state") or any(isinstance(node.ctx, ast.Store) for _, node in found):
        return
    words = "a spider has no state; keep what must be remembered in cb_kwargs or meta, which a job stores"
    yield from (CheckMessage(path, node.lineno, words) for path, node in found)


_TEXTS = "header values are str, not bytes;"


def _taken_for_bytes(call: ast.Call) -> Iterator[str]:
    function = call.func
    if not isinstance(function, ast.Attribute) or not is_of_headers(function.value):
        return
    if function.attr == "decode":
        yield f"{_TEXTS} remove decode()"
    elif not _are_headers(function.value) and any(map(is_bytes, call.args)):
        yield f"{_TEXTS} remove the b before the quotes"


def _compared_with_bytes(node: ast.Compare) -> Iterator[str]:
    sides = [node.left, *node.comparators]
    parts = [part for side in sides for part in (side.elts if isinstance(side, ast.Tuple | ast.List) else [side])]
    if any(map(is_bytes, parts)) and any(is_of_headers(side) and not _are_headers(side) for side in sides):
        yield f"{_TEXTS} remove the b before the quotes"


def _are_headers(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "headers"


Finding = tuple[int, str, bool, tuple[Edit, ...]]
"""The line, the message, whether the code must be changed, and the changes if they are certain."""

_PARAMETERS = (
    *("url", "callback", "method", "headers", "body", "cookies", "meta", "encoding", "priority", "dont_filter"),
    *("errback", "flags", "cb_kwargs"),
)
"""The parameters of Scrapy's Request, in order."""

_OF_FOLLOW = (*_PARAMETERS[:11], "cb_kwargs", "flags")


def foreign_names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that a file defines as classes and functions, or imports from other packages than Scrapy."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef | Function):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) and not node.level else ""
            if module.partition(".")[0] not in _MODULES:
                found |= {
                    alias.asname or alias.name for alias in node.names if alias.name.partition(".")[0] not in _MODULES
                }
    return frozenset(found)


def wrong_calls(call: ast.Call, foreign: Collection[str] = ()) -> Iterator[Finding]:
    """Yield the errors in a call, unless its name is in ``foreign``: neither Scrapy's nor trawl's."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "body_as_unicode":
        text = attrs.evolve(Edit.of(call, ".text"), start=Edit.of(function.value, "").end)
        yield call.lineno, "body_as_unicode() does not exist; use response.text", True, (text,)
    name = _name_of(function)
    if name in foreign and isinstance(function, ast.Name):
        return
    if name in REQUESTS:
        if any(keyword.arg == "flags" for keyword in call.keywords):
            yield call.lineno, f"{name}() does not support 'flags'; use meta instead", True, ()
        yield from by_position(call, name)


def by_position(call: ast.Call, name: str) -> Iterator[Finding]:
    """Yield a finding if a request has more positional arguments than its URL and its callback."""
    if len(call.args) <= _POSITIONAL:
        return
    names = _OF_FOLLOW if name == "follow" else _PARAMETERS
    words = f"{name}() takes only url and callback as positional arguments; pass the rest by keyword"
    is_certain = len(call.args) <= len(names) and not any(isinstance(each, ast.Starred) for each in call.args)
    pairs = list(zip(names, call.args, strict=False))[_POSITIONAL:] if is_certain else []
    places = [((each.lineno, each.col_offset), f"{parameter}=") for parameter, each in pairs]
    yield call.lineno, words, True, tuple(Edit(place, place, text) for place, text in places)


def urls_of(call: ast.Call) -> list[ast.expr]:
    """Return the URL of a request, an argument by position or by name."""
    return [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "url")]


def is_bytes(node: ast.expr) -> bool:
    """Return True for a bytes literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, bytes)


def is_of_headers(node: ast.expr) -> bool:
    """Return True for the value of a header: ``x.headers[...]``, ``x.headers.get(...)``, an item of ``getlist``."""
    while not (isinstance(node, ast.Attribute) and node.attr == "headers"):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return False
    return True


def _name_of(function: ast.expr) -> str:
    """Return the name of a called function if it is a plain name or an attribute of trawl's module; otherwise ""."""
    if isinstance(function, ast.Name):
        return function.id
    is_ours = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in _MODULES
    return function.attr if is_ours and isinstance(function, ast.Attribute) else ""


_TRIO: Mapping[str, str] = {
    "sleep": "trio.sleep()",
    "gather": "a nursery of Trio's",
    "create_task": "a nursery of Trio's",
    "wait_for": "trio.fail_after()",
    "to_thread": "self.crawl.blocking.run()",
}

_IN_A_THREAD = "a client that blocks, in a thread: `await trio.to_thread.run_sync(function, *arguments)`"
_FETCH = "`await self.fetch(request)`"
_BROWSER = "meta browser (the guide 'Pages that need a browser')"

_LIBRARIES: Mapping[str, str] = {
    "aiofiles": "trio.open_file()",
    **dict.fromkeys(("aiohttp", "web_poet.HttpClient"), _FETCH),
    **dict.fromkeys(("nodriver", "playwright.async_api", "pyppeteer"), _BROWSER),
    **dict.fromkeys(
        (
            *("aioboto3", "aiobotocore", "aiokafka", "aiomysql", "aiopg", "aioredis", "aiosqlite", "asyncpg", "beanie"),
            *("elasticsearch.AsyncElasticsearch", "motor", "pymongo.AsyncMongoClient", "redis.asyncio"),
            *("sqlalchemy.ext.asyncio", "tortoise"),
        ),
        _IN_A_THREAD,
    ),
}
"""Libraries and names that need asyncio's event loop, with the replacement on Trio."""

_OF_A_LOOP = frozenset({"create_task", "ensure_future", "get_running_loop"})
"""Functions that fail without a running loop even in a plain function."""


def asyncio_advice(name: str) -> str:
    """Return the replacement of a name in asyncio, such as ``sleep``."""
    better = _TRIO.get(name, "Trio's counterpart")
    return f"asyncio does not work in a crawl, which runs on Trio; use {better}"


def asyncio_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and message of each use of asyncio, but not in plain functions, which may run their own loop."""
    nodes = list(ast.walk(tree))
    of_asyncio: dict[str, str] = {}
    for node in nodes:
        for local, path in _imported(node):
            if path.partition(".")[0] == "asyncio":
                of_asyncio[local] = path.partition(".")[2]
            for library, better in _LIBRARIES.items():
                if f"{path}.".startswith(f"{library}."):
                    yield node.lineno, f"{library} needs asyncio, and a crawl runs on Trio; use {better}"  # type: ignore[attr-defined]
    for function in nodes:
        if isinstance(function, Function):
            for node in own_nodes(function):
                name = _name_of_asyncio(node, of_asyncio)
                if name is not None and (isinstance(function, ast.AsyncFunctionDef) or name in _OF_A_LOOP):
                    yield node.lineno, asyncio_advice(name)  # type: ignore[attr-defined]


def plugin_meta_uses(tree: ast.AST) -> Iterator[Finding]:
    """Yield a finding for each key of meta that only a package for Scrapy obeys; not wrong beside ``browser``."""
    nodes = list(ast.walk(tree))
    given = [each.value for each in nodes if isinstance(each, ast.keyword) and each.arg == "meta"]
    names = {"meta", *map(last_name, given), *(last_name(each.func) for each in given if isinstance(each, ast.Call))}
    names -= {"", "dict"}
    for scope in (tree, *(each for each in nodes if isinstance(each, _SCOPES))):
        found: dict[str, dict[str, int]] = {}
        for node in own_nodes(scope):
            for holder, part in _parts_of_meta(node, names, getattr(scope, "name", "")):
                found.setdefault(holder, {}).update(_keys(part))
        for keys in found.values():
            for key, line in keys.items():
                if key in PLUGIN_META:
                    is_wrong = "browser" not in keys and _UNKNOWN not in keys
                    yield line, f"meta {key} has no effect; {PLUGIN_META[key]}", is_wrong, ()


_UNKNOWN = "**"
"""Stands for the unknown keys of another variable."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _parts_of_meta(node: ast.AST, names: Collection[str], function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the dicts and keys that a node adds to a meta in one of ``names``, with the text of that variable."""
    own = f"{id(node)}"
    if isinstance(node, ast.keyword) and node.arg == "meta":
        yield own, node.value
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from ((own, value) for key, value in pairs if isinstance(key, ast.Constant) and key.value == "meta")
    elif isinstance(node, ast.Return) and function in names and node.value is not None:
        yield own, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func.value) in names:
        if node.func.attr in {"setdefault", "update"}:
            yield ast.unparse(node.func.value), node
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if last_name(target) in names:
                yield ast.unparse(target), node.value
            elif isinstance(target, ast.Subscript) and last_name(target.value) in names:
                yield ast.unparse(target.value), target


def _keys(node: ast.AST) -> dict[str, int]:
    """Return the keys of the dicts that an expression is made of, or that a node sets, with their lines."""
    parts: list[ast.AST] = []
    keys: list[ast.expr] = []
    opened: list[ast.expr] = []
    found: dict[str, int] = {}
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        opened = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    elif isinstance(node, ast.Call) and last_name(node.func) == "setdefault":
        keys = node.args[:1]
    elif isinstance(node, ast.Call) and last_name(node.func) in {"dict", "update"}:
        parts = [*node.args[:1]]
        opened = [each.value for each in node.keywords if each.arg is None]
        found = {each.arg: each.lineno for each in node.keywords if each.arg}
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        keys = [node.slice]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.IfExp):
        parts = list(ast.iter_child_nodes(node))
    found |= {key.value: key.lineno for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if any(last_name(each) not in {"", "meta"} for each in opened):
        found[_UNKNOWN] = 0
    return found | {key: line for part in (*parts, *opened) for key, line in _keys(part).items()}


def last_name(node: ast.AST | None) -> str:
    """Return the last name of ``a.b.c``; "" if the node is neither a name nor an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _imported(node: ast.AST) -> list[tuple[str, str]]:
    """Return each name that an import binds, with the imported path."""
    if isinstance(node, ast.Import):
        return [(alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
    return []


def _name_of_asyncio(node: ast.AST, of_asyncio: Mapping[str, str]) -> str | None:
    """Return ``sleep`` for ``asyncio.sleep`` and for a ``sleep`` imported from asyncio; None for other nodes."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and of_asyncio.get(node.value.id) == "":
        return node.attr
    if isinstance(node, ast.Name) and (name := of_asyncio.get(node.id)):
        return name.rpartition(".")[2]
    return None


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but not of nested functions, which may run in a thread."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from own_nodes(node)
