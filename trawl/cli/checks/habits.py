"""What Scrapy's users write that fails here, when a page comes: header values as bytes, arguments that are not here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trawl.cli.checks.finding import Finding
from trawl.cli.checks.source import SpiderSource

__all__ = ["check_habits"]

_REQUESTS = frozenset({"Request", "FormRequest", "JsonRequest"})
_MODULES = frozenset({"scrapy", "trawl"})
_ABSENT = ("flags",)


def check_habits(source: SpiderSource) -> Iterator[Finding]:
    """Say which calls in a spider's methods are Scrapy's way and not ours."""
    for method in source.methods():
        if method.node.name == "close":
            yield Finding(method.path, method.node.lineno, "nothing calls close(): name it closed(self, reason)")
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                for message in _wrong(node):
                    yield Finding(method.path, node.lineno, message)


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
