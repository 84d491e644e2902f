"""The promises of ``docs/reference/promises.toml`` and the tests that name them.

A test names a promise in its name (``test_a08_...``) or in a comment (``# A08``).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["groups", "ids_in_comments", "proofs"]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "reference" / "promises.toml"
ID = re.compile(r"(?<![A-Za-z0-9])[A-Z]\d{1,2}(?![A-Za-z0-9])")
CANDIDATE = re.compile(rf"def test_\w*(?<=_)[a-z]\d{{1,2}}(?=_|\b)|#.*{ID.pattern}")
ID_IN_NAME = re.compile(r"(?<=_)[a-z]\d{1,2}(?=_|$)")


def groups() -> Mapping[str, Mapping[str, str]]:
    """Return the promises by the title of their group and by their id, in the order of the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {group["title"]: group["promises"] for group in table["groups"]}


@cache
def proofs() -> dict[str, list[tuple[str, str]]]:
    """Return the tests that name each id, as file and name (``TestClass::test_name`` in a class), sorted."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not CANDIDATE.search(text):  # parsing every file would take seconds
            continue
        comments = ids_in_comments(text)
        for name, node in _tests(ast.parse(text), ""):
            ids = {one.upper() for one in ID_IN_NAME.findall(node.name)}
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                ids |= comments.get(line, set())
            for one in ids:
                found.setdefault(one, []).append((path.relative_to(ROOT).as_posix(), name))
    return found


def ids_in_comments(text: str) -> dict[int, set[str]]:
    """Return the ids in the comments of a module, by line."""
    if not re.search(rf"#.*{ID.pattern}", text):
        return {}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    return {line: set(ID.findall(comment)) for line, comment in comments.items()}


def _tests(
    tree: ast.Module | ast.ClassDef, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"{prefix}{node.name}", node
