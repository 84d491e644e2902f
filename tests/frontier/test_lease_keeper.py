"""A thread renews the lease of a process whose event loop is blocked, up to a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trawl.blocking import InlineBlocking
from trawl.engine.callback_deaths import CallbackDeaths
from trawl.frontier import Record
from trawl.frontier.redis import lease_keeper
from trawl.frontier.redis.client import Address, StoreConnectionError, StoreServer
from trawl.frontier.redis.layout import Keys
from trawl.frontier.redis.lease_keeper import LeaseKeeper
from trawl.frontier.redis.sessions import JobSession
from trawl.frontier.sqlite import SqliteJob, open_job
from trawl.http import Request

ADDRESS = Address.parse("redis://store.example/job")
LEASE = 0.3


class Store:
    """Answers the renewals of the thread."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.calls: list[Any] = []
        self.has_renewed = threading.Event()

    @asynccontextmanager
    async def connect(self, _: Address) -> AsyncGenerator[StoreServer, None]:
        await trio.lowlevel.checkpoint()
        store = self

        class Connection(StoreServer):
            def __init__(self) -> None: ...

            async def run(self, calls: Any, replicas: int = 0) -> list[Any]:
                await trio.lowlevel.checkpoint()
                answer = store._answers.pop(0) if store._answers else b"ok"
                if answer is None:
                    raise StoreConnectionError("gone")
                store.calls += calls
                store.has_renewed.set()
                return [[answer]]

        yield Connection()


def session() -> JobSession:
    return JobSession(Keys("job"), 7, 0, works=True, exports=False, shown="redis://store.example/job")


async def block(keeper: LeaseKeeper, until: Callable[[], object]) -> None:
    """Run a keeper, and block the event loop until a condition is true."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        await wait_all_tasks_blocked()
        until()
        # The keeper's task notices the end of the block in one of the next rounds.
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_a_thread_renews_the_lease_while_the_loop_is_blocked(caplog: pytest.LogCaptureFixture) -> None:
    store, its = Store(), session()

    def until_said() -> None:
        while "its lease is renewed meanwhile" not in caplog.text:
            time.sleep(0.01)

    await block(LeaseKeeper(its, ADDRESS, store.connect, LEASE), until_said)
    name, _, args = store.calls[0]
    # It renews and nothing else: it takes no parts, exchanges no counts, and does not ask if the job is over.
    assert (name, args[0], args[2:6], args[11]) == ("share", 7, [int(LEASE * 1e6), 0, 0, 0], "")
    assert "test_lease_keeper.py:" in caplog.text
    assert "its lease is renewed meanwhile, for at most 6 s" in caplog.text


async def test_a_store_that_is_away_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(None, None)
    await block(LeaseKeeper(session(), ADDRESS, store.connect, LEASE), lambda: store.has_renewed.wait(60))
    assert len(store.calls) >= 1


async def test_a_failure_of_the_thread_is_logged_once_and_it_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    store, tries = Store(), []

    @asynccontextmanager
    async def connect(address: Address) -> AsyncGenerator[StoreServer, None]:
        tries.append(1)
        if len(tries) < 3:
            raise ExceptionGroup("a nursery", [StoreConnectionError("the name is unknown")])
        async with store.connect(address) as server:
            yield server

    await block(LeaseKeeper(session(), ADDRESS, connect, LEASE), lambda: store.has_renewed.wait(60))
    assert caplog.text.count("its lease can't be renewed: the name is unknown") == 1


async def test_the_thread_has_ended_when_the_keeper_has_although_its_server_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    has_asked, has_left = threading.Event(), threading.Event()

    @asynccontextmanager
    async def connect(address: Address) -> AsyncGenerator[StoreServer, None]:
        has_asked.set()
        try:
            await trio.sleep(3600.0)
        finally:
            has_left.set()
        async with Store().connect(address) as server:
            yield server

    await block(LeaseKeeper(session(), ADDRESS, connect, LEASE), lambda: has_asked.wait(60))
    assert has_left.is_set()


async def test_a_loop_that_runs_renews_its_lease_itself() -> None:
    store = Store()
    keeper = LeaseKeeper(session(), ADDRESS, store.connect, 60.0)
    await block(keeper, lambda: None)
    assert store.calls == []
    assert not keeper.is_lost


async def test_the_lease_is_lost_beyond_the_limit_and_the_message_names_the_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "MOST_LEASES", 0.0)
    store, its = Store(), session()
    keeper = LeaseKeeper(its, ADDRESS, store.connect, LEASE)

    def until_lost() -> None:
        while not (keeper.is_lost and "not renewed any longer" in caplog.text):
            time.sleep(0.01)

    await block(keeper, until_lost)
    assert store.calls == []
    assert keeper.is_lost
    error = its.ended(b"fenced")
    assert "this process was away for too long (test_lease_keeper.py:" in str(error)
    assert "blocked it for" in str(error)


async def test_a_session_that_has_ended_is_lost_although_the_thread_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(*[b"fenced"] * 1000)
    keeper = LeaseKeeper(session(), ADDRESS, store.connect, LEASE)

    def until_lost() -> None:
        while not keeper.is_lost:
            time.sleep(0.01)

    await block(keeper, until_lost)
    assert keeper.is_lost


class Page:
    """An attempt of a page."""

    is_page = True

    def __init__(self, number: int) -> None:
        self.request = Request(url=f"http://a.example/{number}")
        lease = Record(self.request, (), "http://a.example", fingerprint=bytes([number]) * 16)
        self.options = SimpleNamespace(lease=lease)


@pytest.mark.interpreted
async def test_three_lost_leases_make_a_page_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    page: Any = Page(1)
    other: Any = Page(2)
    later: Any = Page(3)
    job = await open_job(tmp_path / "job", InlineBlocking())
    for n in range(1, 4):
        deaths = CallbackDeaths(job)
        await deaths.open(InlineBlocking())
        await deaths.enter(other, "callback")
        await deaths.enter(page, "callback")
        deaths.leave(other)
        with monkeypatch.context() as patch:
            patch.setattr(SqliteJob, "is_lease_lost", True)
            await deaths.enter(later, "callback")  # it has not blocked anything
            deaths.leave(later)
            deaths.survived(page)
            deaths.leave(page)
        deaths.close()
        deaths = CallbackDeaths(job)
        await deaths.open(InlineBlocking())
        assert f"a process lost its lease in the callback of http://a.example/1 (death {n} of 3)" in caplog.text
        deaths.close()

    assert deaths.refusal(page) == "fatal_callback_count"
    assert deaths.give_up(page) == "its callback blocked the process for longer than its lease 3 times"
    assert deaths.refusal(page) is None
    assert "http://a.example/2" not in caplog.text
    assert "http://a.example/3" not in caplog.text
    await job.aclose()
