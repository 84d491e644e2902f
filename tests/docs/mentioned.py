"""Finds the commands in sentences of pages, docstrings, comments, help texts and messages.

Commands in blocks of pages (:mod:`tests.docs.blocks`), in the examples of a command's help and in the first lines of
the example programs are not included, because they have other tests.
"""

from __future__ import annotations

import ast
import re
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
BEGINS = re.compile(rf"`(?:{PROGRAMS})\b|pip install '|^ {{4}}python ", re.M)
INSTALL = re.compile(r"pip install '[^']+'")
TYPED = re.compile(r"^ {4}((?:trawl|python|pytest|nox) (?:(?! {3})[^\n])+)", re.M)
TEXTS = {".md", ".service", ".svg", ".toml", ".yaml", ".yml"}
MESSAGES = ("trawl", "benchmarks", "docs", "examples", "noxfile.py", "hatch_build.py")
"""Paths whose Python strings are read."""


def inline(text: str) -> Iterator[str]:
    """Yield the commands that are literals in a string."""
    for _, command in INLINE.findall(text):
        yield " ".join(command.split())


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings of a module. In an f-string, a placeholder is shown as its expression."""
    nodes, inside = [*ast.walk(ast.parse(path.read_text("utf-8")))], set[int]()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside |= {*map(id, node.values)}
            yield "".join(filled_in(part) for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


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
            is_worth_it = BEGINS.search((ROOT / path).read_text("utf-8"))  # parsing all modules takes seconds
            texts = [*texts_of(ROOT / path)] if is_worth_it else []
        else:
            continue
        for text in texts:
            lines = TYPED.findall(text) if path.parts[0] == "benchmarks" else []
            for command in (*inline(text), *INSTALL.findall(text), *lines):
                found.setdefault(command, set()).add(str(path))
    return found


MENTIONED = mentioned()
"""The commands in sentences, each with the files that contain it."""
