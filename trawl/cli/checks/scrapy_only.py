"""Checks for what works in Scrapy only: header values used as bytes, names and arguments that are not here.

Only :mod:`trawl.cli.checks` imports this, beside its checks of a spider's class and methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trawl.cli.checks.source import CheckMessage, SpiderSource

__all__ = ["check_scrapy_only", "is_bytes", "is_of_headers"]

_REQUESTS = frozenset({"Request", "FormRequest", "JsonRequest"})

_SPIDERS = frozenset({"self", "spider"})

_MODULES = frozenset({"scrapy", "trawl"})


def check_scrapy_only(source: SpiderSource, *, is_moved: bool = False) -> Iterator[CheckMessage]:
    """Report what works in Scrapy only, such as header values used as bytes.

    Args:
        source: The spider's.
        is_moved: It is run as a moved spider, whose header values are equal to their bytes, and whose ``close()`` is
            called.
    """
    yield from _state(source)
    for method in source.methods():
        if method.node.name == "close" and not is_moved:
            yield CheckMessage(method.path, method.node.lineno, "close() is never called; name it closed(self, reason)")
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                messages = [*_wrong(node), *(() if is_moved else _taken_for_bytes(node))]
            elif isinstance(node, ast.Compare) and not is_moved:
                messages = list(_compared_with_bytes(node))
            else:
                continue
            yield from (CheckMessage(method.path, node.lineno, message) for message in messages)


def _state(source: SpiderSource) -> Iterator[CheckMessage]:
    """Report where a spider reads ``self.state``, unless it is an attribute of its own."""
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


def _wrong(call: ast.Call) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "body_as_unicode":
        yield "body_as_unicode() does not exist; use response.text"
    name = _name_of(function)
    given = {keyword.arg for keyword in call.keywords}
    first = call.args[0] if call.args else None
    if name == "Selector" and ("response" in given or (isinstance(first, ast.Name) and first.id == "response")):
        yield "Selector does not accept a response; use response.selector"
    if name in _REQUESTS:
        if "flags" in given:
            yield f"{name}() does not support 'flags'; use meta instead"
        if len(call.args) > 2:
            yield f"{name}() takes only url and callback as positional arguments; pass the rest by keyword"


def is_bytes(node: ast.expr) -> bool:
    """Return True for a literal of bytes."""
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
    """Return the name of a called function if it stands alone or in trawl's module; else ""."""
    if isinstance(function, ast.Name):
        return function.id
    is_ours = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in _MODULES
    return function.attr if is_ours and isinstance(function, ast.Attribute) else ""
