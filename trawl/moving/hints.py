"""From an import that failed to what the file that has it is to be changed to."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import attrs

from trawl.moving.imports import Change, changes
from trawl.moving.table import GUIDE

__all__ = ["Hint", "hint", "hint_of_file"]

_OURS = Path(__file__).parents[1]


@attrs.frozen
class Hint:
    """What to change in a file that was written for Scrapy; its text is one sentence.

    Attributes:
        path: The file.
        changes: What to change in it, in the order of its lines.
    """

    path: Path
    changes: Sequence[Change]

    def __str__(self) -> str:
        told = "; ".join(f"line {change.line}: {change}" for change in self.changes)
        return f"{self.path.name} is written for Scrapy: {told} ({GUIDE})"

    @property
    def places(self) -> tuple[tuple[str, int, str], ...]:
        """The file, the line and the words of each change."""
        return tuple((str(self.path), change.line, str(change)) for change in self.changes)


def hint(error: BaseException) -> Hint | None:
    """What to change where an import failed; None where that has nothing to do with Scrapy.

    An import of trawl's counts where it looks for what only Scrapy has.
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


def hint_of_file(path: str) -> Hint | None:
    """What to change in the imports of a file that was written for Scrapy; None if it has none of them."""
    found = _read(Path(path))
    return Hint(Path(path), found) if found else None


def _read(path: Path) -> list[Change]:
    try:
        return changes(path.read_text("utf-8"), is_whole=True)
    except (OSError, SyntaxError, ValueError):
        return []
