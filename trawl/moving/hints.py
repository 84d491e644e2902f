"""From an import that failed to what the file that has it is to be changed to."""

from __future__ import annotations

import traceback
from pathlib import Path

from trawl.moving.imports import Change, changes
from trawl.moving.table import GUIDE

__all__ = ["hint", "hint_of_file"]

_OURS = Path(__file__).parents[1]


def hint(error: BaseException) -> str:
    """What to change where an import failed, as one sentence; "" where that has nothing to do with Scrapy.

    An import of trawl's counts where it looks for what only Scrapy has.
    """
    if not isinstance(error, ImportError):
        return ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and _OURS not in path.parents:
            found = _read(path)
            is_it = any(change.line == frame.lineno for change in found)
            return _sentence(path, found) if is_it else ""
    return ""


def hint_of_file(path: str) -> str:
    """What to change in the imports of a file that was written for Scrapy, as one sentence; "" if it has none."""
    found = _read(Path(path))
    return _sentence(Path(path), found) if found else ""


def _sentence(path: Path, found: list[Change]) -> str:
    told = "; ".join(f"line {change.line}: {change}" for change in found)
    return f"{path.name} is written for Scrapy: {told} ({GUIDE})"


def _read(path: Path) -> list[Change]:
    try:
        return changes(path.read_text("utf-8"), is_whole=True)
    except (OSError, SyntaxError, ValueError):
        return []
