"""Errors in user code: finds the lines of user code in a traceback, between lines of trawl, libraries and Python.

If user code fails while a class or module is loaded, the error becomes one sentence with the class, the innermost line
of user code and the error. :func:`user_frames` returns the other lines.
"""

from __future__ import annotations

import dis
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from trawl import scrapy_names
from trawl.errors import PartLoadError, TrawlError, WrittenForScrapy
from trawl.user_files import is_user_file

__all__ = [
    "UserExit",
    "blocking_line",
    "check_part_imports",
    "closes_generator",
    "contained",
    "contained_error",
    "describe_error",
    "user_code",
    "user_frames",
    "user_place",
    "user_traceback",
    "without_own_frames",
]

logger: logging.Logger = logging.getLogger("trawl")

_OURS = Path(__file__).parent


class UserExit(Exception):
    """User code raised an error that is not an ``Exception``, such as ``SystemExit`` by ``exit()``, or a Rust panic.

    The call failed and the crawl continues, as after any other exception in user code.
    """

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"exit() was called: {raised!r}" if isinstance(raised, SystemExit) else repr(raised))
        self.raised: BaseException = raised  # the original error


def contained_error(error: BaseException) -> Exception | None:
    """Return an error of user code as an ``Exception``, with its traceback.

    Returns None for ``Cancelled``, ``KeyboardInterrupt``, groups that contain one of these errors, and the
    ``GeneratorExit`` of a generator that is being closed. These must propagate.
    """
    if isinstance(error, Exception):
        return error.with_traceback(without_own_frames(error))
    if not isinstance(error, BaseExceptionGroup):
        # Recognize Trio's Cancelled by its module, because packages that must not import Trio call this function.
        is_trios = type(error).__module__.partition(".")[0] == "trio"
        if isinstance(error, KeyboardInterrupt) or is_trios or closes_generator(error):
            return None
        return UserExit(error).with_traceback(without_own_frames(error))
    found = [contained_error(each) for each in error.exceptions if not closes_generator(each)]
    kept = [each for each in found if each is not None]
    if len(kept) < len(found):
        return None
    # If no error remains, the group held only ``GeneratorExit``: a generator was closed at a yield inside its nursery.
    return (ExceptionGroup(error.message, kept) if kept else UserExit(error)).with_traceback(error.__traceback__)


def closes_generator(error: BaseException) -> bool:
    """Return True for the ``GeneratorExit`` that Python raises to close a generator or coroutine."""
    if not isinstance(error, GeneratorExit):
        return False
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    # Compiled modules of trawl have no bytecode to check.
    if step is None or step.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "trawl":
        return True
    return dis.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] in ("YIELD_VALUE", "RESUME", "SEND")


class _Contained:
    """Raises :func:`contained_error` for errors in the block. It is a class, because a generator would be slower.

    The traceback of the raised ``Exception`` starts at the first line of user code.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            error.__traceback__ = without_own_frames(error)
        elif error is not None and (failure := contained_error(error)) is not None:
            raise failure from None


contained: _Contained = _Contained()
"""Context manager around a call of user code, inside the ``try`` that handles its exceptions.

``SystemExit`` and other errors that are not an ``Exception`` are raised as a :class:`UserExit`, so that ``exit()`` in
user code only fails that call, like any other exception. Cancelled and KeyboardInterrupt propagate.
"""


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the lines of user code in the traceback of ``error``, innermost last."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]


def without_own_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of ``error``, from the first line of user code on; the whole traceback if it has none."""
    step = error.__traceback__
    while step is not None and not is_user_file(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return step or error.__traceback__


def user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of ``error`` with only the lines of user code; the whole traceback if it has none."""
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
    """Return ``FILE, line N`` of the innermost line of user code; "" if there is none."""
    frames = user_frames(error)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def describe_error(error: BaseException) -> str:
    """Return an error's class and the first line of its message."""
    words = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn errors of user code inside the block into one sentence that starts with ``what``.

    Raises PartLoadError with the error as its cause, or WrittenForScrapy if the code imports Scrapy, which is not
    installed. Errors of trawl propagate unchanged.
    """
    try:
        with contained:
            yield
    except TrawlError:
        raise
    except Exception as error:
        if said := scrapy_names.imports.hint(error):
            raise WrittenForScrapy(f"{what}: {said}", said.places) from error
        if where := user_place(error):
            raise PartLoadError(f"{what}: {where}: {describe_error(error)}") from error
        raise


def check_part_imports(found: object, what: str) -> None:
    """Raise WrittenForScrapy if a user component imports Twisted. Log what to change in one that imports Scrapy.

    If Scrapy and Twisted are installed, the component can be created. But Twisted's reactor does not run, so a Deferred
    never fires, and trawl does not know Scrapy's classes (``DropItem``, requests). ``what`` names the setting and the
    component.
    """
    file = getattr(sys.modules.get(getattr(found, "__module__", "")), "__file__", None) or ""
    if not file or _OURS in Path(file).parents:
        return
    if (said := scrapy_names.imports.hint_of_file(file, is_whole=False)) and said.is_of_twisted:
        raise WrittenForScrapy(f"{what}: {said}", said.places)
    if "scrapy" in sys.modules and (said := scrapy_names.imports.hint_of_file(file)):
        logger.warning("%s: %s", what, said)


def blocking_line(ident: int) -> traceback.FrameSummary | None:
    """Return the innermost line of user code that the loop's thread with the id ``ident`` executes.

    None if it executes no user code, or a debugger waits.
    """
    frame: FrameType | None = sys._current_frames().get(ident)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("trio._core._run") or name in ("bdb", "pdb"):
            return None
        if is_user_file(frame.f_code.co_filename):
            return traceback.extract_stack(frame, limit=1)[0]
        frame = frame.f_back
    return None
