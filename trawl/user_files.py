"""Recognition of user files, which are not part of trawl, Python or an installed package."""

from __future__ import annotations

import sysconfig
from pathlib import Path

__all__ = ["is_user_file"]

_OURS = Path(__file__).parent
_FOREIGN = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},)


def is_user_file(filename: str) -> bool:
    """Return True for a Python file that is not part of trawl, Python or an installed package."""
    path = _OURS.parent / filename  # the file of a compiled module is relative: trawl/engine/worker.py
    return path.suffix == ".py" and _OURS not in path.parents and not any(filename.startswith(f) for f in _FOREIGN)
