"""The one seam for work that blocks: files, SQLite, name look-ups.

A real run sends it to a thread under a limiter of our own, so that a name server that hangs cannot take the threads of
whatever else runs in this Trio program. A simulated run does it inline: under an autojumping ``MockClock`` a thread of
20 ms lets an hour of virtual time pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

__all__ = ["Blocking", "InlineBlocking", "ThreadBlocking"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Blocking(Protocol):
    """How a crawl runs a function that blocks."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises. Always a checkpoint.

        Cancelling waits for the function to end, so that a file is never written by two threads.
        """
        ...

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """The same for a function that holds nothing, such as a name look-up. Always a checkpoint.

        Cancelling leaves it to its thread: a name server that is gone must not hold up timeouts or the crawl's end.
        """
        ...


MAX_ABANDONED = 256
"""Threads of abandonable functions, those that nobody waits for any more included."""


class ThreadBlocking:
    """Blocking work in threads, at most ``threads`` at once, and as many abandonable functions beside them.

    Each has a limiter of its own: hung look-ups take no thread from the files. One that was abandoned makes room for
    the next one, up to :data:`MAX_ABANDONED` threads: a name server that does not answer about some names must not
    keep the others from being asked for.
    """

    __slots__ = ("_abandonable", "_limiter", "_waited_for")

    def __init__(self, threads: int = 16) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._waited_for = trio.CapacityLimiter(threads)
        self._abandonable = trio.CapacityLimiter(MAX_ABANDONED)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises, from a thread. Always a checkpoint."""
        return await trio.to_thread.run_sync(function, *args, limiter=self._limiter)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises, from a thread that a cancel leaves. Always a checkpoint."""
        async with self._waited_for:
            return await trio.to_thread.run_sync(function, *args, limiter=self._abandonable, abandon_on_cancel=True)


class InlineBlocking:
    """Blocking work in the caller's own task, for simulated runs, where no thread may be touched."""

    __slots__ = ()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises. Always a checkpoint."""
        return await self.run(function, *args)
