"""The interface for all blocking work: files, SQLite, name lookups.

A real run uses threads with trawl's own limiter. Otherwise, lookups that wait for a dead name server could take all
threads from other code in the Trio program. A simulated run does the work inline, because an autojumping ``MockClock``
may advance an hour while a thread works for 20 ms.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

__all__ = ["Blocking", "InlineBlocking", "ThreadBlocking", "is_interrupted"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Blocking(Protocol):
    """Runs functions that block."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` and return its result. Always a checkpoint.

        Cancelling waits until the function ends, so that two threads never write to the same file.
        """

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function that holds no resources, such as a name lookup. Always a checkpoint.

        Cancelling leaves the function running in its thread, because a dead name server must not delay timeouts or the
        end of the crawl.
        """


MAX_ABANDONED = 256
"""Maximum number of threads for abandonable functions, including abandoned functions."""


class ThreadBlocking:
    """Runs blocking work in at most ``threads`` threads, and abandonable functions in as many other threads.

    The two kinds have separate limiters, so hanging lookups take no threads from file work. An abandoned function does
    not count toward its limit, so that lookups without a response do not block other lookups. But abandonable functions
    never have more than :data:`MAX_ABANDONED` threads.
    """

    __slots__ = ("_abandonable", "_callers", "_limiter")

    def __init__(self, threads: int = 16) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._callers = trio.CapacityLimiter(threads)
        self._abandonable = trio.CapacityLimiter(MAX_ABANDONED)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` in a thread and return its result. Always a checkpoint."""
        return await trio.to_thread.run_sync(function, *args, limiter=self._limiter)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` in a thread. Always a checkpoint. Cancelling abandons the thread."""
        async with self._callers:
            return await trio.to_thread.run_sync(function, *args, limiter=self._abandonable, abandon_on_cancel=True)


class InlineBlocking:
    """Blocking work in the caller's own task, for simulated runs, which must not use threads."""

    __slots__ = ()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` and return its result. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` and return its result. Always a checkpoint."""
        return await self.run(function, *args)


def is_interrupted() -> bool:
    """Return whether :class:`trawl.shutdown.Signals` has received a signal to end the program.

    A function that waits in a thread must check this, because signals do not reach threads.
    """
    around = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return getattr(around, "has_heard", False) is True
