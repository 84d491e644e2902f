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
        """What ``function(*args)`` returns or raises. Always a checkpoint."""
        ...


class ThreadBlocking:
    """Blocking work in threads, at most ``threads`` at once.

    Cancelling waits for the function to end, so that a file is never written by two threads.
    """

    __slots__ = ("_limiter",)

    def __init__(self, threads: int = 8) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises, from a thread. Always a checkpoint."""
        return await trio.to_thread.run_sync(function, *args, limiter=self._limiter)


class InlineBlocking:
    """Blocking work in the caller's own task, for simulated runs, where no thread may be touched."""

    __slots__ = ()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What ``function(*args)`` returns or raises. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        return function(*args)
