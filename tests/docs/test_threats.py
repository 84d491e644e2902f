"""Each claim of the page on threats names a test that there is; so does the table of short and long forms."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threats.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_claim_names_a_test_that_exists() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) >= 30
    assert missing(named) == []


def test_short_and_long_forms_exist() -> None:
    named = NAMED.findall((ROOT / "docs" / "contributing.md").read_text(encoding="utf-8"))
    assert len(named) >= 10
    assert missing(named) == []


def missing(named: list[tuple[str, str]]) -> list[str]:
    """Those of the named tests that there are not."""
    found = []
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8")) if (ROOT / file).exists() else ast.Module([], [])
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if name not in {node.name for node in tree.body if isinstance(node, kinds)}:
            found.append(f"{file}::{name}")
    return found


def test_every_row_of_claims_has_its_proof() -> None:
    tables = re.findall(r"\| Claim \| Proved by \|\n\|--\|--\|\n((?:\|.*\n)+)", PAGE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 20
    assert [row for row in rows if not NAMED.search(row)] == []
