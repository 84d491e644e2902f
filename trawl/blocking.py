"""The one seam for blocking work: files, SQLite, name lookups.

A real run does it in threads under a limiter of our own, so that a name server that hangs can't take the threads of
other code in this Trio program. A simulated run does it inline: under an autojumping ``MockClock`` a thread of 20 ms
lets an hour of virtual time pass.
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

        Cancelling waits for the function to end, so that a file is never written by two threads.
        """
        ...

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function that holds nothing, such as a name lookup. Always a checkpoint.

        Cancelling abandons it to its thread: a name server that is gone must not hold up timeouts or the crawl's end.
        """
        ...


MAX_ABANDONED = 256
"""Maximum number of threads of abandonable functions, the abandoned ones included."""


class ThreadBlocking:
    """Blocking work in threads, at most ``threads`` at once, and as many abandonable functions beside them.

    Each kind has a limiter of its own: hung lookups take no thread from the files. An abandoned function makes room for
    the next one, up to :data:`MAX_ABANDONED` threads: a name server that does not answer for some names must not keep
    others from being looked up.
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
        """Run ``function(*args)`` in a thread that cancelling abandons, and return its result. Always a checkpoint."""
        async with self._callers:
            return await trio.to_thread.run_sync(function, *args, limiter=self._abandonable, abandon_on_cancel=True)


class InlineBlocking:
    """Blocking work in the caller's own task, for simulated runs, where no thread may be touched."""

    __slots__ = ()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` and return its result. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run ``function(*args)`` and return its result. Always a checkpoint."""
        return await self.run(function, *args)


def is_interrupted() -> bool:
    """Return whether the program was asked to end: the :class:`trawl.shutdown.Signals` around it has heard a signal.

    A function that waits in a thread asks, because no signal reaches a thread.
    """
    around = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return getattr(around, "has_heard", False) is True
