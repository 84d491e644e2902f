"""The user's own files, apart from those of trawl, of Python and of installed packages."""

from __future__ import annotations

import sysconfig
from pathlib import Path

__all__ = ["is_user_file"]

_OURS = Path(__file__).parent
_FOREIGN = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},)


def is_user_file(filename: str) -> bool:
    """Return True for a Python file of the user's: not trawl's, not Python's, not installed."""
    path = _OURS.parent / filename  # a compiled module's file is given from there: trawl/engine/worker.py
    return path.suffix == ".py" and _OURS not in path.parents and not any(filename.startswith(f) for f in _FOREIGN)
