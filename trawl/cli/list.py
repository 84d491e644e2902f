"""The command ``trawl list``: finds the spiders in files and folders. It parses the files without importing them."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import typer

from trawl.cli import OK, USAGE
from trawl.observe import printable

__all__ = ["Found", "content", "files_in", "find_spiders", "list_command"]

_MAX_BYTES = 1_000_000
_MAX_BASES = 100
_SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages"})


@attrs.frozen(order=True)
class Found:
    """A spider in a file, with its ``FILE:CLASS`` as an argument of ``trawl crawl``."""

    name: str
    target: str


def list_command(places: Sequence[str]) -> int:
    """Print the name and target of each spider in ``places``. Returns the exit status."""
    missing = [place for place in places if not Path(place).exists()]
    for place in missing:
        typer.echo(f"trawl: {printable(place)}: no such file or folder", err=True)
    found, unread = find_spiders(*map(Path, places))
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        typer.echo(printable(f"{each.name:{width}}  {each.target}"))
    for why in unread.values():
        typer.echo(f"trawl: {printable(why)}; its spiders are not listed", err=True)
    if not found and not missing and not unread:
        typer.echo(f"trawl: no spider in {printable(', '.join(places))}", err=True)
    return USAGE if missing else OK


def find_spiders(*places: Path) -> tuple[list[Found], dict[str, str]]:
    """Return the spiders in files and folders, sorted and without duplicates, and the files that can't be parsed.

    The search includes subfolders. A class counts as a spider if the name of one of its bases ends in ``Spider``, and
    if the class, or a base in the same file, sets ``name`` to a literal. A file that can't be parsed but may contain
    spiders has a sentence with the place and the cause.
    """
    found: set[Found] = set()
    unread: dict[str, str] = {}
    for path in (path for place in places for path in ([place] if place.is_file() else files_in(place))):
        if b"Spider" not in (source := content(path)):
            continue
        try:
            body = ast.parse(source).body  # parse bytes, so that the encoding declared in the file applies
        except SyntaxError as error:
            unread[str(path)] = f"{path}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            unread[str(path)] = f"{path}: {error}"
        else:
            classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
            for node in classes.values():
                if _is_spider(node, classes) and (name := _name_of(node, classes)):
                    found.add(Found(name, f"{path}:{node.name}"))
    return sorted(found), unread


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the Python files in a folder and below it, except built, installed and hidden files, and broken links."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED and name[0] not in "._" and not os.path.exists(f"{where}/{name}/pyvenv.cfg")
        )
        paths = (Path(where) / name for name in sorted(files) if name.endswith(".py"))
        yield from (path for path in paths if path.is_file())


def content(path: Path) -> bytes:
    """Return the content of a file; b"" if the file is too long, or is not a regular file, which might never end."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # do not wait for a pipe's writer
        with open(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                content = file.read(_MAX_BYTES + 1)
                return content if len(content) <= _MAX_BYTES else b""
    return b""


def _ancestry(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Sequence[ast.ClassDef]:
    """Return a class and its bases in the same file, depth first, up to :data:`_MAX_BASES`."""
    found: dict[str, ast.ClassDef] = {}
    waiting = [node]
    while waiting and len(found) < _MAX_BASES:
        each = waiting.pop()
        if each.name not in found:
            found[each.name] = each
            waiting += [classes[name] for name in reversed([*_bases_of(each)]) if name in classes]
    return [*found.values()]


def _is_spider(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    bases = (name for each in _ancestry(node, classes) for name in _bases_of(each))
    return any(name.endswith("Spider") and name not in classes for name in bases)


def _name_of(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    for statement in (statement for each in _ancestry(node, classes) for statement in each.body):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            value = getattr(statement, "value", None)
            if getattr(target, "id", "") == "name" and isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return ""


def _bases_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's bases. The name of a base that is not in this file starts with a dot."""
    for base in node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base  # for example Spider[Quote]
        name = plain.attr if isinstance(plain, ast.Attribute) else getattr(plain, "id", "")
        yield f".{name}" if isinstance(plain, ast.Attribute) or name == node.name else name
