"""User files: how they are recognized, and whether a user file is being imported for its spiders."""

from __future__ import annotations

import sysconfig
from contextvars import ContextVar
from pathlib import Path

__all__ = ["is_imported_for_spiders", "is_user_file"]

is_imported_for_spiders: ContextVar[bool] = ContextVar("is_imported_for_spiders", default=False)
"""Whether the command imports a file to find its spiders. A crawl that the file starts then does nothing, because a
script without ``if __name__ == "__main__"`` would otherwise crawl when it is only checked.
"""

_OURS = Path(__file__).parent
_FOREIGN = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},)


def is_user_file(filename: str) -> bool:
    """Return True for a Python file that is not part of trawl, Python or an installed package."""
    path = _OURS.parent / filename  # the file of a compiled module is relative: trawl/engine/worker.py
    return path.suffix == ".py" and _OURS not in path.parents and not any(filename.startswith(f) for f in _FOREIGN)
