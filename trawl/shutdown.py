"""SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first one drains a crawl, the second cancels it; of several, all.

A signal comes between any two instructions of the main thread, so its handler only hands it to
Trio's loop, which hears it at its next turn:

====================================  ================================================================
when it is heard                      what it does
====================================  ================================================================
before the crawl has begun            the crawl ends as it begins, having sent nothing
while the crawl runs                  it drains: nothing new is sent (``SHUTDOWN_TIMEOUT``)
while it is ending                    it is cancelled; SIGHUP is not heard twice, because a terminal that
                                      is closed may send it twice, once by the kernel, once by the shell
====================================  ================================================================

A callback that computes for ever keeps the loop from hearing anything. A signal that comes when an earlier one was not
heard for :data:`DEAF` seconds is raised where the program is, as ``KeyboardInterrupt``; so is one that comes when no
loop runs, while a spider is loaded, say. The handlers stay until the crawl has closed all that it had open.

The first process of a container has no default actions for signals (signal(7)): without a handler SIGTERM does nothing
there. So these handlers are in place before the spider is loaded. SIGHUP is left alone where it is ignored: that is
what nohup(1) does.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

import trio

from trawl.engine import Crawl

__all__ = ["DEAF", "Signals", "heed_signals"]

logger: logging.Logger = logging.getLogger("trawl")

DEAF = 1.0
"""Seconds after which a loop that has not heard a signal is taken for deaf."""

_HANGUP: int = getattr(signal, "SIGHUP", -1)  # Windows has none


class Signals:
    """Handles signals for the crawls of a program: a context manager to put around ``trio.run``.

    Outside the main thread it does nothing: only that has signals.

    Args:
        deaf: Seconds after which a loop that has not heard a signal is taken for deaf.

    Attributes:
        has_heard: A signal has ended a crawl, or will.
    """

    def __init__(self, deaf: float = DEAF) -> None:
        self._deaf = deaf
        self._previous: dict[int, Any] = {}
        self._crawls: list[Crawl] = []
        self.has_heard: bool = False
        self._unheard = 0
        self._unheard_since = 0.0

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, _HANGUP):
                if number != _HANGUP or (_HANGUP > 0 and signal.getsignal(_HANGUP) is not signal.SIG_IGN):
                    self._previous[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def attach(self, crawl: Crawl) -> None:
        """Have signals end ``crawl`` too. A signal that came earlier ends it at once."""
        self._crawls.append(crawl)
        if self.has_heard:
            crawl.cancel()

    def _received(self, number: int, frame: FrameType | None) -> None:
        try:
            token = trio.lowlevel.current_trio_token()
            now = time.monotonic()
            if self._unheard and now - self._unheard_since >= self._deaf:
                self._unheard = 0
                raise KeyboardInterrupt
            if not self._unheard:
                self._unheard_since = now
            self._unheard += 1
            token.run_sync_soon(self._heard, number)
        except RuntimeError:  # no loop runs, or it has just ended
            raise KeyboardInterrupt from None

    def _heard(self, number: int) -> None:
        self._unheard = max(0, self._unheard - 1)
        self.has_heard = True
        running = [crawl for crawl in self._crawls if crawl.reason is None]
        if running:
            callbacks = sum(crawl.callbacks for crawl in self._crawls)
            logger.warning(
                "%s: sending nothing new, waiting for %d in flight%s; once more to stop at once",
                signal.Signals(number).name,
                sum(crawl.in_flight for crawl in self._crawls),
                f" and {callbacks} in callbacks" if callbacks else "",
            )
            for crawl in running:
                crawl.shutdown()
        elif number != _HANGUP:
            for crawl in self._crawls:
                crawl.cancel()


async def heed_signals(crawl: Crawl) -> None:
    """Let signals end a crawl: a watcher. Uses the :class:`Signals` around the program, or its own until the end."""
    around = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(around, Signals):
        around.attach(crawl)
        return
    with Signals() as own:
        own.attach(crawl)
        await trio.sleep_forever()
