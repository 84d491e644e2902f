"""Finds the commands in sentences of pages, docstrings, comments, help texts and messages.

Commands in blocks of pages (:mod:`tests.docs.blocks`), in the examples of a command's help and in the first lines of
the example programs are not included, because they have other tests.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from tests.docs.given import ROOT

__all__ = ["MENTIONED", "files", "inline"]

PROGRAMS = (
    "trawl|nox|pip|python3?|pytest|bash|pre-commit|towncrier|twine|git|kill|ulimit|which|crontab|scrapy|sqlite3"
    "|apt-get|createdb|docker|podman|psql|redis-cli|redis-server|systemctl"
)
OF_OTHERS = {
    *(".git", ".venv", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "__pycache__", "node_modules"),
    *("_build", "build", "dist", "newsfragments"),
}
NOT_OURS = {"tests/compat/spiders", "tests/scrapy/projects"}
"""Folders of Scrapy projects."""
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.M | re.S)
INLINE = re.compile(rf"(?<!`)(`{{1,2}})((?:[A-Z_]+=\S+ )?(?:\.venv/bin/)?(?:{PROGRAMS})\s[^`]+)\1(?!`)")
BEGINS = re.compile(rf"`(?:[A-Z_]+=\S+ )?(?:\.venv/bin/)?(?:{PROGRAMS})\s|pip install '|^ {{4}}python ", re.M)
MARK = re.compile(r"`|pip install '|^ {4}(?:trawl|python|pytest|nox) ", re.M)
INSTALL = re.compile(r"pip install '[^']+'")
TYPED = re.compile(r"^ {4}((?:trawl|python|pytest|nox) (?:(?! {3})[^\n])+)", re.M)
TEXTS = {".md", ".service", ".svg", ".toml", ".yaml", ".yml"}
MESSAGES = ("trawl", "benchmarks", "docs", "examples", "noxfile.py", "hatch_build.py")
"""Paths whose Python strings are read."""


def inline(text: str) -> Iterator[str]:
    """Yield the commands that are literals in a string."""
    for _, command in INLINE.findall(text):
        yield " ".join(command.split())


def texts_of(source: str) -> Iterator[str]:
    """Yield the strings of a module that may contain a command. In an f-string, a placeholder is its expression."""
    nodes, inside = [*marked(source)], set[int]()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside |= {*map(id, node.values)}
            yield "".join(filled_in(part) for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def marked(source: str) -> Iterator[ast.AST]:
    """Yield the nodes of the statements with a mark: most have none, and walking through all of them takes seconds."""
    lines = [number for number, line in enumerate(source.split("\n"), 1) if MARK.search(line)]
    lines.append(len(source) + 1)  # after the last line
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        yield node
        for part in ast.iter_child_nodes(node):
            if not isinstance(part, ast.stmt) or lines[bisect_left(lines, part.lineno)] <= (part.end_lineno or 0):
                nodes.append(part)


def filled_in(part: ast.expr) -> str:
    """Return the text of a part of an f-string."""
    return str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Yield the files of this project."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in OF_OTHERS and str(path.relative_to(ROOT)) not in NOT_OURS:
                yield from files(path)
        elif not path.is_symlink():
            yield path.relative_to(ROOT)


def mentioned() -> dict[str, set[str]]:
    """Return the commands, each with the files that contain it."""
    found: dict[str, set[str]] = {}
    for path in files():
        if path.suffix in TEXTS:
            texts = [CODE.sub("", (ROOT / path).read_text("utf-8"))]
        elif path.suffix == ".py" and path.parts[0] in MESSAGES:
            source = (ROOT / path).read_text("utf-8")
            texts = [*texts_of(source)] if BEGINS.search(source) else []  # parsing all modules takes seconds
        else:
            continue
        for text in texts:
            lines = TYPED.findall(text) if path.parts[0] == "benchmarks" else []
            for command in (*inline(text), *INSTALL.findall(text), *lines):
                found.setdefault(command, set()).add(str(path))
    return found


MENTIONED = mentioned()
"""The commands in sentences, each with the files that contain it."""
