"""What to do about the errors that a spider's callbacks get from Python and do not explain.

A callback that lacks its argument, a forgotten ``await``, a generator that is yielded instead of what it gives, a
library of asyncio: Python's own words for these name neither the line to change nor the change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from trawl.tracebacks import is_own, own_frames

__all__ = ["WrongOutput", "advice", "frame_of"]

ASYNCIO = (
    "a crawl runs on Trio, where asyncio does not work: use trio.sleep() and Trio's other functions instead, or a"
    " library that runs on Trio"
)
AWAIT = "an `await` is missing before the call that gave the coroutine"
ASYNC_FOR = "an async generator is read with `async for`"


class WrongOutput(TypeError):
    """A callback, or ``start()``, gave what is neither a request nor an item."""

    def __init__(self, output: object) -> None:
        super().__init__(
            "a callback, and start(), give requests, items (dict, dataclass, attrs, pydantic, msgspec) or None,"
            f" not {type(output).__name__}: {output!r:.100}{_remedy(output)}"
        )

    def told(self, result: object) -> TypeError:
        """The error for the user, with the line of ``result``, the generator that gave it and is not closed yet."""
        frame = frame_of(result)
        if frame is None or not is_own(frame.f_code.co_filename):
            return TypeError(str(self))
        return TypeError(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: {self}")


def frame_of(result: Any) -> FrameType | None:
    """The innermost frame at which a generator has stopped, of any kind; None where there is none."""
    while (inner := getattr(result, "gi_yieldfrom", None)) is not None and hasattr(inner, "gi_frame"):
        result = inner
    frame: FrameType | None = getattr(result, "gi_frame", None) or getattr(result, "ag_frame", None)
    return frame


def advice(error: BaseException, callback: Callable[..., object] | None) -> str:
    """What to do about an error of a callback, with the file and the line; "" where its own words and place suffice.

    Args:
        error: What it raised.
        callback: The method, or function, that was called.
    """
    frames = own_frames(error)
    if not frames and callback is not None:
        return _uncallable(callback) if isinstance(error, TypeError) else _absent(callback, error)
    if not frames:
        return ""
    words = str(error)
    said = ""
    if "no running event loop" in words or "asyncio" in words:
        said = ASYNCIO
    elif isinstance(error, AttributeError | TypeError):
        if "'coroutine' object" in words:
            said = AWAIT
        elif "'async_generator' object" in words or "async_generator can't be used in 'await'" in words:
            said = ASYNC_FOR
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: {said}" if said else ""


def _uncallable(callback: Callable[..., object]) -> str:
    """Where a callback is written that takes no response; "" for one that does."""
    try:
        inspect.signature(callback).bind_partial(None)
    except TypeError:
        name = getattr(callback, "__name__", "it")
        first = "self, " if hasattr(callback, "__self__") else ""
        return f"{_place_of(callback)}: {name}() is called with the response: def {name}({first}response)"
    except ValueError:  # a function of C
        return ""
    return ""


def _place_of(callback: Callable[..., object]) -> str:
    """``FILE:LINE`` where a callback is written; "" where that is not known."""
    code = getattr(inspect.unwrap(getattr(callback, "__func__", callback)), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""


def _absent(callback: Callable[..., object], error: BaseException) -> str:
    """Where the spider is written that has no ``parse()``; "" for any other error."""
    kind = type(getattr(callback, "__self__", None))
    if not isinstance(error, NotImplementedError) or not is_own(file := inspect.getsourcefile(kind) or ""):
        return ""
    return f"{Path(file).name}:{inspect.getsourcelines(kind)[1]}: {error}"


def _remedy(output: object) -> str:
    if inspect.isgenerator(output) or isinstance(output, list | tuple):
        return ": `yield from` it, or in an async callback yield each of it in a `for` loop"
    if inspect.isasyncgen(output):
        return ": yield each of it in an `async for` loop"
    if inspect.iscoroutine(output):
        return ": `await` it"
    return ""
