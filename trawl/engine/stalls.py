"""Notices a callback that blocks: while it does, the whole crawl stands still.

A task notes that Trio's loop goes round; a thread looks whether it still does. Where it does not, the thread reads from
the frames of the loop's own thread which line of the user's holds it up, and says so, once a line.

Only :mod:`trawl._run`, and the command for several crawls, start it: a simulated crawl, on its virtual clock, has no
use for a thread that looks at a real one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import trio

from trawl.tracebacks import is_user_file

if TYPE_CHECKING:
    from trawl.engine.crawl import Crawl

__all__ = ["STALL", "report_stalls"]

logger: logging.Logger = logging.getLogger("trawl.engine")

STALL = 2.0
"""Seconds for which Trio's loop may stand still before that is told."""

MAX_TOLD = 10
"""Lines that are told of in one crawl."""


async def report_stalls(crawl: Crawl | None = None, stall: float = STALL) -> None:
    """Warn of the user's lines that hold up the crawl: a watcher of real crawls, until it is cancelled.

    Args:
        crawl: The crawl, as every watcher is given it; None: whatever crawls run.
        stall: Seconds after which a stop is told.
    """
    watch = _Watch(threading.get_ident(), stall)
    async with trio.open_nursery() as nursery:
        limiter = trio.CapacityLimiter(1)
        # Abandoned at the end of the crawl, which need not wait for the thread's next look.
        nursery.start_soon(partial(trio.to_thread.run_sync, watch.run, abandon_on_cancel=True, limiter=limiter))
        try:
            while True:
                watch.beat = time.monotonic()
                await trio.sleep(stall / 4)
        finally:
            watch.is_over.set()


class _Watch:
    """The thread's side.

    Attributes:
        beat: When the loop went round last, on the machine's monotonic clock.
        is_over: The crawl has ended.
    """

    def __init__(self, ident: int, stall: float) -> None:
        self._ident = ident
        self._stall = stall
        self._told: set[str] = set()
        self.beat: float = time.monotonic()
        self.is_over = threading.Event()

    def run(self) -> None:
        """Look four times in the time that is told, until the crawl has ended."""
        while not self.is_over.wait(self._stall / 4):
            if time.monotonic() - self.beat >= self._stall and len(self._told) < MAX_TOLD:
                self._tell()

    def _tell(self) -> None:
        own = _inside_the_loop(sys._current_frames().get(self._ident))
        if own is None:
            return
        place = f"{Path(own.filename).name}:{own.lineno}"
        if place in self._told:
            return
        self._told.add(place)
        logger.warning(
            "%s: `%s` holds up the whole crawl, for %g s by now: await trio.sleep() or self.fetch() instead, or have a"
            " thread do it: await self.crawl.blocking.run(function, argument)",
            place, own.line, self._stall,
        )  # fmt: skip


def _inside_the_loop(frame: FrameType | None) -> traceback.FrameSummary | None:
    """The innermost line of the user's that a task of Trio's is at; None where there is none, or a debugger waits."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("trio._core._run") or name in ("bdb", "pdb"):
            return None
        if is_user_file(frame.f_code.co_filename):
            return traceback.extract_stack(frame, limit=1)[0]
        frame = frame.f_back
    return None
