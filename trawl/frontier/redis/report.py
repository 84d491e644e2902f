"""Reports on a job in a server, for ``trawl job``. For a job in a directory, see :mod:`trawl.frontier.inspect`.

Reading does not disturb the processes of the job. To queue failed requests again, this process joins the job for a
moment. These functions call ``trio.run`` themselves. They raise UsageError if there is no job or its address is wrong,
and JobError if the server does not respond, refuses a command, or has a job that another release wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
import trio

from trawl.errors import HostGivenUp, JobError, UsageError
from trawl.frontier.inspect import Failure, JobReport, SessionReport, json_line
from trawl.frontier.parts import is_held
from trawl.frontier.record_format import unpack
from trawl.frontier.redis import client
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.layout import (
    KEY_BYTES,
    Keys,
    end_of_lane,
    failed_parts,
    kept_of,
    place_of,
    start_of_lane,
    texts_of,
)
from trawl.frontier.redis.startup import check_head, open_job
from trawl.observe import decode_status

__all__ = ["ask_processes", "export_pending", "failures", "inspect_job", "order", "requeue_failed"]

T = TypeVar("T")

ASKED = 10.0  # seconds for which a question is asked at least
LOOK_EVERY = 0.1  # seconds between two looks for replies
AT_ONCE = 500  # maximum number of requests or lanes in one read


def inspect_job(url: str, *, has_scopes: bool = True) -> JobReport:
    """Report the content of the job at ``url``. Counting by scope reads every lane of the job."""
    return _asked(url, partial(_report, has_scopes=has_scopes))


def failures(url: str, limit: int, *, are_given_up: bool = False) -> list[Failure]:
    """Return the latest ``limit`` failed requests, latest first: those of hosts that were given up, or the others."""

    async def ask(ask: _Ask, keys: Keys, _: Address) -> list[Failure]:
        found: list[Failure] = []
        async for member in _failed(ask, keys):
            reason, record = failed_parts(member)
            if _is_given_up(member) is are_given_up:
                found.append(Failure(unpack(record).url, reason.decode("utf-8", "replace")))
                if len(found) == limit:
                    break
        return found

    return _asked(url, ask)


def requeue_failed(url: str, now_utc: datetime) -> int:
    """Queue the failed requests again, each at its old place and with all retries available, and return their number.

    A host that was given up before the wall time ``now_utc`` may be tried again.
    """
    inspect_job(url, has_scopes=False)  # check that the job exists, because open_job() would create it
    address = Address.parse(url)

    async def requeue() -> int:
        async with open_job(address, "fast", exports=False, works=False) as job:
            return len(await job.requeue_failed(now_utc.timestamp()))

    return trio.run(requeue)


def order(url: str, key: str, line: str, *, is_heard: bool) -> None:
    """Add an order to the job's list. Each process executes the order when it renews its lease.

    It replaces an earlier order with the same key. ``line`` has a number and the key before the order. A full list
    loses its oldest order if a process works on the job. Otherwise this raises UsageError and changes nothing.
    """

    async def ask(ask: _Ask, keys: Keys, address: Address) -> None:
        added = await ask(("order", [keys.head], [key, line, int(is_heard)]))
        if added != 1:
            words = "too many orders wait for a process: give all URLs to one `--add -`"
            raise UsageError(f"job {address.shown}: {words if added else 'there is no job of this name'}")

    _asked(url, ask)


def ask_processes(url: str, id: str, question: str, patience: float) -> list[SessionReport]:
    """Ask all processes of a job a question in one line, and return their sessions with their replies so far.

    A question with the same id is asked again. ``patience`` is in seconds.
    """

    async def asked(ask: _Ask, keys: Keys, address: Address) -> list[SessionReport]:
        until = trio.current_time() + patience
        while True:
            await ask(("ask", [keys.head], [id, question, int(max(patience, ASKED) * 1e6)]))
            sessions = (await _report(ask, keys, address, has_scopes=False)).sessions
            late = [each for each in sessions if each.works and each.lease_left > 0 and id not in each.replies]
            if not late or trio.current_time() >= until:
                return list(sessions)
            await trio.sleep(LOOK_EVERY)

    return _asked(url, asked)


def export_pending(url: str) -> Iterator[bytes]:
    """Yield each pending request as a line of JSON, by lane. Requests of hosts that were given up come last."""
    after = b""
    while True:

        async def ask(ask: _Ask, keys: Keys, _: Address, after: bytes = after) -> list[bytes]:
            start = after or start_of_lane(-(1 << 63))
            members: list[bytes] = await _members(ask, keys, start, b"\xff" * (KEY_BYTES + 1))
            return members

        members = _asked(url, ask)
        yield from (json_line(unpack(member[KEY_BYTES:])) for member in members)
        if len(members) < AT_ONCE:
            break
        after = members[-1] + b"\0"

    async def given_up(ask: _Ask, keys: Keys, _: Address) -> list[bytes]:
        return [failed_parts(member)[1] async for member in _failed(ask, keys) if _is_given_up(member)]

    yield from (json_line(unpack(record)) for record in _asked(url, given_up))


_Ask = Callable[[Call], Awaitable[Any]]


def _asked(url: str, read: Callable[[_Ask, Keys, Address], Awaitable[T]]) -> T:
    """Run ``read`` on an existing job through a new connection."""
    address = Address.parse(url)

    async def run() -> T:
        raised: Exception
        try:
            async with client.connect(address) as server:
                try:
                    return await read(await _checked(server, address), Keys(address.job), address)
                except (ValueError, TypeError, IndexError) as error:
                    words = f"job {address.shown}: its content can't be read: {error}"
                    raised = JobError(words, address.shown)
                except Exception as error:  # raised below, because the client's nursery would wrap the error in a group
                    raised = error
        except StoreConnectionError as error:
            raised = error
        if isinstance(raised, StoreConnectionError):
            raise JobError(f"job {address.shown}: its server can't be reached: {raised}", address.shown)
        raise raised

    return trio.run(run)


async def _checked(server: StoreServer, address: Address) -> _Ask:
    async def ask(call: Call) -> Any:
        return (await server.run([call]))[0]

    check_head(await ask(("head", [Keys(address.job).head], [0])), address)
    return ask


async def _report(ask: _Ask, keys: Keys, address: Address, *, has_scopes: bool) -> JobReport:
    head, pending, items, failed, flat, left, notes, _ = await ask(("state", keys.of_state, []))
    kept = kept_of(flat)
    told = texts_of(head)
    sessions = _sessions(told, left, dict(zip(notes[::2], notes[1::2], strict=True)))
    names = [session.name for session in sessions if session.lease_left > 0]
    given_up = 0
    if failed and has_scopes:  # counted only for a full report; otherwise, given-up requests count as failed
        given_up = sum([_is_given_up(member) async for member in _failed(ask, keys)])
    return JobReport(
        name=address.shown,
        owner=", ".join(names) or None,
        last_error="",
        pending=pending + given_up,
        leased=min(pending, sum([each.status.in_flight for each in sessions if each.status and each.lease_left > 0])),
        oldest_lease=None,
        failed=failed - given_up,
        given_up=given_up,
        seen=int(told.get("marks", "0")),
        items=items,
        scopes=await _scopes(ask, keys) if has_scopes else [],
        kept=kept,
        sessions=sessions,
        orders=told.get("orders", ""),
    )


def _sessions(head: Mapping[str, str], left: Sequence[bytes], notes: Mapping[bytes, bytes]) -> list[SessionReport]:
    """Return the sessions of a job, ordered by number."""
    found = []
    for session, microseconds in zip(left[::2], left[1::2], strict=True):
        number = session.decode()
        names = ("name", "works", "parts", "says", "replies")
        told = {what: notes.get(f"{number} {what}".encode(), b"") for what in names}
        status = decode_status(told["says"]) if told["says"] else None
        report = SessionReport(
            number=int(number),
            name=told["name"].decode("utf-8", "replace") or "?",
            works=told["works"] == b"1",
            exports=head.get("exporter") == number,
            parts=int(told["parts"] or 0),
            lease_left=int(microseconds) / 1e6,
            status=status,
            is_other_version=bool(told["says"]) and status is None,
            replies=_replies(told["replies"]),
        )
        found.append(report)
    return sorted(found, key=lambda report: report.number)


def _replies(blob: bytes) -> Mapping[str, bytes]:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # another version of trawl
        return msgspec.msgpack.decode(blob, type=dict[str, bytes]) if blob else {}
    return {}


async def _scopes(ask: _Ask, keys: Keys) -> list[tuple[str, int]]:
    """Count pending requests by scope. All records of a lane have the same scopes, except in lanes of held requests."""
    counts: Counter[str] = Counter()
    after = b""
    while found := await ask(("survey", [keys.queue], [after, AT_ONCE])):
        for count, first in zip(found[::2], found[1::2], strict=True):
            lane = place_of(first)[1]
            if is_held(lane):
                await _count_held(ask, keys, lane, counts)
                continue
            for scope, _ in unpack(first[KEY_BYTES:]).its_scopes:
                counts[scope] += count
        after = found[-1][:8] + b"\xff" * (KEY_BYTES - 7)
    return counts.most_common()


async def _count_held(ask: _Ask, keys: Keys, lane: int, counts: Counter[str]) -> None:
    after = start_of_lane(lane)
    while members := await _members(ask, keys, after, end_of_lane(lane)):
        for member in members:
            counts.update(scope for scope, _ in unpack(member[KEY_BYTES:]).its_scopes)
        after = members[-1] + b"\0"


async def _members(ask: _Ask, keys: Keys, after: bytes, below: bytes) -> list[bytes]:
    """Return the first requests between two keys."""
    _, found = await ask(("lanes", [keys.queue, keys.arrivals], ["", 0, after, below, AT_ONCE]))
    members: list[bytes] = found[1:]
    return members


async def _failed(ask: _Ask, keys: Keys) -> AsyncGenerator[bytes, None]:
    """Yield the failed requests, latest first."""
    after = 0
    while found := (await ask(("failed", [keys.failed], [after, AT_ONCE])))[::2]:
        for member in found:
            yield member
        after += len(found)


def _is_given_up(member: bytes) -> bool:
    return failed_parts(member)[0].startswith(HostGivenUp.WORDS.encode())
