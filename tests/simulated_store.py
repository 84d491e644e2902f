"""A simulated server of jobs in this process. It runs the same Lua scripts on plain data structures, on the run clock.

With it, tests of kills, latency, lost replies and restarts from an older state are deterministic.
"""

from __future__ import annotations

import importlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import trio

from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.layout import scripts

__all__ = ["SimulatedStore"]

Fault = str | None
"""The fault of a round trip: ``"unsent"`` if the request is lost, ``"unanswered"`` if the reply is lost, or None."""

FACTS: Mapping[str, str] = {
    "redis_version": "7.2.4",
    "run_id": "1",
    "role": "master",
    "connected_slaves": "0",
    "config.maxmemory-policy": "noeviction",
    "config.appendonly": "yes",
    "config.appendfsync": "always",
}


class SimulatedStore:
    """A simulated server. Pass :meth:`connect` to ``open_job`` instead of the real function.

    Attributes:
        latency: Seconds of a round trip.
        is_away: Whether the server is unreachable.
        fault: Called with the number of each round trip, from 1. Returns its fault.
        round_trips: Number of round trips so far.
        facts: The server's information about itself and its configuration.
        clock_ahead: Seconds by which the server's clock advanced while the run clock stopped, as when a machine sleeps.
        content: The keys with their values.
        added: Event that is set, and replaced, when a stream receives an entry.
    """

    def __init__(self, *, latency: float = 0.0) -> None:
        lua51: Any = importlib.import_module("lupa.lua51")  # optional

        self.latency: float = latency
        self.is_away: bool = False
        self.fault: Callable[[int], Fault] = lambda number: None
        self.round_trips: int = 0
        self.facts: dict[str, str] = dict(FACTS)
        self.clock_ahead: float = 0.0
        self.content: dict[bytes, Any] = {}
        self.added: trio.Event = trio.Event()
        self._streamed = 0
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True, encoding=None)
        self._lua.globals()[b"redis"] = self._lua.table_from({b"call": self._call, b"pcall": self._call})
        self._functions = {
            name: self._lua.eval(b"function(KEYS, ARGV) " + text.encode() + b"\nend")
            for name, (_, text) in scripts().items()
        }

    @asynccontextmanager
    async def connect(self, address: Address) -> AsyncGenerator[StoreServer, None]:
        """Open a connection while the block runs."""
        await trio.sleep(self.latency)
        if self.is_away:
            raise StoreConnectionError("connection refused")
        yield _Connection(self)

    def refuses(self) -> bool:
        """Return whether the server is unreachable."""
        return self.is_away

    def saved(self) -> Any:
        """Return a copy of all stored data, for :meth:`restart`."""
        return deepcopy(self.content)

    def restart(self, saved: Any, *, run_id: str | None = None) -> None:
        """Continue from an older state, as after a power cut or a failover to a lagging replica.

        Args:
            saved: The state.
            run_id: The new run id of the server; None to keep the id.
        """
        self.content = deepcopy(saved)
        if run_id is not None:
            self.facts["run_id"] = run_id

    def run(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """Run one script."""
        table = self._lua.table_from
        answer = self._functions[name](table([_bytes(key) for key in keys]), table([_bytes(arg) for arg in args]))
        return self._plain(answer)

    def _plain(self, value: Any) -> Any:
        """Convert a reply of Lua to the form that the client returns."""
        if isinstance(value, float):
            return int(value)
        if value is None or isinstance(value, bytes | int):
            return value
        return [self._plain(value[i]) for i in range(1, len(value) + 1)]

    def _call(self, command: bytes, *arguments: Any) -> Any:
        args = [_bytes(each) for each in arguments]
        answer = getattr(self, f"_{command.decode().lower()}")(*args)
        if isinstance(answer, list):
            return self._table(answer)
        return answer

    def _table(self, values: list[Any]) -> Any:
        return self._lua.table_from([self._table(each) if isinstance(each, list) else each for each in values])

    def _time(self) -> list[bytes]:
        now = int((trio.current_time() + self.clock_ahead + 1_000_000_000) * 1e6)
        return [b"%d" % (now // 10**6), b"%d" % (now % 10**6)]

    def _info(self, section: bytes) -> bytes:
        return f"run_id:{self.facts.get('run_id', '')}\r\n".encode()

    def _exists(self, key: bytes) -> int:
        return int(key in self.content)

    def _del(self, key: bytes) -> int:
        return int(self.content.pop(key, None) is not None)

    def _hget(self, key: bytes, field: bytes) -> Any:
        return self.content.get(key, {}).get(field, False)

    def _hmget(self, key: bytes, *fields: bytes) -> list[Any]:
        return [self._hget(key, field) for field in fields]

    def _hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        fields = self.content.setdefault(key, {})
        fields[field] = b"%d" % (int(fields.get(field, 0)) + int(by))
        return int(fields[field])

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        self.content.setdefault(key, {}).update(zip(pairs[::2], pairs[1::2], strict=True))
        return 0

    def _hdel(self, key: bytes, field: bytes) -> int:
        return int(self.content.get(key, {}).pop(field, None) is not None)

    def _hgetall(self, key: bytes) -> list[Any]:
        return [each for pair in self.content.get(key, {}).items() for each in pair]

    def _sadd(self, key: bytes, member: bytes) -> int:
        members = self.content.setdefault(key, set())
        is_new = member not in members
        members.add(member)
        return int(is_new)

    def _srem(self, key: bytes, member: bytes) -> int:
        self.content.get(key, set()).discard(member)
        return 0

    def _sismember(self, key: bytes, member: bytes) -> int:
        return int(member in self.content.get(key, ()))

    def _smembers(self, key: bytes) -> list[Any]:
        return sorted(self.content.get(key, ()))

    def _zadd(self, key: bytes, score: bytes, member: bytes) -> int:
        members = self.content.setdefault(key, [])
        entry = (float(score), member)
        if score == b"0":  # all scores of the set are 0, so it is ordered by its members
            place = bisect_left(members, entry)
            if place == len(members) or members[place] != entry:
                members.insert(place, entry)
        else:
            members[:] = [each for each in members if each[1] != member]
            insort(members, entry)
        return 0

    def _zscore(self, key: bytes, member: bytes) -> Any:
        return next((b"%.17g" % score for score, each in self.content.get(key, ()) if each == member), False)

    def _zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[Any]:
        top, is_open = float(high.removeprefix(b"(")), high.startswith(b"(")
        found = [
            member
            for score, member in self.content.get(key, ())
            if float(low) <= score <= top and not (is_open and score == top)
        ]
        return found[int(options[1]) : int(options[1]) + int(options[2])]

    def _zrem(self, key: bytes, member: bytes) -> int:
        members = self.content.get(key, [])
        before = len(members)
        members[:] = [entry for entry in members if entry[1] != member]
        return before - len(members)

    def _zcard(self, key: bytes) -> int:
        return len(self.content.get(key, ()))

    def _zrange(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[Any]:
        if options == (b"WITHSCORES",):
            return [each for score, member in self.content.get(key, ()) for each in (member, b"%.17g" % score)]
        members, first, last = self._between(key, low, high)
        count = int(options[3])
        return [member for _, member in members[first:last][: count if count >= 0 else None]]

    def _zlexcount(self, key: bytes, low: bytes, high: bytes) -> int:
        _, first, last = self._between(key, low, high)
        return last - first

    def _zremrangebylex(self, key: bytes, low: bytes, high: bytes) -> int:
        members, first, last = self._between(key, low, high)
        del members[first:last]
        return last - first

    def _zrevrange(self, key: bytes, first: bytes, last: bytes, *_: bytes) -> list[Any]:
        found = self.content.get(key, [])[::-1][int(first) : int(last) + 1]
        return [each for score, member in found for each in (member, repr(score).encode())]

    def _between(self, key: bytes, low: bytes, high: bytes) -> tuple[list[Any], int, int]:
        members = self.content.get(key, [])
        first = (bisect_left if low[:1] == b"[" else bisect_right)(members, (0.0, low[1:]))
        # trawl's upper bounds are all exclusive.
        last = len(members) if high == b"+" else bisect_left(members, (0.0, high[1:]))
        return members, first, max(first, last)

    def _xadd(self, key: bytes, place: bytes, *pair: bytes) -> bytes:
        assert len(pair) % 2 == 0, "XADD takes pairs"
        entries = self.content.setdefault(key, [])
        number = (entries[-1][0] if entries else self._streamed) + 1 if place == b"*" else int(place.partition(b"-")[0])
        self._streamed = max(self._streamed, number)
        entries.append((number, list(pair)))
        self.added.set()
        self.added = trio.Event()
        return b"%d-0" % number

    def _xrange(self, key: bytes, first: bytes, _: bytes, _count: bytes, limit: bytes) -> list[Any]:
        entries = [entry for entry in self.content.get(key, ()) if entry[0] >= int(first.partition(b"-")[0])]
        return [[b"%d-0" % position, pair] for position, pair in entries[: int(limit)]]

    def _xtrim(self, key: bytes, _: bytes, least: bytes) -> int:
        entries = self.content.get(key, [])
        entries[:] = [entry for entry in entries if entry[0] >= int(least.partition(b"-")[0])]
        return 0

    def _xlen(self, key: bytes) -> int:
        return len(self.content.get(key, ()))

    def _rpush(self, key: bytes, item: bytes) -> int:
        self.content.setdefault(key, []).append(item)
        return 0

    def _lrange(self, key: bytes, _first: bytes, _last: bytes) -> list[Any]:
        return list(self.content.get(key, ()))


class _Connection(StoreServer):
    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        """Run scripts in one round trip."""
        store = self._store
        store.round_trips += 1
        fault = store.fault(store.round_trips)
        await trio.sleep(store.latency / 2.0)
        if fault == "unsent" or store.refuses():
            raise StoreConnectionError("connection lost")
        answers = [store.run(*call) for call in calls]
        await trio.sleep(store.latency / 2.0)
        if fault == "unanswered" or store.refuses():
            raise StoreConnectionError("connection lost")
        return answers

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        """Wait for the next entries of a stream."""
        store = self._store
        await trio.sleep(store.latency / 2.0)
        with trio.move_on_after(seconds):
            while not store.refuses() and not self._found(key, after):
                await store.added.wait()
        found = self._found(key, after)
        await trio.sleep(store.latency / 2.0)
        if store.refuses():
            raise StoreConnectionError("connection lost")
        return found

    def _found(self, key: str, after: str) -> list[tuple[str, Mapping[bytes, bytes]]]:
        entries = self._store.content.get(key.encode(), ())
        known = int(after.partition("-")[0])
        return [
            (f"{number}-0", dict(zip(pairs[::2], pairs[1::2], strict=True)))
            for number, pairs in entries
            if number > known
        ]

    async def facts(self) -> Mapping[str, str]:
        """Return the server's information about itself."""
        await trio.sleep(self._store.latency)
        return self._store.facts


def _bytes(value: bytes | str | float) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).encode()
