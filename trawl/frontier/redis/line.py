"""The line of shared scopes in the server: asks, tokens, and what is told of them (``line.lua``).

Theory of operation. Two tasks, each with a connection of its own, which are opened when a shared scope is first used::

    ask, sent, given back, limits ──► one round trip at a time ──► line.lua ──► who opens a scope serves its line
    tokens, limits of others     ◄── news of this session, a stream that is read as it comes

Only durations cross between machines. A token says how long to wait, and that is counted from when the answer came; a
send is told with its age, and counts from its arrival, less that age: never before it was. What was told in a round
trip whose answer was lost is told again: an ask has a number, and each step of its life is taken once.

A session that has asks or tokens is heard of at least each second. One that was silent for five has left the line: it
lines up again by itself. Its tokens are good until their deadlines, at which they count as sent. Its places go to
others after a lease and a heartbeat: before that, whatever is on the wire is cut off, as where the job's lease is over.

Only the job in a server makes one: scopes are granted by a connection and a script of their own.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import attrs
import trio

from trawl.frontier.job import SAFE, SessionLease
from trawl.frontier.redis.client import Address, Connect, StoreConnectionError, StoreServer
from trawl.frontier.redis.layout import text_of
from trawl.throttling.reasons import Reason
from trawl.throttling.shared import SharedLimits, Token

__all__ = ["StoreLine"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

HEARTBEAT = 1.0
"""Seconds between two round trips at most, while something is asked for or held."""

TOKEN_SECONDS = 5.0
"""How long a token is good, from the instant that it is for."""

_MARGIN = 0.25  # seconds for which a token is not used any more: clocks of two machines run at different speeds
_ROUNDING = 1e-5  # seconds: clocks count microseconds
_LEAVE_SECONDS = 1.0
_NEWS_SECONDS = 2.0
_MAX_OPERATIONS = 500
_MAX_LOOKS = 100
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SAID_AT = 1.0  # seconds: a pause from which on it is worth a line
_PRIORITIES = 1 << 63


@attrs.define(eq=False)
class _TokenRequest:
    """An ask, from its number to its end.

    Attributes:
        scopes: What it asks for: ids as the server has them, and amounts.
        priority: As the server has it.
        lead: Seconds that its request takes to the wire.
        reason: What it waits for.
        is_waiting: It has no token.
        intervals: How long each scope rests after its send, in seconds.
    """

    scopes: list[tuple[str, float]]
    priority: str
    lead: float
    reason: Reason
    is_waiting: bool = True
    intervals: Sequence[float] = ()


@attrs.define(eq=False)
class _SendRecord:
    """A send that is to be told: when it was, and how long each scope rests after it."""

    number: int
    at: float
    intervals: Sequence[float]


class StoreLine:
    """The line of a job in a server; :meth:`run` is its task.

    Args:
        address: The job.
        session: The name of this process's session: letters and digits.
        life: Seconds of its lease: after these, and a heartbeat more, a session that is not heard of has lost its
            places.
        lease: Does not outlast the places.
        connect: Makes a connection.
    """

    def __init__(self, address: Address, session: str, *, life: float, lease: SessionLease, connect: Connect) -> None:
        tag = f"{{{quote(address.job, safe='')}}}:x:"
        self._keys = [tag + name for name in "slakmdown"]
        self._news = f"{tag}n{session}"
        self._address = address
        self._session = session
        self._life = life
        self._heartbeat = min(HEARTBEAT, life / 4.0)
        self._lease = lease
        self._connect = connect
        self._came: Callable[[Token], None] = lambda token: None
        self._adopt: Callable[[str, bytes, float], None] = lambda id, learned, age: None
        self._asks: dict[int, _TokenRequest] = {}
        self._operations: list[Any] = []
        self._versions: dict[str, int] = {}
        self._sends: dict[int, _SendRecord] = {}
        self._number = 0
        self._corrections = 0
        self._heard = "0-0"
        self._ahead = -math.inf  # run clock minus server's clock, at the least, by the latest round trip
        self._began_at = math.inf  # the first round trip
        self._heard_at = -math.inf  # the beginning of the latest one
        self._tokens = 0  # asks that are not waiting
        self._call_at = -math.inf
        self._is_known = False
        self._stirred = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._is_leaving = False

    # What the scheduler and the throttle ask.

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        """Say who is called with a token, and with what another session has learned of a scope."""
        self._came, self._adopt = came, adopt

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        """Ask for a token. Returns the number of the ask."""
        self._number += 1
        written = [(quote(id, safe=""), amount) for id, amount in scopes]
        reason = Reason(scopes[0][0], "line", math.inf, "the store is asked")
        self._asks[self._number] = _TokenRequest(written, f"{_PRIORITIES - priority:016x}", lead, reason)
        self._put(("A", self._number))
        return self._number

    def drop(self, number: int) -> None:
        """Leave the line, or give a token back that was not used."""
        self._end(number, "U")

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        """Say that the request of a token went to the wire."""
        ask = self._asks.get(number)
        if ask is not None:
            ask.intervals = intervals
            self.written(number, now)

    def written(self, number: int, now: float) -> None:
        """Say that the write of that request has ended."""
        send, ask = self._sends.get(number), self._asks.get(number)
        if send is not None:
            send.at = now
        elif ask is not None:
            send = self._sends[number] = _SendRecord(number, now, ask.intervals)
            self._put(send)

    def given_back(self, number: int) -> None:
        """Free the places of a token that was used."""
        self._end(number, "F")

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        """Put limits in force for all sessions."""
        id = quote(scope_id, safe="")
        known = 0 if is_new else self._versions.get(id, 0)
        self._versions[id] = known + 1
        self._put(("L", id, known, limits, trio.current_time()))

    def correct(self, scope_id: str, difference: float) -> None:
        """Correct what is spent of a scope's quota."""
        self._corrections += 1
        self._put(("C", quote(scope_id, safe=""), repr(difference), self._corrections))

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        """Set what is left of a scope's quota."""
        self._put(("M", quote(scope_id, safe=""), repr(remaining)))

    def why(self, number: int) -> Reason:
        """Explain what an ask waits for, as the server told last."""
        return self._asks[number].reason

    def _end(self, number: int, how: str) -> None:
        ask = self._asks.pop(number, None)
        if ask is not None:
            self._put((how, number))
            if not ask.is_waiting:
                self._tokens -= 1
                if not self._tokens:
                    self._hold_places()

    def _hold_places(self) -> None:
        self._lease.hold_places(self._heard_at + SAFE * self._life if self._tokens else math.inf)

    def _put(self, operation: object) -> None:
        self._operations.append(operation)
        self._stirred.set()

    # The tasks.

    async def run(self) -> None:
        """Talk with the server, until it is cancelled; then, if that can be done at once, leave the line. A checkpoint.

        Raises:
            JobError: The server refuses.
        """
        await self._stirred.wait()  # a crawl without shared scopes needs no connection
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            try:
                await trio.sleep_forever()
            finally:
                self._is_leaving = True
                self._scope.deadline = trio.current_time() + _LEAVE_SECONDS
                self._stirred.set()

    async def _work(self) -> None:
        with self._scope:  # shielded: a connection that is cancelled can't be used to leave
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, self._listen)
                await self._keep(self._talk)
                nursery.cancel_scope.cancel()

    async def _keep(self, use: Callable[[StoreServer], Any]) -> None:
        pause = _FIRST_PAUSE
        while not self._is_leaving:
            try:
                async with self._connect(self._address) as server:
                    pause = _FIRST_PAUSE
                    await use(server)
                    return
            except StoreConnectionError as error:
                if pause >= _SAID_AT > pause / 2.0 and self._lease.away_since is None:  # that is said by the job
                    words = "job %s: its server does not answer for shared scopes (%s): nothing that needs them is sent"
                    logger.warning(words, self._address.shown, error)
            await trio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    async def _talk(self, server: StoreServer) -> None:
        while not self._is_leaving:
            if not self._operations:
                self._stirred = trio.Event()
                with trio.move_on_at(self._call_at if self._asks else math.inf):
                    await self._stirred.wait()
            await trio.lowlevel.checkpoint()  # what is about to be told goes with it
            if not self._is_leaving:
                await self._round(server)
        await server.run([self._call([*self._operations, ("X",)])])

    async def _round(self, server: StoreServer) -> None:
        began = trio.current_time()
        self._began_at = min(self._began_at, began)
        told = self._operations[:_MAX_OPERATIONS]
        waiting = [number for number, ask in self._asks.items() if ask.is_waiting]
        looks = [("W", number) for number in waiting[:_MAX_LOOKS]] if began >= self._call_at else []
        (answer,) = await server.run([self._call([*told, *looks])])
        del self._operations[: len(told)]
        for each in told:
            if isinstance(each, _SendRecord) and self._sends.get(each.number) is each:
                del self._sends[each.number]
        # Put to the end of the dict, whose first are looked at.
        for _, number in looks:  # others are looked at next time
            if number in self._asks:
                self._asks[number] = self._asks.pop(number)
        self._hear(answer, began)

    def _hear(self, answer: Sequence[Any], began: float) -> None:
        now = trio.current_time()
        server_now, was_silent, soonest = float(answer[0]), answer[1], float(answer[2])
        self._ahead = began - server_now / 1e6
        self._call_at = now + (min(self._heartbeat, soonest / 1e6) if soonest >= 0.0 else self._heartbeat)
        self._heard_at = began
        self._hold_places()
        is_first, self._is_known = not self._is_known, True
        if was_silent and not is_first:
            for id in self._versions:
                self._operations.append(("L", id, -1, None, now))
            for number, ask in self._asks.items():
                if ask.is_waiting and ("A", number) not in self._operations:
                    self._operations.append(("A", number))
        for number, before, id, limit, wait in answer[3:]:
            self._told(int(number), int(before), text_of(id), text_of(limit), float(wait) / 1e6)

    def _told(self, number: int, before: int, id: str, limit: str, wait: float) -> None:
        ask = self._asks.get(number)
        if ask is None or not ask.is_waiting:
            return
        if before < 0:  # the server has lost it
            self._put(("A", number))
            return
        if limit == "line":
            self._put(("L", id, -1, None, trio.current_time()))
        until = math.inf if wait < 0.0 else trio.current_time() + wait
        place = f"shared scope, {before} before it in line" if before else "shared scope, first in line"
        name: Any = limit or "line"
        ask.reason = Reason(unquote(id), name, until, place)

    def _call(self, operations: Sequence[Any]) -> tuple[str, Sequence[str], list[bytes | str | int]]:
        heard = "" if self._heard == "0-0" else self._heard
        args: list[bytes | str | int] = [self._session, heard, _micro(self._life + HEARTBEAT), _micro(TOKEN_SECONDS)]
        now = trio.current_time()
        for each in operations:
            if isinstance(each, _SendRecord):
                age = math.floor((now - each.at) * 1e6)  # down: it does not count from before it was
                args += ("S", each.number, age, len(each.intervals), *map(_micro, each.intervals))
            elif each[0] == "A":
                ask = self._asks.get(each[1])
                if ask is not None:
                    args += ("A", each[1], ask.priority, _micro(ask.lead), len(ask.scopes))
                    for id, amount in ask.scopes:
                        args += (id, repr(amount))
            elif each[0] == "L":
                args += (*each[:3], *_written(each[3], now - each[4]))
            else:
                args += each
        return "line", self._keys, args

    async def _listen(self, server: StoreServer) -> None:
        while True:
            for place, news in await server.read_stream(self._news, self._heard, _NEWS_SECONDS):
                self._heard = place
                if b"t" in news:
                    self._token(int(news[b"t"]), float(news[b"w"]), float(news[b"d"]))
                else:
                    self._changed(text_of(news[b"l"]), int(news[b"v"]), float(news[b"a"]), news[b"s"])

    def _token(self, number: int, wait: float, deadline: float) -> None:
        ask = self._asks.get(number)
        if ask is not None and ask.is_waiting:
            ask.is_waiting = False
            self._tokens += 1
            self._hold_places()
            until = max(deadline / 1e6 + self._ahead, self._began_at + wait / 1e6 + TOKEN_SECONDS)
            self._came(Token(number, trio.current_time() + wait / 1e6 + _ROUNDING, until - _MARGIN))

    def _changed(self, id: str, version: int, age: float, learned: bytes) -> None:
        if version >= self._versions.get(id, 0) or not version:
            self._versions[id] = version
            self._adopt(unquote(id), learned, age / 1e6)


def _micro(seconds: float) -> int:
    """Round up to microseconds: no limit gets shorter by it."""
    return math.ceil(seconds * 1e6)


def _written(limits: SharedLimits | None, age: float) -> tuple[bytes | str | int, ...]:
    if limits is None:
        return 0, 0, 0, 0, 0, 0, b""
    return (
        0 if limits.concurrency == math.inf else int(limits.concurrency),
        _micro(limits.delay),
        _micro(limits.shortest),
        _micro(max(0.0, limits.hold - age)),
        0 if limits.quota == math.inf or not limits.window else repr(limits.quota),
        _micro(limits.window),
        limits.learned,
    )
