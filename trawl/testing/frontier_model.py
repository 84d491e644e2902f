"""Compares a frontier with a plain model, as a Hypothesis state machine.

Only :mod:`trawl.testing.frontier_contract` imports this module. It is separate because Hypothesis is optional.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from functools import partial
from queue import Queue
from threading import Thread
from typing import Any, TypeVar, cast

import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.testing import MockClock

from trawl.frontier import Frontier, LaneKey, Record, SortKey
from trawl.http import Request

__all__ = ["FrontierModelTest", "compare"]

T = TypeVar("T")

HOSTS = ("a.example", "b.example", "c.example")

Store = Callable[[], AbstractContextManager[Callable[[], AbstractAsyncContextManager[Frontier]]]]


class _Model:
    """The expected content of a frontier."""

    def __init__(self) -> None:
        self.pending: dict[LaneKey, dict[SortKey, str]] = {}
        self.claimed: set[bytes] = set()
        self.stored: set[bytes] = set()

    def push(self, record: Record) -> None:
        self.pending.setdefault(record.lane, {})[_key(record)] = record.request.url

    def take(self, record: Record) -> None:
        lane = self.pending[record.lane]
        assert _key(record) == min(lane), "not the best of its lane"
        assert lane.pop(_key(record)) == record.request.url, "not the request that was pushed"
        if not lane:
            del self.pending[record.lane]

    def wrote(self, record: Record) -> None:
        if record.fingerprint is not None:
            self.claimed.discard(record.fingerprint)
            self.stored.add(record.fingerprint)


class FrontierModelTest(RuleBasedStateMachine):
    """Applies random steps to a frontier and to the model, and compares the two.

    ``store`` returns a context manager that creates an empty store, whose value opens a frontier. If it ``is_durable``,
    it is reopened from time to time.
    """

    leases: Bundle[Record] = Bundle("leases")

    def __init__(self, store: Store, *, is_durable: bool) -> None:
        super().__init__()
        self._is_durable = is_durable
        self._stack = ExitStack()
        self._opener = self._stack.enter_context(store())
        self._trio, self._nursery = self._stack.enter_context(_running())
        self._model = _Model()
        self._leased: dict[str, Record] = {}
        self._count = 0
        self._open()

    def teardown(self) -> None:
        """Close the frontier and its store."""
        self._close()
        self._stack.close()

    @rule(numbers=st.lists(st.integers(0, 12), max_size=5))
    def claim_and_push(self, numbers: list[int]) -> None:
        """Claim some fingerprints, push the new records, and release the other claims."""
        marks = [b"%16d" % number for number in numbers]
        known = self._model.claimed | self._model.stored
        expected = [mark not in known and mark not in marks[:i] for i, mark in enumerate(marks)]
        answers = self._run(self._frontier.claim_many, marks)
        told = [mark for mark, answer in zip(marks, answers, strict=True) if answer]
        fresh = [mark for mark, is_new in zip(marks, expected, strict=True) if is_new]
        assert len(told) == len(set(told))
        assert set(fresh) <= set(told) <= set(fresh) | self._model.stored - self._model.claimed
        self._push([self._record(mark, i % 3) for i, mark in enumerate(told[:2])])
        self._run(self._frontier.disclaim, told[2:])

    @rule(number=st.integers(13, 16))
    def claim_only(self, number: int) -> None:
        """Claim a fingerprint and keep it."""
        mark = b"%16d" % number
        is_new = mark not in self._model.claimed | self._model.stored
        assert self._run(self._frontier.claim_many, [mark]) == [is_new]
        self._model.claimed.add(mark)

    @rule(wanted=st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.sampled_from([0.0, 0.5])), max_size=8))
    def push(self, wanted: list[tuple[int, int, float]]) -> None:
        """Push records without fingerprints."""
        self._push([self._record(None, host, priority, share) for host, priority, share in wanted])

    @rule(target=leases, host=st.integers(0, 2), limit=st.integers(1, 5))
    def lease(self, host: int, limit: int) -> Any:
        """Lease from a lane. The records must be the best of the lane, in order, and as many as possible."""
        lane = _lane(HOSTS[host])
        there = len(self._model.pending.get(lane, ()))
        leased = self._run(self._frontier.lease_many, lane, limit)
        assert len(leased) == min(limit, there)
        for record in leased:
            self._model.take(record)
            self._leased[record.request.url] = record
        return multiple(*leased)

    @rule(lease=consumes(leases), wanted=st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2)), max_size=4))
    def acknowledge(self, lease: Record, wanted: list[tuple[int, int]]) -> None:
        """End a lease with some outputs."""
        if self._ours(lease):
            outputs = [self._record(None, host, priority) for host, priority in wanted]
            self._run(self._frontier.acknowledge, lease, outputs)
            for record in outputs:
                self._model.push(record)

    @rule(target=leases, lease=consumes(leases), host=st.integers(0, 2), priority=st.integers(-2, 2))
    def replace(self, lease: Record, host: int, priority: int) -> Any:
        """Replace a leased record with another record."""
        if not self._ours(lease):
            return multiple()
        successor = self._record(None, host, priority)
        if not self._run(self._frontier.replace, lease, successor):
            self._model.push(successor)
            return multiple()
        self._leased[successor.request.url] = successor
        return successor

    @rule(lease=consumes(leases))
    def release(self, lease: Record) -> None:
        """Release a lease."""
        if self._ours(lease):
            self._run(self._frontier.release, [lease])
            self._model.push(lease)

    @precondition(lambda self: self._is_durable)
    @rule()
    def reopen(self) -> None:
        """Close the frontier and open it again. Leases become pending, and claims without a stored record are lost."""
        self._close()
        for record in self._leased.values():
            self._model.push(record)
        self._leased.clear()
        self._model.claimed.clear()
        self._open()

    @invariant()
    def says_what_the_model_says(self) -> None:
        """Compare all values that the frontier returns without I/O."""
        model, frontier = self._model, self._frontier
        numbers = frontier.statistics()
        assert numbers.pending == sum(map(len, model.pending.values()))
        assert numbers.leased == len(self._leased)
        assert numbers.seen == len(model.claimed | model.stored)
        assert numbers.lanes == len(model.pending)
        assert set(frontier.lanes()) == set(model.pending)
        for host in HOSTS:
            lane = _lane(host)
            there = model.pending.get(lane, {})
            assert frontier.pending_in(lane) == len(there)
            best = frontier.best(lane)
            assert (best is None) == (not there)
            assert best is None or best <= min(there)

    def _open(self) -> None:
        self._frontier: Frontier
        self._frontier, self._ending, self._ended = self._run(self._nursery.start, self._hold)

    def _close(self) -> None:
        self._trio.run_sync_soon(self._ending.set)
        self._run(self._ended.wait)

    async def _hold(self, *, task_status: trio.TaskStatus[tuple[Frontier, trio.Event, trio.Event]]) -> None:
        """Open and close the frontier in the same task, because a client may open a nursery."""
        ending, ended = trio.Event(), trio.Event()
        try:
            async with self._opener() as frontier:
                task_status.started((frontier, ending, ended))
                await ending.wait()
        finally:
            ended.set()

    def _push(self, records: list[Record]) -> None:
        stored = self._run(self._frontier.push_many, records)
        assert list(stored.here) == [record for record in records if record.fingerprint not in self._model.stored]
        for record in stored.here:
            self._model.push(record)
            self._model.wrote(record)

    def _ours(self, lease: Record) -> bool:
        """Remove a lease, and return True if it was valid. Reopening the store makes all leases invalid."""
        return self._leased.get(lease.request.url) is lease and bool(self._leased.pop(lease.request.url))

    def _record(self, mark: bytes | None, host: int, priority: int = 0, share: float = 0.0) -> Record:
        self._count += 1
        request = Request(f"http://{HOSTS[host]}/{self._count}", priority=priority)
        return Record(request, ((HOSTS[host], None),), f"http://{HOSTS[host]}", mark, share=share)

    def _run(self, step: Callable[..., Awaitable[T]], *args: object) -> T:
        return trio.from_thread.run(step, *args, trio_token=self._trio)


@contextmanager
def _running() -> Iterator[tuple[trio.lowlevel.TrioToken, trio.Nursery]]:
    """Run Trio in a thread on a virtual clock, because the steps of a state machine are plain functions."""
    tokens: Queue[tuple[trio.lowlevel.TrioToken, trio.Nursery, trio.Event]] = Queue()

    async def until_told() -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            tokens.put((trio.lowlevel.current_trio_token(), nursery, stop))
            await stop.wait()

    thread = Thread(target=partial(trio.run, until_told, clock=MockClock()))
    thread.start()
    token, nursery, stop = tokens.get()
    try:
        yield token, nursery
    finally:
        trio.from_thread.run_sync(stop.set, trio_token=token)
        thread.join()


def compare(store: Store, *, is_durable: bool, examples: int, steps: int) -> None:
    """Run the state machine ``examples`` times with at most ``steps`` steps each.

    The other arguments are those of :class:`FrontierModelTest`. Raises AssertionError with the shortest sequence of
    steps after which the frontier and the model differ.
    """
    run_state_machine_as_test(
        cast("Any", partial(FrontierModelTest, store, is_durable=is_durable)),  # a factory of machines is accepted too
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def _key(record: Record) -> SortKey:
    return -record.request.priority, -record.share, record.order


def _lane(host: str) -> LaneKey:
    return (host,), f"http://{host}"
