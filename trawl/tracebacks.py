"""Errors in the user's code: its lines in a traceback, apart from those of trawl, of libraries and of Python.

An error that a user's class or module raises while it is made becomes one sentence with the class, the innermost of the
user's lines and the error; :func:`user_frames` returns the other lines.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from trawl import lazy_compat
from trawl.errors import PartLoadError, TrawlError, WrittenForScrapy

__all__ = [
    "check_part_imports",
    "describe_error",
    "is_user_file",
    "user_code",
    "user_frames",
    "user_place",
    "user_traceback",
]

logger: logging.Logger = logging.getLogger("trawl")

_OURS = Path(__file__).parent
_FOREIGN = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the user's lines in the traceback of ``error``, the innermost last."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]


def user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of ``error`` reduced to the user's lines, or all of it if it has none."""
    kept: TracebackType | None = None
    steps: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    for step in reversed(steps):
        if is_user_file(step.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return kept or error.__traceback__


def user_place(error: BaseException) -> str:
    """Return ``FILE, line N`` of the innermost of the user's lines; "" if there is none."""
    frames = user_frames(error)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def describe_error(error: BaseException) -> str:
    """Return an error's class and the first line of its message."""
    words = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn errors of the user's code inside the block into one sentence; others pass unchanged.

    Args:
        what: The start of the sentence, "ITEM_PIPELINES: shop.Price can't be made".

    Raises:
        PartLoadError: The user's code raised; the error is the cause.
        WrittenForScrapy: It imports Scrapy, which is not installed.
    """
    try:
        yield
    except TrawlError:
        raise
    except Exception as error:
        if said := lazy_compat.hint(error):
            raise WrittenForScrapy(f"{what}: {said}", said.places) from error
        if where := user_place(error):
            raise PartLoadError(f"{what}: {where}: {describe_error(error)}") from error
        raise


def check_part_imports(found: object, what: str) -> None:
    """Refuse a user's part that imports Twisted; log what to change in one that imports Scrapy.

    With both installed beside trawl the part can be made. But Twisted's reactor does not run, so that a Deferred never
    fires, and Scrapy's own classes (``DropItem``, requests) mean nothing to trawl.

    Args:
        found: The part's class or function.
        what: The setting and the part, "ITEM_PIPELINES: shop.Price".

    Raises:
        WrittenForScrapy: It imports Twisted; the message says what to write instead.
    """
    file = getattr(sys.modules.get(getattr(found, "__module__", "")), "__file__", None) or ""
    if not file or _OURS in Path(file).parents:
        return
    if (said := lazy_compat.hint_of_file(file, is_whole=False)) and said.is_of_twisted:
        raise WrittenForScrapy(f"{what}: {said}", said.places)
    if "scrapy" in sys.modules and (said := lazy_compat.hint_of_file(file)):
        logger.warning("%s: %s", what, said)


def is_user_file(filename: str) -> bool:
    """Return True for a Python file of the user's: not trawl's, not Python's, not installed."""
    path = _OURS.parent / filename  # a compiled module's file is given from there: trawl/engine/worker.py
    return path.suffix == ".py" and _OURS not in path.parents and not any(filename.startswith(f) for f in _FOREIGN)
