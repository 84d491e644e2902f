"""Something wrong in a spider, and where."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

__all__ = ["Finding"]


@attrs.frozen(order=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        path: The file; absolute, or as it was named.
        line: The line in it, from 1.
        message: What is wrong, in one sentence.
    """

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        shown = self.path
        if Path(shown).is_absolute():
            near = os.path.relpath(shown)
            shown = shown if near.startswith("..") else near
        return f"{shown}:{self.line}: {self.message}"
