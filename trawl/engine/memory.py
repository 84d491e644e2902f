"""How much memory this process holds, on the systems that tell it without further libraries."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["MEBIBYTE", "held_bytes"]

MEBIBYTE = 1024 * 1024
_STATM = Path("/proc/self/statm")  # proc(5): the second figure is the resident set, in pages


def held_bytes() -> int | None:
    """The process's resident set, in bytes: now on Linux, the largest so far on other Unixes; None where none tells."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _largest_bytes()


def _largest_bytes() -> int | None:
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # getrusage(2): bytes there, kibibytes elsewhere
