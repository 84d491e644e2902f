"""Places in a file that was written for Scrapy that need asyncio's loop, which a crawl on Trio does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

__all__ = ["asyncio_advice", "asyncio_uses", "own_nodes"]

_TRIO: Mapping[str, str] = {
    "sleep": "trio.sleep()",
    "gather": "a nursery of Trio's",
    "create_task": "a nursery of Trio's",
    "wait_for": "trio.fail_after()",
    "to_thread": "self.crawl.blocking.run()",
}

_IN_A_THREAD = "a client that blocks, in a thread: `await trio.to_thread.run_sync(function, *arguments)`"
_FETCH = "`await self.fetch(request)`"
_BROWSER = "its sync API in a thread (the guide 'Coming from Scrapy', 'Pages from a browser')"

_LIBRARIES: Mapping[str, str] = {
    "aioboto3": _IN_A_THREAD,
    "aiobotocore": _IN_A_THREAD,
    "aiofiles": "trio.open_file()",
    "aiohttp": _FETCH,
    "aiokafka": _IN_A_THREAD,
    "aiomysql": _IN_A_THREAD,
    "aiopg": _IN_A_THREAD,
    "aioredis": _IN_A_THREAD,
    "aiosqlite": _IN_A_THREAD,
    "asyncpg": _IN_A_THREAD,
    "beanie": _IN_A_THREAD,
    "elasticsearch.AsyncElasticsearch": _IN_A_THREAD,
    "motor": _IN_A_THREAD,
    "nodriver": _BROWSER,
    "playwright.async_api": _BROWSER,
    "pymongo.AsyncMongoClient": _IN_A_THREAD,
    "pyppeteer": _BROWSER,
    "redis.asyncio": _IN_A_THREAD,
    "sqlalchemy.ext.asyncio": _IN_A_THREAD,
    "tortoise": _IN_A_THREAD,
}
"""Libraries, and names of them, that are awaited on asyncio's loop alone, to what does the same on Trio."""

_OF_A_LOOP = frozenset({"create_task", "ensure_future", "get_running_loop"})
"""What fails without a running loop in a plain function too."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def asyncio_advice(name: str) -> str:
    """Say what to use instead of a name of asyncio's, ``sleep``."""
    better = _TRIO.get(name, "Trio's counterpart")
    return f"asyncio does not work in a crawl, which runs on Trio; use {better}"


def asyncio_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and words of each import of a library that needs asyncio, and of each use of asyncio in a coroutine.

    A plain function may run a loop of its own (``asyncio.run()``) and is left alone.
    """
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
        if isinstance(function, _Function):
            for node in own_nodes(function):
                name = _name_of_asyncio(node, of_asyncio)
                if name is not None and (isinstance(function, ast.AsyncFunctionDef) or name in _OF_A_LOOP):
                    yield node.lineno, asyncio_advice(name)  # type: ignore[attr-defined]


def _imported(node: ast.AST) -> list[tuple[str, str]]:
    """Return each name that an import gives, and the path of what it is."""
    if isinstance(node, ast.Import):
        return [(alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
    return []


def _name_of_asyncio(node: ast.AST, of_asyncio: Mapping[str, str]) -> str | None:
    """Return ``sleep`` for ``asyncio.sleep``, and for ``sleep`` that was imported from it; None for all else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and of_asyncio.get(node.value.id) == "":
        return node.attr
    if isinstance(node, ast.Name) and (name := of_asyncio.get(node.id)):
        return name.rpartition(".")[2]
    return None


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without nested functions: these may run in a thread."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from own_nodes(node)
