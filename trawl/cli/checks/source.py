"""The source of a spider's class: lines of its attributes, syntax trees of its methods, and messages about lines."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from trawl.scrapy_names.imports import Edit

__all__ = ["PLACEHOLDER", "REQUESTS", "CheckMessage", "Function", "Method", "SpiderSource", "placeholder_words"]


@attrs.frozen(order=True)
class CheckMessage:
    """An error in a spider's source.

    ``line`` is 0 if ``path`` is another source of settings and not a file. ``is_wrong`` is False if the code only
    behaves differently than in Scrapy. ``edits`` change the file, if no decision of a person is needed.
    """

    path: str
    line: int
    message: str
    is_wrong: bool = True
    edits: tuple[Edit, ...] = attrs.field(default=(), eq=False, repr=False)

    def __str__(self) -> str:
        shown = self.path
        if Path(shown).is_absolute():
            near = os.path.relpath(shown)
            shown = shown if near.startswith("..") else near
        return f"{shown}:{self.line}: {self.message}" if self.line else f"{shown}: {self.message}"


REQUESTS = frozenset({"FormRequest", "JsonRequest", "Request"})
"""The names of the request classes."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*)\}")
"""A name in braces, which stays in a URL if the ``f`` before the string is missing."""


def placeholder_words(name: str) -> str:
    """Return the message about a URL that contains ``{name}``."""
    return f'the URL has {{{name}}} in it: put an f before the string, f"...{{{name}}}...", to have the value there'


_NOT_THE_USERS = frozenset({"trawl", "typing", "builtins"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Method:
    """The source of a spider's method."""

    path: str
    node: Function


class SpiderSource:
    """The source of a spider's class and of its bases outside trawl. If unreadable, locations are the file's line 1."""

    def __init__(self, spider: type) -> None:
        self._spider = spider
        self._classes = [kind for kind in spider.__mro__ if kind.__module__.partition(".")[0] not in _NOT_THE_USERS]
        self._written = {kind: found for kind in self._classes if (found := _written(kind)) is not None}

    def location(self, attribute: str, *keys: object) -> tuple[str, int]:
        """Return the file and line of an attribute, or of an entry in its list or dictionary."""
        for kind in self._classes:
            if attribute in vars(kind) and kind in self._written:
                path, node = self._written[kind]
                for statement in node.body:
                    if attribute in _names_of(statement):
                        return path, _line_of(statement, keys)
        return self.home()

    def at(self, message: str, attribute: str = "", *keys: object) -> CheckMessage:
        """Return a message about an attribute or its entry; without ``attribute``, about the class."""
        return CheckMessage(*self.location(attribute, *keys), message)

    def home(self) -> tuple[str, int]:
        """Return the file and line of the class."""
        if self._spider in self._written:
            path, node = self._written[self._spider]
            return path, node.lineno
        return _file_of(self._spider) or self._spider.__module__, 1

    def methods(self) -> Iterator[Method]:
        """Yield the spider's methods, without overridden methods."""
        seen: set[str] = set()
        for kind in self._classes:
            if kind not in self._written:
                continue
            path, node = self._written[kind]
            for statement in node.body:
                if isinstance(statement, Function) and statement.name not in seen:
                    seen.add(statement.name)
                    yield Method(path, statement)

    def attributes(self) -> set[str]:
        """Return the names of the attributes and methods in the user's classes."""
        return {name for kind in self._classes for name in vars(kind) if not name.startswith("_")}

    def is_own(self, attribute: str) -> bool:
        """Return True if the user's classes, not trawl's, have an attribute."""
        return any(attribute in vars(kind) for kind in self._classes)


def _written(kind: type) -> tuple[str, ast.ClassDef] | None:
    path = _file_of(kind)
    if path is None:
        return None
    try:
        tree: ast.AST = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    first = getattr(kind, "__firstlineno__", None)  # since Python 3.13
    exact = [node for node in nodes if node.lineno == first]
    return (path, (exact or nodes)[-1]) if nodes else None


def _file_of(kind: type) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except TypeError:
        return None


def _names_of(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Function):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _line_of(statement: ast.stmt, keys: tuple[object, ...]) -> int:
    """Return the line of an entry, or of the nearest literal around the entry."""
    node: ast.AST | None = getattr(statement, "value", None)
    line = statement.lineno
    for key in keys:
        node = _entry(node, key)
        if node is None:
            break
        line = getattr(node, "lineno", line)
    return line


def _entry(node: ast.AST | None, key: object) -> ast.AST | None:
    if isinstance(node, ast.List | ast.Tuple) and isinstance(key, int):
        return node.elts[key] if key < len(node.elts) else None
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                value.lineno = name.lineno  # report a long value at the line of its name
                return value
    return None
