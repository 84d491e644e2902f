"""Whose lines an error came through: the user's own code is told from trawl's, from libraries and from Python itself.

What a user's class or module raises while it is made is the user's to mend: the one sentence that says so names the
class, the innermost of the user's lines and the error; :func:`user_frames` has the rest of the way.
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

from trawl.errors import PartLoadError, TrawlError, WrittenForScrapy
from trawl.migration import migration_hints

__all__ = [
    "describe_error",
    "is_user_file",
    "user_code",
    "user_frames",
    "user_place",
    "user_traceback",
    "warn_of_scrapy",
]

logger: logging.Logger = logging.getLogger("trawl")

_OURS = Path(__file__).parent
_FOREIGN = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The user's own lines that ``error`` came through, the innermost last."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]


def user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` with the user's own lines alone; all of it if there are none."""
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
    """``FILE, line N``: the innermost of the user's own lines; "" if it came through none."""
    frames = user_frames(error)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def describe_error(error: BaseException) -> str:
    """An error's class and the first line of what it says."""
    words = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Say in one line what the user's code raises inside the block; all other errors pass as they are.

    Args:
        what: What could not be done, "ITEM_PIPELINES: shop.Price can't be made".

    Raises:
        PartLoadError: The user's code raised; the error is the cause.
        WrittenForScrapy: It imports Scrapy, which is not there.
    """
    try:
        yield
    except TrawlError:
        raise
    except Exception as error:
        if said := migration_hints().hint(error):
            raise WrittenForScrapy(f"{what}: {said}", said.places) from error
        if where := user_place(error):
            raise PartLoadError(f"{what}: {where}: {describe_error(error)}") from error
        raise


def warn_of_scrapy(found: object, what: str) -> None:
    """Log what to change in the file of a user's part that imports Scrapy, where that is installed beside trawl.

    It can be made, but what it raises and gives of Scrapy's (``DropItem``, requests) means nothing here.

    Args:
        found: The part's class or function.
        what: The setting and the part, "ITEM_PIPELINES: shop.Price".
    """
    module = sys.modules.get(getattr(found, "__module__", ""))
    if "scrapy" in sys.modules and (said := migration_hints().hint_of_file(getattr(module, "__file__", None) or "")):
        logger.warning("%s: %s", what, said)


def is_user_file(filename: str) -> bool:
    """Whether a file of Python is the user's own: not trawl's, not Python's, not installed."""
    path = Path(filename)
    return path.suffix == ".py" and _OURS not in path.parents and not any(filename.startswith(f) for f in _FOREIGN)
