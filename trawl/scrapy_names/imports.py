"""The import lines of a file that was written for Scrapy, and the necessary changes to them.

A file is parsed and not run. Lines inside ``try`` and ``if`` are only included on request, because a file that also
works without Scrapy may import Scrapy there.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from trawl.scrapy_names.names import (
    GUIDE,
    MOVED,
    PLUGINS,
    REPLACEMENTS,
    Place,
    as_written,
    name_advice,
    place,
    place_of_twisteds,
    plugin_advice,
    twisted_way,
)
from trawl.user_files import is_user_file

__all__ = ["Change", "Edit", "Hint", "changes", "edited", "hint", "hint_of_file", "project_files"]

_OURS = Path(__file__).parents[1]
_ROOTS = ("scrapy", "trawl", "twisted")


@attrs.frozen(order=True)
class Edit:
    """A place in a file, as lines from 1 and columns in bytes from 0, and its new text. ``end`` is exclusive."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str

    @classmethod
    def of(cls, node: Any, text: str) -> Edit:
        """Return the edit that replaces a node of the syntax tree."""
        return cls((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file after ``edits``. If edits overlap, only the last one is made."""
    lines = source.encode().splitlines(keepends=True)
    limit = (len(lines) + 1, 0)
    for edit in sorted(edits, reverse=True):
        if edit.end > limit:
            continue
        (first, left), (last, right) = edit.start, edit.end
        lines[first - 1 : last] = [lines[first - 1][:left] + edit.text.encode() + lines[last - 1][right:]]
        limit = edit.start
    return b"".join(lines).decode()


@attrs.frozen(order=True)
class Change:
    """One import line, and the lines to replace it with."""

    line: int
    before: str  # the import as it is written, joined to one line
    after: tuple[str, ...] = ()  # the new lines; empty if no import remains
    words: tuple[str, ...] = ()  # a sentence of advice for each name that trawl does not have
    rest: str = attrs.field(default="", eq=False)  # the import of these names, which a person must replace
    edit: Edit | None = attrs.field(default=None, eq=False)  # the place of the import, with the text ""

    @property
    def is_certain(self) -> bool:
        """Whether the import, or a part of it, can be replaced without a person's decision."""
        return bool(self.after) or not self.words

    def __str__(self) -> str:
        change = f'change "{self.before}" to "{"; ".join(self.after)}"' if self.after else f'take out "{self.before}"'
        return f"{change}: {'; '.join(self.words)}" if self.words else change


def changes(source: str, *, is_whole: bool = False) -> list[Change]:
    """Return the changes to the import lines of a file, in order. Correct lines are left out.

    If ``is_whole``, imports inside conditions and ``try`` are included. SyntaxError if the text is not valid Python,
    ValueError if it has a null byte.
    """
    tree = ast.parse(source)
    used = _used_names(tree)
    found = [(_change(node, used), node) for node in _imports(tree, is_whole=is_whole)]
    return sorted(attrs.evolve(change, edit=Edit.of(node, "")) for change, node in found if change is not None)


def _imports(node: ast.AST, *, is_whole: bool) -> Iterator[ast.AST]:
    """Yield the nodes below a node, including its functions.

    Nodes inside ``if`` and ``try`` are only included on request, and never if the statement also imports trawl,
    because its code already works with both packages.
    """
    yield node
    for part in ast.iter_child_nodes(node):
        is_conditional = isinstance(part, ast.If | ast.Try | ast.TryStar)
        if not isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if not is_conditional or (is_whole and not any(map(_is_of_trawl, ast.walk(part)))):
            yield from _imports(part, is_whole=is_whole)


def _is_of_trawl(node: ast.AST) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
    return any(name.partition(".")[0] == "trawl" for name in names)


def _used_names(tree: ast.Module) -> frozenset[str] | None:
    """Return the names that a file uses, also in strings; None if the file only imports names for other files."""
    if all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) for node in tree.body):
        return None
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(
        names | {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str}
    )


def _change(node: ast.AST, used: frozenset[str] | None) -> Change | None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if why := plugin_advice(alias.name):
                return Change(node.lineno, ast.unparse(node), (), (why,))
        wanted = [alias for alias in node.names if alias.name.partition(".")[0] in ("scrapy", "twisted")]
        if not wanted:
            return None
        kept = [_as(alias.name, alias.asname) for alias in node.names if alias not in wanted]
        lines = [f"import {', '.join(kept)}"] if kept else []
        parts = [_imported(alias) for alias in wanted]
        lines += dict.fromkeys(line for line, _ in parts if line)
        rest = [_as(alias.name, alias.asname) for alias, (line, _) in zip(wanted, parts, strict=True) if not line]
        words = tuple(words for _, words in parts if words)
        return Change(node.lineno, ast.unparse(node), tuple(lines), words, f"import {', '.join(rest)}" if rest else "")
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        root, _, module = node.module.partition(".")
        if root in _ROOTS:
            return _from(node, root, module, used)
        if why := plugin_advice(node.module):
            return Change(node.lineno, ast.unparse(node), (), (why,))
    return None


def _imported(alias: ast.alias) -> tuple[str, str]:
    """Return the new line for ``import scrapy.MODULE``, and advice if trawl does not have the module."""
    root, _, module = alias.name.partition(".")
    if root == "twisted":
        return "", f"{alias.name} is Twisted's: {twisted_way(module)}"
    is_of_moved = not alias.asname and any(name.startswith(f"{module}.") for name in MOVED)
    if module and place(module, "") is None and not is_of_moved:
        return "", _absent(module)
    if not alias.asname:
        return "import trawl as scrapy", ""  # `trawl` loads its modules on first use
    return f"import {_as(f'trawl.{module}'.rstrip('.'), alias.asname)}", ""


def _from(node: ast.ImportFrom, root: str, module: str, used: frozenset[str] | None) -> Change | None:
    """Return the change to ``from scrapy.MODULE import ...``; None for a correct import from trawl.

    A name that trawl does not have is left out without advice if the file does not use it. The logger of a module of
    Scrapy becomes a logger with the same name.
    """
    rest: list[str] = []
    found: dict[str, list[str]] = {}
    words: list[str] = []
    loggers: list[str] = []
    is_right = root == "trawl"
    place_in = place_of_twisteds if root == "twisted" else place
    for alias in node.names:
        wanted = "" if alias.name == "*" else alias.name
        where: Place | None = (as_written(module, wanted) if root == "trawl" else None) or place_in(module, wanted)
        if where is None:
            said = _words(root, module, alias.name)
            if used is not None and said and (alias.asname or alias.name) not in used and alias.name != "*":
                is_right = False
                continue
            if (root, alias.name) == ("scrapy", "logger"):
                loggers.append(f"{alias.asname or 'logger'} = getLogger({node.module!r})")
                continue
            words.append(said)
            rest.append(_as(alias.name, alias.asname))
            continue
        home, name = where
        is_right = is_right and (home, name or "*") == (node.module, alias.name)
        found.setdefault(home, []).append(_as(name or "*", alias.asname or (alias.name if alias.name != name else "")))
    words = [said for said in words if said]
    if is_right and not words:
        return None
    lines = tuple(f"from {home} import {', '.join(names)}" for home, names in found.items())
    lines += ("from logging import getLogger", *loggers) if loggers else ()
    kept = f"from {node.module} import {', '.join(rest)}" if rest else ""
    return Change(node.lineno, ast.unparse(node), lines, tuple(dict.fromkeys(words)), kept)


def _words(root: str, module: str, name: str) -> str:
    """Return advice on a name that trawl does not have; "" for a misspelled name of trawl."""
    if root == "twisted":
        return f"{name} is Twisted's: {twisted_way(f'{module}.{name}'.strip('.'))}"
    return _absent(f"{module}.{name}".strip(".")) if root == "scrapy" or _is_scrapys(module, name) else ""


def _is_scrapys(module: str, name: str) -> bool:
    """Return True for a Scrapy name that trawl does not have, and False for a misspelled name of trawl."""
    if f"{module}.{name}".strip(".") in REPLACEMENTS:
        return True
    return bool(name_advice(module)) and (module.startswith("utils.") or place(module, "") is None)


def _as(name: str, asname: str | None) -> str:
    return f"{name} as {asname}" if asname and name != "*" else name


def _absent(name: str) -> str:
    return f"{name.rpartition('.')[2]} is not here: {name_advice(name) or GUIDE}"


@attrs.frozen
class Hint:
    """The changes that a file written for Scrapy still needs, in order. ``str()`` of a hint is one sentence."""

    path: Path
    changes: Sequence[Change]

    def __str__(self) -> str:
        changes = "; ".join(f"line {change.line}: {change}" for change in self.changes)
        return f"{self.path.name} is written for Scrapy: {changes} ({GUIDE})"

    @property
    def is_of_twisted(self) -> bool:
        """Whether a line imports Twisted, whose reactor never runs in trawl."""
        return any(change.before.split()[1].partition(".")[0] == "twisted" for change in self.changes)

    @property
    def places(self) -> tuple[tuple[str, int, str], ...]:
        """The file, line and message of each change."""
        return tuple((str(self.path), change.line, str(change)) for change in self.changes)


def hint(error: BaseException) -> Hint | None:
    """Return the changes to the file whose import failed; None if the error has nothing to do with Scrapy.

    An error of an import from trawl also has to do with Scrapy if only Scrapy has the imported name.
    """
    if not isinstance(error, ImportError):
        return None
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and _OURS not in path.parents:
            found = _read(path)
            is_it = any(change.line == frame.lineno for change in found)
            return Hint(path, found) if is_it else None
    return None


def hint_of_file(path: str, *, is_whole: bool = True) -> Hint | None:
    """Return the changes to the imports of a file; None if ``path`` is "" or it imports nothing from Scrapy."""
    found = _read(Path(path), is_whole=is_whole)
    return Hint(Path(path), found) if found else None


def _read(path: Path, *, is_whole: bool = True) -> list[Change]:
    try:
        text = path.read_text("utf-8")
        return [*_known_changes(text, is_whole)] if any(root in text for root in (*_ROOTS, *PLUGINS)) else []
    except (OSError, SyntaxError, ValueError):
        return []


@lru_cache(maxsize=64)
def _known_changes(source: str, is_whole: bool) -> tuple[Change, ...]:
    """Return the changes to a file. They are remembered, because each crawl of a process asks for its components."""
    return tuple(changes(source, is_whole=is_whole))


def project_files(spider_class: type, parts: Iterable[object] = ()) -> list[str]:
    """Return the loaded files of a spider's folder and below, and of ``parts``, except installed packages."""
    classes = [spider_class, *parts]
    kinds = {kind for each in classes for kind in getattr(each, "__mro__", [each])}
    files = {_file_of(getattr(kind, "__module__", "")) for kind in kinds}
    first = _file_of(spider_class.__module__)
    if first:
        root = Path(first).parent
        while (root / "__init__.py").is_file() and root != root.parent:
            root = root.parent
        below = os.path.join(root, "")  # as a string, because a Path for each loaded module is slow
        files |= {file for name in list(sys.modules) if (file := _file_of(name)).startswith(below)}
    return sorted(file for file in files if file and is_user_file(file))


def _file_of(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""
