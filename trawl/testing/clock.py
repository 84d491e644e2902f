"""The virtual time of a simulation: its clock, the order of its tasks, and the guard against real time.

The clock stops while a task can run, and jumps to the next timer when no task can run. Trio calls
``deadline_to_sleep_time`` only when no task is runnable, so this call makes the jump. :class:`trio.testing.MockClock`
first looks for tasks in :func:`trio.testing.wait_all_tasks_blocked`, which takes a fifth of the time of a simulated
crawl. Here such tasks wake only when no timer is left. The clock itself wakes the tasks that wait for a simulated
response, because a cancel scope for each exchange would take a tenth of the time.

Trio shuffles tasks that become runnable together, but a simulation must produce the same sends for the same seed, even
in a new process. Trio has two private switches for this, which Hypothesis uses through pytest-trio: one sorts a batch
of tasks before the shuffle, and the other is the random generator of the shuffle. Only this module changes and restores
them. They belong to the process: of simultaneous simulations, the first one's seed applies, and the last one restores
them.

While a real thread works for 20 ms, an hour of virtual time could pass. So a simulated crawl whose tasks, or the
threads that Trio starts for them, use a real socket, thread or process ends with an error. An audit hook of the
interpreter detects sockets, DNS lookups and new processes of any library (Python, "Audit events table"). It can't be
removed, so it is installed with the first simulation of a process. ``trio.to_thread.run_sync`` and
``threading.Thread.start`` are wrapped while a simulation runs. :class:`GuardInstrument` detects threads that Trio
starts in other ways, and crawls that wait forever: no event comes from outside, so if no task can run and no timer is
set, nothing will ever happen.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from types import FrameType, TracebackType
from typing import Any

import trio
import trio.to_thread

__all__ = [
    "Guard",
    "GuardInstrument",
    "NotSimulated",
    "Stuck",
    "VirtualClock",
    "guarded",
    "seeded_scheduling",
    "seeded_scheduling_here",
    "sleep_until",
]

_SORTED = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR = "_r"

_REQUEST = "trawl.engine.worker.Worker.run"
"""The name of the Trio tasks that run requests."""


@contextmanager
def seeded_scheduling(seed: int | str) -> Iterator[None]:
    """Run tasks in an order that depends only on ``seed``, for a ``trio.run`` inside the block."""
    held = _SchedulerState(seed)
    try:
        yield
    finally:
        held.put_back()


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """Run tasks in a seeded order inside a running Trio program, from the next batch on. Blocks may overlap."""
    held = _shared.get()
    if held is None:
        held = _SchedulerState(seed)
        _shared.set(held)
    held.blocks += 1
    try:
        yield
    finally:
        held.blocks -= 1
        if not held.blocks:
            _shared.set(None)
            held.put_back()


class _SchedulerState:
    """Sets the switches, and stores their previous state."""

    def __init__(self, seed: int | str) -> None:
        self._module, self._generator = _switches()
        self._was_sorted = getattr(self._module, _SORTED)
        self._was = self._generator.getstate()
        self.blocks = 0
        setattr(self._module, _SORTED, True)
        self._generator.seed(f"trawl:{seed}")
        vars(self._generator)["shuffle"] = self._shuffle

    def _shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Shuffle a batch, but run the tasks of requests in the order of their age. Trio runs a batch from its end."""
        if len(batch) < 2:
            return
        requests = reversed([task for task in batch if task.name == _REQUEST])
        random.Random.shuffle(self._generator, batch)
        batch[:] = [next(requests) if task.name == _REQUEST else task for task in batch]

    def put_back(self) -> None:
        vars(self._generator).pop("shuffle", None)
        setattr(self._module, _SORTED, self._was_sorted)
        self._generator.setstate(self._was)


_shared: trio.lowlevel.RunVar[_SchedulerState | None] = trio.lowlevel.RunVar("trawl_seeded_scheduling", None)


def _switches() -> tuple[object, random.Random]:
    """Return Trio's module with the switches, and its generator."""
    module = getattr(getattr(trio, "_core", None), "_run", None)
    generator = getattr(module, _GENERATOR, None)
    if not isinstance(getattr(module, _SORTED, None), bool) or not isinstance(generator, random.Random):
        raise RuntimeError(f"Trio {trio.__version__} has no private switches for tests: use an older version")
    return module, generator


START = 100_000.0
"""The time at which the clock starts, in seconds. It is large, so that a default of 0.0 is clearly in the past."""

NO_TIMER = 1e-6  # real seconds to sleep when no timer is set
JUMPS = 16  # look for real threads once in this many jumps


class VirtualClock(trio.abc.Clock):
    """A clock that starts at :data:`START`, and jumps to the next timer when no task can run."""

    __slots__ = ("_jumps", "_next", "_now", "_sleepers", "suspect")

    def __init__(self) -> None:
        # Called when no timer is set, and at some of the jumps, to check for errors
        self.suspect: Callable[[], None] | None = None
        self._now: float = START
        self._jumps = 0
        # A heap of entries: a time, a number, and a list with a task. The list is empty if the task was cancelled.
        self._sleepers: list[tuple[float, int, list[trio.lowlevel.Task]]] = []
        self._next = count().__next__

    def start_clock(self) -> None:
        """Do nothing, because the clock needs no start."""

    def current_time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to ``deadline``, or to the time of the first sleeper if earlier. Returns the real seconds to sleep."""
        sleepers = self._sleepers
        at = min(deadline, sleepers[0][0]) if sleepers else deadline
        self._jumps += 1
        if self.suspect is not None and (at == math.inf or not self._jumps % JUMPS):
            self.suspect()
        if at == math.inf:
            return NO_TIMER
        self._now = max(self._now, at)
        while sleepers and sleepers[0][0] <= self._now:
            for task in heappop(sleepers)[2]:
                trio.lowlevel.reschedule(task)
        return 0.0

    async def sleep_until(self, at: float) -> None:
        """Sleep until the time ``at``, like :func:`trio.sleep_until`. A checkpoint."""
        if at <= self._now:
            await trio.lowlevel.checkpoint()
            return
        sleeping = [trio.lowlevel.current_task()]
        heappush(self._sleepers, (at, self._next(), sleeping))

        def wake(_: object) -> trio.lowlevel.Abort:
            sleeping.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(wake)


async def sleep_until(at: float) -> None:
    """Sleep until the time ``at`` on the clock of this Trio program. A checkpoint."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, VirtualClock):
        await clock.sleep_until(at)
    else:
        await trio.sleep_until(at)


_EVENTS = {
    "socket.__new__": "a real socket",
    "socket.connect": "a real connection",
    "socket.bind": "a real socket",
    "socket.getaddrinfo": "a real DNS lookup",
    "socket.gethostbyname": "a real DNS lookup",
    "socket.gethostbyaddr": "a real DNS lookup",
    "subprocess.Popen": "a real process",
    "os.fork": "a real process",
    "os.posix_spawn": "a real process",
    "os.system": "a real process",
}

_TRIED_AT_IMPORT = {"socket.__new__", "socket.bind"}
"""Events that are allowed during an import, because some libraries test sockets when they are imported."""

_active: ContextVar[Guard | None] = ContextVar("trawl_simulation_guard", default=None)
_wrapped: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("trawl_guards", 0)


class NotSimulated(RuntimeError):
    """A simulated crawl tried to use a real socket, thread or process."""


class Guard:
    """Ends one simulated crawl after an error."""

    __slots__ = ("error", "scope")

    def __init__(self) -> None:
        self.scope: trio.CancelScope = trio.CancelScope()  # the cancel scope of the crawl, cancelled at the first error
        # The first error: a refused use of real I/O, or an error that a handler raised; None if there was none
        self.error: Exception | None = None

    def refuse(self, what: str, detail: str = "") -> NotSimulated:
        """End the crawl, and return the error to raise. The crawl ends even if user code catches the error."""
        told = f"a simulated crawl would use {what}{f' ({detail})' if detail else ''}"
        error = NotSimulated(f"{told}: on the virtual clock everything must be simulated; put it on the SimulatedWeb")
        self.end(error)
        return error

    def end(self, error: Exception) -> None:
        """End the crawl with ``error``, unless it already has an error."""
        if self.error is None:
            self.error = error
            if trio.lowlevel.in_trio_run():
                self.scope.cancel()


@contextmanager
def guarded() -> Iterator[Guard]:
    """Refuse real I/O by code that runs or is started inside the block. Must be used in a Trio program.

    Raises NotSimulated at the end of the block if real I/O was refused, even if user code has caught the error, or the
    error of a handler that ended the crawl.
    """
    _install_hook()
    guard = Guard()
    token = _active.set(guard)
    try:
        with _threads_refused(), guard.scope:
            yield guard
    except BaseException as error:
        if guard.error is not None and isinstance(error, Exception):
            raise guard.error from None  # noqa: ASYNC104 - the replaced error is an Exception
        raise
    finally:
        _active.reset(token)
    if guard.error is not None:
        raise guard.error


@functools.cache
def _install_hook() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    what = _EVENTS.get(event)
    if what is None or (guard := _active.get()) is None or (event in _TRIED_AT_IMPORT and _is_importing()):
        return
    address = next((each for each in arguments if isinstance(each, str | bytes | tuple) and each), "")
    raise guard.refuse(what, str(address) if event.startswith(("socket.connect", "socket.get")) else "")


def _is_importing() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


@contextmanager
def _threads_refused() -> Iterator[None]:
    """Wrap both functions that start threads. The last guard of this Trio run unwraps the functions."""
    _wrapped.set(_wrapped.get() + 1)
    if _wrapped.get() == 1:
        _rebind(trio.to_thread.run_sync, _async_refusing(trio.to_thread.run_sync))
        threading.Thread.start = _refusing(threading.Thread.start)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        _wrapped.set(_wrapped.get() - 1)
        if not _wrapped.get():
            _rebind(trio.to_thread.run_sync, inspect.unwrap(trio.to_thread.run_sync))
            threading.Thread.start = inspect.unwrap(threading.Thread.start)  # type: ignore[method-assign]


_WITH_RUN_SYNC = tuple(
    module
    for name, module in sorted(sys.modules.items())
    if name.partition(".")[0] == "trio" and getattr(module, "run_sync", None) is trio.to_thread.run_sync
)
"""Trio's modules that start threads: ``trio.Path`` has its own reference to the function."""


def _rebind(run_sync: object, replaced: object) -> None:
    """Replace ``run_sync`` in all of Trio's modules."""
    for module in _WITH_RUN_SYNC:
        if module.run_sync is run_sync:
            module.run_sync = replaced  # type: ignore[attr-defined]


def _async_refusing(run_sync: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_sync)
    async def refusing(sync_fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if (guard := _active.get()) is not None:
            raise guard.refuse("a real thread", getattr(sync_fn, "__qualname__", repr(sync_fn)))
        return await run_sync(sync_fn, *args, **options)

    return refusing


def _refusing(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def refusing(thread: threading.Thread) -> None:
        if (guard := _active.get()) is not None:
            raise guard.refuse("a real thread", thread.name)
        start(thread)

    return refusing


THREAD_TURNS, STUCK_TURNS = 16, 256  # check once in this many iterations of Trio's loop (50 per ms)


class Stuck(RuntimeError):
    """A simulated crawl waits for something that will never happen."""


class GuardInstrument(trio.abc.Instrument):
    """Ends a simulated crawl that waits forever or uses a thread, through its guard. A context manager around it."""

    def __init__(self, guard: Guard) -> None:
        from trio.testing import active_thread_count  # noqa: PLC0415 - it loads pytest

        self.is_stuck: bool = False  # whether every task waited while no timer was set
        self._guard = guard
        self._count_threads = active_thread_count
        self._turns = 0
        self._clock: VirtualClock | None = None

    def __enter__(self) -> GuardInstrument:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, VirtualClock):
            self._clock = clock
            clock.suspect = self._look
        else:
            trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock is None:
            trio.lowlevel.remove_instrument(self)
        else:
            self._clock.suspect = None

    def _look(self) -> None:
        """Install the instrument for one loop iteration only. If it always ran, it would take 2 % of a page's time."""
        self._look_for_threads()
        trio.lowlevel.add_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Check the state of all tasks."""
        if self._clock is not None:
            trio.lowlevel.remove_instrument(self)
            if timeout > 0.0:
                self._look_whether_stuck()
            return
        self._turns += 1
        if self._turns % THREAD_TURNS:
            return
        self._look_for_threads()
        if not self._turns % STUCK_TURNS:
            self._look_whether_stuck()

    def _look_for_threads(self) -> None:
        if self._count_threads() and self._guard.error is None:
            self._guard.refuse("a real thread")

    def _look_whether_stuck(self) -> None:
        now = trio.lowlevel.current_statistics()
        if not now.tasks_runnable and now.seconds_to_next_deadline == math.inf:
            self.is_stuck = True
            self._guard.scope.cancel()

    def check(self) -> None:
        """Raise :class:`Stuck` if every task waited while no timer was set."""
        if self.is_stuck:
            raise Stuck("the simulated crawl can't continue: every task waits, and no timer is set")
