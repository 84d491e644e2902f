"""All examples together: each file has its spiders, under names of their own, and each is shown in the reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trawl.cli.list import find_spiders


def test_trawl_check_finds_nothing_wrong_with_any_of_them(examples: Path) -> None:
    command = [sys.executable, "-m", "trawl", "check", str(examples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=examples.parent, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("spiders: nothing wrong\n")


def test_their_spiders_can_be_run_by_name(examples: Path) -> None:
    names = [found.name for found in find_spiders(examples)[0]]
    assert len(names) > 25
    assert sorted(names) == sorted(set(names))


def test_each_is_shown_in_the_reference(examples: Path) -> None:
    page = (examples.parent / "docs" / "reference" / "examples.md").read_text("utf-8")
    files = [path.relative_to(examples) for path in sorted(examples.rglob("*.py")) if path.parent.name != "plugin"]
    assert [str(path) for path in files if f"{{literalinclude}} ../../examples/{path}\n" not in page] == []
    assert [str(path) for path in files if f"# {path}\n" not in page] == []
