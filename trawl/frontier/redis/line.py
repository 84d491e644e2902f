"""The client for shared scopes. A queue in the server, the *line*, grants tokens for sends (``line.lua``).

Theory of operation. When a shared scope is first used, two tasks start, each with its own connection. An *ask* is a
request for a token, and a *token* is the right to one send::

    ask, sent, released, limits   ──► one round trip at a time ──► line.lua ──► serves the lines of open scopes
    tokens, limits of others     ◄── news of this session, a stream that is read continuously

Machines exchange only durations, because their clocks differ. A token contains the time to wait, counted from its
arrival. A report of a send contains the time since the send. The server subtracts this duration from the time at which
the report arrives, so the resulting time is never earlier than the send. If the response to a round trip is lost, the
same operations are sent again. Each ask has a number, so the server applies each operation on an ask only once.

A session with asks or tokens contacts the server at least once per second. After five seconds without contact, the
server removes the session from the line. The session asks again when it next reaches the server. Its tokens stay valid
until their deadlines, and then count as sent. After one lease and one heartbeat without contact, the server gives the
session's places to other sessions. Before that time, the session cancels its requests in flight, as it does when the
job's lease ends.
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

__all__ = ["RedisSharedScopeClient"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

HEARTBEAT = 1.0  # maximum seconds between two round trips while there are asks or tokens
TOKEN_SECONDS = 5.0  # seconds for which a token is valid, counted from the time at which the token allows the send
_MARGIN = 0.25  # seconds by which a token expires here before its deadline in the server, because clocks drift
_ROUNDING = 1e-5  # seconds; clocks count microseconds
_LEAVE_SECONDS = 1.0
_NEWS_SECONDS = 2.0
_MAX_OPERATIONS = 500
_MAX_LOOKS = 100
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SAID_AT = 1.0  # seconds; the outage is logged when the pause reaches this length
_PRIORITIES = 1 << 63


@attrs.define(eq=False)
class _TokenRequest:
    """An ask for a token, and its state.

    Attributes:
        scopes: Requested scopes: ids as stored in the server, and amounts.
        priority: Priority as stored in the server.
        lead: Seconds from the grant until the request is sent.
        reason: Why the ask waits.
        is_waiting: Whether the ask has no token yet.
        intervals: For each scope, the seconds after this send for which the scope sends nothing.
    """

    scopes: list[tuple[str, float]]
    priority: str
    lead: float
    reason: Reason
    is_waiting: bool = True
    intervals: Sequence[float] = ()


@attrs.define(eq=False)
class _SendRecord:
    """A send to report: its time, and for each scope the seconds after the send for which the scope sends nothing."""

    number: int
    at: float
    intervals: Sequence[float]


class _Operations:
    """The operations that the server must still get, in order. ``stirred`` is set when there are some."""

    def __init__(self) -> None:
        self.unsent: list[Any] = []
        self.stirred: trio.Event = trio.Event()
        self._sends: dict[int, _SendRecord] = {}
        self._corrections = 0

    def put(self, operation: object) -> None:
        """Add an operation."""
        self.unsent.append(operation)
        self.stirred.set()

    def put_send(self, number: int, at: float, intervals: Sequence[float] | None) -> None:
        """Add a send, or change the time of one that the server has not got; ``intervals`` is None for no new one."""
        send = self._sends.get(number)
        if send is not None:
            send.at = at
        elif intervals is not None:
            send = self._sends[number] = _SendRecord(number, at, intervals)
            self.put(send)

    def put_correction(self, id: str, difference: float) -> None:
        """Add a correction of a scope's quota. Its number lets the server apply it once."""
        self._corrections += 1
        self.put(("C", id, repr(difference), self._corrections))

    def told(self, operations: Sequence[Any]) -> None:
        """Drop the first operations, because the server has got them."""
        del self.unsent[: len(operations)]
        for each in operations:
            if isinstance(each, _SendRecord) and self._sends.get(each.number) is each:
                del self._sends[each.number]


class _Contact:
    """The round trips with the server, in event loop time: the start of the first and of the latest.

    Attributes:
        ahead: Lower bound of event loop time minus server time, from the latest round trip.
        call_at: Time of the next round trip if nothing happens before.
    """

    def __init__(self) -> None:
        self.ahead: float = -math.inf
        self.began_at: float = math.inf
        self.heard_at: float = -math.inf
        self.call_at: float = -math.inf

    def heard(self, began: float, server_now: float, seconds: float) -> bool:
        """Record a response; the next round trip is in ``seconds``. Returns True if it is the first one."""
        is_first = self.heard_at == -math.inf
        self.ahead = began - server_now / 1e6
        self.heard_at = began
        self.call_at = trio.current_time() + seconds
        return is_first


class RedisSharedScopeClient:
    """The client of a job for the scopes that its processes share. Its task is :meth:`run`.

    The name of the session has letters and digits. ``life`` is the length of its lease, in seconds. After this time and
    a heartbeat without contact, the session loses its places. The lease must end before that.
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
        self._operations = _Operations()
        self._contact = _Contact()
        self._versions: dict[str, int] = {}
        self._number = 0
        self._heard = "0-0"
        self._tokens = 0  # number of asks that have a token
        self._scope = trio.CancelScope(shield=True)
        self._is_leaving = False

    # Methods that the scheduler and the throttle call.

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        """Call ``came`` with each token, and ``adopt`` with limits that another session has learned."""
        self._came, self._adopt = came, adopt

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        """Ask for a token, and return the number of the ask."""
        self._number += 1
        written = [(quote(id, safe=""), amount) for id, amount in scopes]
        reason = Reason(scopes[0][0], "line", math.inf, "waiting for the server")
        self._asks[self._number] = _TokenRequest(written, f"{_PRIORITIES - priority:016x}", lead, reason)
        self._operations.put(("A", self._number))
        return self._number

    def drop(self, number: int) -> None:
        """Leave the line, or return an unused token."""
        self._end(number, "U")

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        """Record that the request of a token was sent."""
        ask = self._asks.get(number)
        if ask is not None:
            ask.intervals = intervals
            self.written(number, now)

    def written(self, number: int, now: float) -> None:
        """Record that the request of a token was completely written."""
        ask = self._asks.get(number)
        self._operations.put_send(number, now, None if ask is None else ask.intervals)

    def given_back(self, number: int) -> None:
        """Release the places of a used token."""
        self._end(number, "F")

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        """Set the limits of a scope for all sessions."""
        id = quote(scope_id, safe="")
        known = 0 if is_new else self._versions.get(id, 0)
        self._versions[id] = known + 1
        self._operations.put(("L", id, known, limits, trio.current_time()))

    def correct(self, scope_id: str, difference: float) -> None:
        """Correct the spent amount of a scope's quota."""
        self._operations.put_correction(quote(scope_id, safe=""), difference)

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        """Set the remaining amount of a scope's quota."""
        self._operations.put(("M", quote(scope_id, safe=""), repr(remaining)))

    def why(self, number: int) -> Reason:
        """Return why an ask waits, according to the server's latest report."""
        return self._asks[number].reason

    def _end(self, number: int, how: str) -> None:
        ask = self._asks.pop(number, None)
        if ask is not None:
            self._operations.put((how, number))
            if not ask.is_waiting:
                self._tokens -= 1
                if not self._tokens:
                    self._hold_places()

    def _hold_places(self) -> None:
        self._lease.hold_places(self._contact.heard_at + SAFE * self._life if self._tokens else math.inf)

    # The client's tasks.

    async def run(self) -> None:
        """Exchange messages with the server until cancelled. Then try for a second to leave the line. A checkpoint."""
        await self._operations.stirred.wait()  # a crawl without shared scopes needs no connection
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            try:
                await trio.sleep_forever()
            finally:
                self._is_leaving = True
                self._scope.deadline = trio.current_time() + _LEAVE_SECONDS
                self._operations.stirred.set()

    async def _work(self) -> None:
        with self._scope:  # shielded, because the client leaves through a connection that must not be cancelled
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
                # Log the outage once. If the job has noticed the outage, the job logs it instead.
                if pause >= _SAID_AT > pause / 2.0 and self._lease.away_since is None:
                    words = "job %s: no response from its server for shared scopes (%s): requests that need them wait"
                    logger.warning(words, self._address.shown, error)
            await trio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    async def _talk(self, server: StoreServer) -> None:
        while not self._is_leaving:
            if not self._operations.unsent:
                self._operations.stirred = trio.Event()
                with trio.move_on_at(self._contact.call_at if self._asks else math.inf):
                    await self._operations.stirred.wait()
            await trio.lowlevel.checkpoint()  # let other tasks add operations to this round trip
            if not self._is_leaving:
                await self._round(server)
        await server.run([self._call([*self._operations.unsent, ("X",)])])

    async def _round(self, server: StoreServer) -> None:
        began = trio.current_time()
        self._contact.began_at = min(self._contact.began_at, began)
        told = self._operations.unsent[:_MAX_OPERATIONS]
        waiting = [number for number, ask in self._asks.items() if ask.is_waiting]
        looks = [("W", number) for number in waiting[:_MAX_LOOKS]] if began >= self._contact.call_at else []
        (answer,) = await server.run([self._call([*told, *looks])])
        self._operations.told(told)
        # Move these asks to the end of the dict, because each round trip checks the first asks in the dict.
        for _, number in looks:
            if number in self._asks:
                self._asks[number] = self._asks.pop(number)
        self._hear(answer, began)

    def _hear(self, answer: Sequence[Any], began: float) -> None:
        now = trio.current_time()
        server_now, was_silent, soonest = float(answer[0]), answer[1], float(answer[2])
        seconds = min(self._heartbeat, soonest / 1e6) if soonest >= 0.0 else self._heartbeat
        is_first = self._contact.heard(began, server_now, seconds)
        self._hold_places()
        if was_silent and not is_first:
            for id in self._versions:
                self._operations.unsent.append(("L", id, -1, None, now))
            for number, ask in self._asks.items():
                if ask.is_waiting and ("A", number) not in self._operations.unsent:
                    self._operations.unsent.append(("A", number))
        for number, before, id, limit, wait in answer[3:]:
            self._told(int(number), int(before), text_of(id), text_of(limit), float(wait) / 1e6)

    def _told(self, number: int, before: int, id: str, limit: str, wait: float) -> None:
        ask = self._asks.get(number)
        if ask is None or not ask.is_waiting:
            return
        if before < 0:  # the server has lost the ask
            self._operations.put(("A", number))
            return
        if limit == "line":
            self._operations.put(("L", id, -1, None, trio.current_time()))
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
                age = math.floor((now - each.at) * 1e6)  # round down, so that the server never dates the send too early
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
            until = max(deadline / 1e6 + self._contact.ahead, self._contact.began_at + wait / 1e6 + TOKEN_SECONDS)
            self._came(Token(number, trio.current_time() + wait / 1e6 + _ROUNDING, until - _MARGIN))

    def _changed(self, id: str, version: int, age: float, learned: bytes) -> None:
        if version >= self._versions.get(id, 0) or not version:
            self._versions[id] = version
            self._adopt(unquote(id), learned, age / 1e6)


def _micro(seconds: float) -> int:
    """Return seconds in microseconds, rounded up so that no limit gets shorter."""
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
