"""Shared scopes: sessions that ask, send and give back at random, in one simulated server, against a slow model."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.simulated_store import SimulatedStore
from trawl.frontier.job import SessionLease
from trawl.frontier.redis.client import Address, Call, StoreServer
from trawl.frontier.redis.line import RedisSharedScopeClient
from trawl.testing.clock import seeded_scheduling
from trawl.throttling.shared import SharedLimits, Token

Connect = Callable[[Address], AbstractAsyncContextManager[StoreServer]]

HERE = Address.parse("redis://store/job")


def limits(
    concurrency: float = math.inf, delay: float = 0.0, quota: float = math.inf, window: float = 60.0
) -> SharedLimits:
    return SharedLimits(
        concurrency=concurrency, delay=delay, shortest=delay, hold=0.0, quota=quota, window=window, learned=b"-"
    )


@attrs.define
class Send:
    """One send, as it really was."""

    session: str
    scopes: Mapping[str, float]
    asked_at: float
    at: float
    ended_at: float = math.inf


class Cut(StoreServer):
    """A connection that can be cut off for good, as a kill does."""

    def __init__(self, server: StoreServer, session: Session) -> None:
        self._server, self._session = server, session

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        if self._session.is_cut:
            await trio.sleep_forever()
        return await self._server.run(calls, replicas)

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        if self._session.is_cut:
            await trio.sleep_forever()
        return await self._server.read_stream(key, after, seconds)

    async def facts(self) -> Mapping[str, str]:
        return {}


class Session:
    """A process that uses the line as the scheduler does, and spaces its own sends."""

    def __init__(
        self,
        connect: Connect,
        name: str,
        scopes: Mapping[str, SharedLimits],
        sends: list[Send],
        address: Address = HERE,
        life: float = 15.0,
    ) -> None:
        self.name = name
        self.is_cut = False
        self.scope = trio.CancelScope()
        self.unused = 0
        self._connect_to = connect
        self._scopes = scopes
        self._sends = sends
        self._last: dict[str, float] = {}
        self._spacing = trio.Lock()
        self._events: dict[int, trio.Event] = {}
        self._tokens: dict[int, Token] = {}
        self.line = RedisSharedScopeClient(address, name, life=life, lease=SessionLease(), connect=self._connect)
        self.line.listen(self._came, lambda id, learned, age: None)
        for id, each in scopes.items():
            self.line.publish(id, each)

    @asynccontextmanager
    async def _connect(self, address: Address) -> AsyncGenerator[StoreServer, None]:
        async with self._connect_to(address) as server:
            yield Cut(server, self)

    def _came(self, token: Token) -> None:
        self._tokens[token.number] = token
        self._events[token.number].set()

    def kill(self) -> None:
        self.is_cut = True
        self.scope.cancel()
        for send in self._sends:
            if send.session == self.name and send.ended_at == math.inf:
                send.ended_at = trio.current_time()

    async def send(self, scopes: Mapping[str, float], lasts: float, *, late: float = 0.0, priority: int = 0) -> Send:
        """Send one request: it is in flight for ``lasts`` seconds, and takes ``late`` seconds to the wire."""
        asked_at = trio.current_time()
        while True:
            number = self.line.ask(list(scopes.items()), priority, late)
            self._events[number] = trio.Event()
            await self._events[number].wait()
            token = self._tokens.pop(number)
            await trio.sleep_until(token.at + late)
            async with self._spacing:  # as a scope of this process's own does
                await trio.sleep_until(max(self._last.get(id, -math.inf) + self._scopes[id].delay for id in scopes))
                now = trio.current_time()
                if now < token.until:
                    self._last.update(dict.fromkeys(scopes, now))
                    break
            self.unused += 1
            self.line.drop(number)
        send = Send(self.name, scopes, asked_at, now)
        self._sends.append(send)
        self.line.sent(number, now, [self._scopes[id].delay for id in scopes])
        await trio.sleep(lasts)
        send.ended_at = trio.current_time()
        self.line.given_back(number)
        return send

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            task_status.started()
            await self.line.run()


def check(
    sends: Sequence[Send],
    scopes: Mapping[str, SharedLimits],
    told: Sequence[tuple[str, int, float]],
    *,
    was_killed: bool = False,
) -> None:
    """Hold the sends against the limits: slowly, and without knowing how they were granted."""
    for id, each in scopes.items():
        mine = sorted([send for send in sends if id in send.scopes], key=lambda send: send.at)
        if each.delay:
            for before, after in pairwise(mine):
                assert after.at - before.at >= each.delay - 2e-6, (id, before, after)
        if each.concurrency < math.inf:
            for send in mine:
                in_flight = [other for other in mine if other.at <= send.at < other.ended_at]
                assert len(in_flight) <= each.concurrency, (id, send)
        if each.quota < math.inf:
            check_quota(each, [(at, amount) for scope, at, amount in told if scope == id], was_killed=was_killed)


def check_quota(limits: SharedLimits, charges: Sequence[tuple[int, float]], *, was_killed: bool) -> None:
    """Hold charges against a quota, by windows that begin at their first charge.

    A token of a session that was killed counts as sent, and may have begun a window that nobody else knows of: then any
    time as long as a window has charges of two at most.
    """
    window, ends_at, spent = int(limits.window * 1e6), -math.inf, 0.0
    for at, amount in charges:
        if at >= ends_at:
            ends_at, spent = at + window, 0.0
        spent += amount
        assert spent <= limits.quota + 1e-6 or was_killed, at
        any_time = sum([each for other, each in charges if at <= other < at + window])
        assert any_time <= 2.0 * limits.quota + 1e-6, at


class Told:
    """What the server heard of sends: quotas are counted by its windows."""

    def __init__(self, store: SimulatedStore) -> None:
        self.sends: list[tuple[str, int, float]] = []
        self._asks: dict[str, list[tuple[str, float]]] = {}
        self._done: set[str] = set()
        self._run = store.run
        store.run = self.run  # type: ignore[method-assign]

    def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        answer = self._run(name, keys, args)
        now, at = int(answer[0]), 4
        while at < len(args):
            operation, key = args[at], f"{args[0]}:{args[at + 1] if at + 1 < len(args) else ''}"
            if operation == "A":
                n = int(args[at + 4])
                pairs = args[at + 5 : at + 5 + 2 * n]
                self._asks[key] = [(id, float(amount)) for id, amount in zip(pairs[::2], pairs[1::2], strict=True)]
                at += 5 + 2 * n
            elif operation == "S":
                if key not in self._done:
                    self._done.add(key)
                    self.sends += [(id, now - int(args[at + 2]), amount) for id, amount in self._asks[key]]
                at += 4 + int(args[at + 3])
            else:
                at += {"F": 2, "U": 2, "L": 10, "C": 4, "M": 3, "W": 2, "X": 1}[operation]
        return answer


def run(main: Callable[[], Any], seed: int = 0) -> None:
    with seeded_scheduling(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0.0))


SCOPES = st.dictionaries(
    st.sampled_from(["proxy a", "api:1", "account"]),
    st.one_of(
        st.builds(limits, delay=st.sampled_from([0.02, 0.3, 1.0, 7.0])),
        st.builds(limits, concurrency=st.integers(1, 4)),
        st.builds(limits, concurrency=st.integers(1, 3), delay=st.sampled_from([0.05, 0.5])),
        st.builds(limits, quota=st.sampled_from([2.0, 5.5]), window=st.sampled_from([0.5, 3.0])),
    ),
    min_size=1,
)


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    scopes=SCOPES,
    sessions=st.integers(1, 4),
    latency=st.sampled_from([0.0, 0.005, 0.05, 0.4]),
    losses=st.sampled_from([0, 3, 7]),
    kills=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_no_limit_of_a_shared_scope_is_broken_by_any_number_of_sessions_and_nobody_starves(
    scopes: dict[str, SharedLimits], sessions: int, latency: float, losses: int, kills: bool, seed: int
) -> None:
    chance = random.Random(seed)
    random.seed(seed)  # pauses before connecting again
    sends: list[Send] = []
    told: list[tuple[str, int, float]] = []

    async def main() -> None:
        store = SimulatedStore(latency=latency)
        log = Told(store)
        if losses:
            faults = random.Random(seed)
            store.fault = lambda number: faults.choice(["unsent", "unanswered"]) if number % losses == 0 else None
        working = [Session(store.connect, f"s{number}", scopes, sends) for number in range(sessions)]

        async def work(session: Session, count: int, rest: float) -> None:
            with trio.CancelScope() as mine:
                tasks.append((session, mine))
                for _ in range(count):
                    wanted = chance.sample(sorted(scopes), chance.randint(1, len(scopes)))
                    amounts = {id: chance.choice([1.0, 1.0, 2.0]) for id in sorted(wanted)}
                    late = chance.choice([0.0, 0.0, 0.03, 0.4, 3.0])
                    await session.send(
                        amounts, chance.choice([0.0, 0.1, 0.7]), late=late, priority=chance.choice([0, 0, 5])
                    )
                    await trio.sleep(rest)

        tasks: list[tuple[Session, trio.CancelScope]] = []
        with trio.fail_after(3000.0):
            async with trio.open_nursery() as nursery:
                for session in working:
                    await nursery.start(session.run)
                async with trio.open_nursery() as works:
                    for session in working:
                        for _ in range(chance.randint(1, 4)):
                            works.start_soon(work, session, chance.randint(1, 6), chance.choice([0.0, 0.2]))
                    if kills and sessions > 1:
                        await trio.sleep(chance.uniform(0.0, 4.0))
                        for session, scope in tasks:
                            if session is working[0]:
                                scope.cancel()
                        working[0].kill()
                nursery.cancel_scope.cancel()
        told.extend(log.sends)

    run(main, seed)
    check(sends, scopes, told, was_killed=kills)
    if not kills and not losses:
        assert sends


def test_a_token_of_a_session_that_is_not_heard_of_is_good_until_its_time_is_over() -> None:
    sends: list[Send] = []
    scopes = {"proxy": limits(delay=3.0)}

    async def main() -> None:
        store = SimulatedStore()
        async with trio.open_nursery() as nursery:
            one, two = (Session(store.connect, name, scopes, sends, life=2.0) for name in ("a", "b"))
            for session in (one, two):
                await nursery.start(session.run)
            async with trio.open_nursery() as works:
                works.start_soon(partial(one.send, {"proxy": 1.0}, 0.1, late=4.5))
                await trio.sleep(0.5)
                one.is_cut = True  # from the store, not from its hosts
                with trio.fail_after(30.0):
                    await two.send({"proxy": 1.0}, 0.1)
            nursery.cancel_scope.cancel()

    run(main)
    assert [send.session for send in sends] == ["a", "b"]
    check(sends, scopes, [])


def test_shared_scopes_go_on_in_time_where_the_servers_clock_was_set_back() -> None:
    sends: list[Send] = []

    async def main() -> None:
        store = SimulatedStore()
        scopes = {"proxy": limits(delay=1.0)}
        async with trio.open_nursery() as nursery:
            sessions = [Session(store.connect, name, scopes, sends) for name in ("a", "b")]
            for session in sessions:
                await nursery.start(session.run)
            with trio.fail_after(60.0):
                for number in range(6):
                    if number == 3:
                        store.clock_ahead = -3600.0
                    await sessions[number % 2].send({"proxy": 1.0}, 0.1)
            nursery.cancel_scope.cancel()

    run(main)
    assert min(after.at - before.at for before, after in pairwise(sends)) >= 1.0 - 2e-6
