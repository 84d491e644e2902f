"""What is read back, from a job, a cache or a feed, is never run: the package has no way to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "trawl"

RUNS_WHAT_IT_READS = {"cloudpickle", "copyreg", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}

RUNS = {"eval", "exec", "compile", "__import__"}

SUSPECT = re.compile(rf"\b({'|'.join(RUNS_WHAT_IT_READS | RUNS)})\b")

MAY_RUN_CODE = {"cli/shell.py", "cli/move.py"}
"""Modules that run what their user types, or the settings of their user's own project."""

ONLY_WRITES = {"exporters.py": {"dumps"}}
"""Modules that write pickles for their user, and what they use of pickle and marshal for it: nothing that reads."""


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_module_unpickles_or_evaluates() -> None:
    looked_at = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        looked_at += 1
        if SUSPECT.search(text):
            tree = ast.parse(text)
            if (name := relative(path)) in ONLY_WRITES:
                assert set(used(tree)) == ONLY_WRITES[name], name
            else:
                assert set(imported(tree)) & RUNS_WHAT_IT_READS == set(), name
            assert relative(path) in MAY_RUN_CODE or set(called(tree)) & RUNS == set(), relative(path)
    assert looked_at > 100


def imported(tree: ast.Module) -> Iterator[str]:
    """The top-level names of all that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def used(tree: ast.Module) -> Iterator[str]:
    """What a module uses of those that run what they read; a name imported from one of them is "from"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in RUNS_WHAT_IT_READS:
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RUNS_WHAT_IT_READS:
            yield "from"


def called(tree: ast.Module) -> Iterator[str]:
    """The plain names that a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_what_would_run_code_is_found() -> None:
    tree = ast.parse("def f():\n    from pickle import loads\n    eval(loads(b''))")
    assert set(imported(tree)) & RUNS_WHAT_IT_READS == {"pickle"}
    assert set(called(tree)) & RUNS == {"eval"}
    assert SUSPECT.search("import yaml")
