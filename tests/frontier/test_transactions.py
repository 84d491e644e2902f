"""Steps of many tasks are one transaction, in their order, and memory hears of them only when they are on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar, TypeVarTuple

import pytest
import trio

from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.errors import JobError
from trawl.frontier.sqlite import Transactions

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class HeldBlocking(InlineBlocking):
    """Runs a function when it is let."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.runs = 0

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        self.runs += 1
        await self.gate.wait()
        return await super().run(function, *args)


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
        yield connection


def beside() -> Callable[[sqlite3.Connection], None]:
    return lambda connection: None


def insert(x: int) -> Callable[[sqlite3.Connection], int]:
    def run(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO t VALUES (?)", (x,))
        return x

    return run


def rows(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]


@pytest.mark.parametrize("blocking", [InlineBlocking, ThreadBlocking])
async def test_tasks_that_come_at_once_share_a_transaction(blocking: type[InlineBlocking | ThreadBlocking]) -> None:
    with database() as connection:
        transactions = Transactions(connection, blocking(), "dir", beside)
        given: list[int] = []
        applied: list[int] = []

        def hear(x: int) -> int:
            applied.append(x)
            return -x

        async def one(x: int) -> None:
            given.append(x)
            assert await transactions.execute(insert(x), hear) == -x

        async with trio.open_nursery() as nursery:
            for x in range(100):
                nursery.start_soon(one, x)
        assert transactions.committed == 1
        assert applied == given  # memory hears of them in the order in which they came
        assert rows(connection) == list(range(100))


async def test_who_comes_while_one_is_written_goes_with_the_next_and_the_order_holds() -> None:
    with database() as connection:
        blocking = HeldBlocking()
        transactions = Transactions(connection, blocking, "dir", beside)
        applied: list[int] = []

        async def one(x: int) -> None:
            await transactions.execute(insert(x), applied.append)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 0)
            await trio.testing.wait_all_tasks_blocked()
            for x in range(1, 10):
                nursery.start_soon(one, x)
                await trio.testing.wait_all_tasks_blocked()
            assert (blocking.runs, applied) == (1, [])
            blocking.gate.set()
        assert transactions.committed == 2
        assert applied == list(range(10))


async def test_a_step_that_was_handed_in_is_carried_out_though_its_task_is_cancelled() -> None:
    with database() as connection:
        blocking = HeldBlocking()
        transactions = Transactions(connection, blocking, "dir", beside)
        done: list[int] = []

        async def one(x: int) -> None:
            await transactions.execute(insert(x), done.append)
            done.append(-x)

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, 1)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(one, 2)
                nursery.start_soon(one, 3)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                nursery.start_soon(one, 4)  # hears of it before it has handed anything in
                blocking.gate.set()
        assert rows(connection) == [1, 2, 3]
        assert sorted(done) == [-3, -2, -1, 1, 2, 3]


async def test_after_a_failure_nothing_is_written_and_everybody_is_told_why() -> None:
    with database() as connection:
        blocking = HeldBlocking()
        transactions = Transactions(connection, blocking, "dir", beside)
        applied: list[int] = []
        errors: list[str] = []

        async def one(x: int) -> None:
            try:
                await transactions.execute(insert(x), applied.append)
            except JobError as error:
                errors.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 1)
            await trio.testing.wait_all_tasks_blocked()
            for x in (2, 1, 3):  # 1 is there already
                nursery.start_soon(one, x)
            await trio.testing.wait_all_tasks_blocked()
            blocking.gate.set()
        await one(4)
        assert rows(connection) == [1]
        assert applied == [1]
        assert len(errors) == 4
        assert set(errors) == {"job dir: it can't be read or written: UNIQUE constraint failed: t.x"}


async def test_a_mistake_in_a_step_is_raised_to_its_task_and_ends_the_writing() -> None:
    def mistake(connection: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with database() as connection:
        transactions = Transactions(connection, InlineBlocking(), "dir", beside)
        with pytest.raises(ZeroDivisionError):
            await transactions.execute(mistake, lambda _: None)
        assert not connection.in_transaction
        with pytest.raises(JobError, match=r"internal error: ZeroDivisionError"):
            await transactions.execute(insert(1), lambda _: None)


async def test_what_is_written_beside_is_asked_for_when_the_batch_is_closed_and_only_if_it_writes() -> None:
    with database() as connection:
        applied: list[int] = []
        asked: list[int] = []

        def ask() -> Callable[[sqlite3.Connection], None]:
            asked.append(len(applied))
            return lambda connection: None

        transactions = Transactions(connection, InlineBlocking(), "dir", ask)
        await transactions.execute(insert(1), applied.append)
        await transactions.execute(lambda connection: 0, applied.append, is_writing=False)
        await transactions.execute(insert(2), applied.append)
        assert asked == [0, 2]
