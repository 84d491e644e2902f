"""SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first signal drains all running crawls, the second cancels them.

A signal can arrive between any two instructions of the main thread. So the handler only passes the signal to Trio's
loop, which processes it in the next iteration:

====================================  ================================================================
when it is processed                  effect
====================================  ================================================================
before the crawl has started          the crawl ends when it starts, without sending anything
while the crawl runs                  the crawl drains: nothing new is sent (``SHUTDOWN_TIMEOUT``)
while the crawl is ending             the crawl is cancelled. A second SIGHUP is ignored, because the
                                      kernel and the shell may both send it when a terminal is closed
====================================  ================================================================

While a callback computes, the loop can't process signals. If a signal arrives and an earlier signal was not processed
for :data:`DEAF` seconds, ``KeyboardInterrupt`` is raised in the running code. It is also raised if no loop runs, for
example while a spider is loaded. The handlers stay until the crawl has closed everything.

The first process of a container has no default actions for signals (signal(7)), so without a handler SIGTERM has no
effect there. Therefore these handlers are set before the spider is loaded. If SIGHUP is ignored at the start, it stays
ignored, because nohup(1) starts commands in this way.
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
"""Seconds after which a loop that has not processed a signal is treated as blocked."""

_HANGUP: int = getattr(signal, "SIGHUP", -1)  # Windows has no SIGHUP


class Signals:
    """Context manager that handles signals for the crawls of a program. Put it around ``trio.run``.

    Outside the main thread it does nothing, because only the main thread receives signals.

    Args:
        deaf: Seconds after which a loop that has not processed a signal is treated as blocked.
    """

    def __init__(self, deaf: float = DEAF) -> None:
        self._deaf = deaf
        self._previous: dict[int, Any] = {}
        self._crawls: list[Crawl] = []
        self.has_heard: bool = False  # True if a signal was received that ends crawls
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
        """Register a crawl, so that signals end it. If a signal was already received, cancel the crawl now."""
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
                "%s: sending nothing new, waiting for %d in flight%s; send it again to stop at once",
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
    """End a crawl on signals. A watcher. Uses the :class:`Signals` of the program, or a new one if there is none."""
    around = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(around, Signals):
        around.attach(crawl)
        return
    with Signals() as own:
        own.attach(crawl)
        await trio.sleep_forever()
