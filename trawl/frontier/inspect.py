"""Reports on a job in a directory, for ``trawl job``. Its functions block.

Reading a job needs no lock and does not disturb a running process. A report shows the state after the last transaction
of that process. Queueing failed requests again takes the lock. No spider is needed, because callbacks are shown by
name. The functions raise UsageError if there is no job, and JobError if it is damaged, newer or unreadable.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import attrs
import msgspec

from trawl.frontier.errors import DATABASE_ERRORS, damage_error, job_error
from trawl.frontier.lock import JobLock, read_last_error, read_owner
from trawl.frontier.parts import HELD
from trawl.frontier.record_format import JobRecord, meta_and_notes, unpack
from trawl.frontier.sections import LEASES
from trawl.frontier.tables import GIVEN_UP, connect, connect_to_read, read_kept, requeue
from trawl.observe import CrawlStatus

__all__ = [
    "Failure",
    "JobReport",
    "LeasedRequest",
    "SessionReport",
    "export_pending",
    "failures",
    "inspect_job",
    "json_line",
    "requeue_failed",
]

AT_ONCE = 1000
"""Maximum number of rows in one read. During a long read, a running process could not shorten its log."""


@attrs.frozen
class LeasedRequest:
    """A leased request, and the time in UTC at which it was leased."""

    url: str
    since_utc: datetime


@attrs.frozen
class Failure:
    """A request that ended in an error. The reason is a sentence."""

    url: str
    reason: str


@attrs.frozen(kw_only=True)
class SessionReport:
    """One process that works on a job in a server.

    Attributes:
        name: The host and the id of the process.
        works: Whether the process sends requests. Otherwise it writes items or manages the job.
        exports: Whether the process writes the job's items to feeds.
        parts: Number of parts (of 1,024) that the process owns.
        lease_left: Remaining seconds of its lease. If negative, other processes may take its parts.
        status: The last status of the process; None if it has not reported one yet, or runs another version of trawl.
        is_other_version: Whether the process runs another version of trawl, whose status this version can't read.
        replies: Its replies to questions, by the id of the question.
    """

    number: int
    name: str
    works: bool = True
    exports: bool = False
    parts: int = 0
    lease_left: float = 0.0
    status: CrawlStatus | None = None
    is_other_version: bool = False
    replies: Mapping[str, bytes] = {}


@attrs.frozen(kw_only=True)
class JobReport:
    """Content of a job, as of its last transaction.

    Attributes:
        name: The job's directory or address.
        owner: The id of the process that is using the job; 0 if the id is unknown. If the job is in a server, the names
            of all its running sessions in one string. None if no process is using the job.
        last_error: Why the last process could not write to the job; "" if it could.
        pending: Number of requests that have not ended, including leased requests and requests of hosts that were given
            up.
        leased: Number of leased requests. If no process uses the job, the last process had leased them.
        failed: Number of failed requests, without requests of hosts that were given up. They can be queued again.
        given_up: Number of requests of hosts that were given up, which the next run sends again.
        seen: Number of fingerprints ever seen.
        items: Number of items that the feeds have not written yet.
        scopes: Number of pending requests of each throttling scope, largest first. A request counts in each of its
            scopes.
        kept: Saved values by name.
        sessions: The processes that work on the job; empty if the job is not in a server.
        orders: The orders to the processes of the job, one per line.
    """

    name: str
    owner: int | str | None
    last_error: str
    pending: int
    leased: int
    oldest_lease: LeasedRequest | None
    failed: int
    given_up: int
    seen: int
    items: int
    scopes: Sequence[tuple[str, int]]
    kept: Mapping[str, bytes]
    sessions: Sequence[SessionReport] = ()
    orders: str = ""


def inspect_job(directory: str | PathLike[str]) -> JobReport:
    """Report the content of the job in ``directory``."""
    path = Path(directory)
    with _reading(path) as connection:
        connection.execute("BEGIN")  # all reads see one state, even while a process writes
        kept = read_kept(connection)
        lanes = connection.execute("SELECT lane, count(*) FROM request GROUP BY lane").fetchall()
        leased, oldest = _leases(connection, kept.get(LEASES, b""))
        given_up = _count(connection, f"failed WHERE {GIVEN_UP}")
        return JobReport(
            name=str(path),
            owner=read_owner(path),
            last_error=read_last_error(path),
            pending=sum(count for _, count in lanes) + given_up,
            leased=leased,
            oldest_lease=oldest,
            failed=_count(connection, "failed") - given_up,
            given_up=given_up,
            seen=_count(connection, "seen"),
            items=_count(connection, "outbox"),
            scopes=_scopes(connection, lanes),
            kept=kept,
        )


def failures(directory: str | PathLike[str], limit: int, *, are_given_up: bool = False) -> list[Failure]:
    """Return the latest ``limit`` failed requests, latest first: those of hosts that were given up, or the others."""
    wanted = GIVEN_UP if are_given_up else f"NOT {GIVEN_UP}"
    statement = f"SELECT record, reason FROM failed WHERE {wanted} ORDER BY failed_at DESC, ord LIMIT ?"
    with _reading(Path(directory)) as connection:
        return [Failure(unpack(record).url, reason) for record, reason in connection.execute(statement, (limit,))]


def requeue_failed(directory: str | PathLike[str], now_utc: datetime) -> int:
    """Queue the failed requests again, each at its old place and with all retries available, and return their number.

    A host that was given up before the wall time ``now_utc`` may be tried again. Raises JobError if a process is using
    the job.
    """
    path = Path(directory)
    with _reading(path):  # check that the job exists, because connect() would create it
        pass
    lock = JobLock(path)
    try:
        with _mapped(path), closing(connect(path)[0]) as connection:
            connection.execute("BEGIN IMMEDIATE")
            queued = requeue(connection, now_utc.timestamp())
            connection.execute("COMMIT")
            return queued
    finally:
        lock.release()


def export_pending(directory: str | PathLike[str]) -> Iterator[bytes]:
    """Yield each pending request as a line of JSON, oldest first. Requests of hosts that were given up come last."""
    with _reading(Path(directory)) as connection:
        for source in ("request WHERE true", f"failed WHERE {GIVEN_UP}"):
            last = -(2**63)
            statement = f"SELECT ord, record FROM {source} AND ord > ? ORDER BY ord LIMIT ?"
            while rows := connection.execute(statement, (last, AT_ONCE)).fetchall():
                last = rows[-1][0]
                yield from (json_line(unpack(record)) for _, record in rows)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with _mapped(path), closing(connect_to_read(path)) as connection:
        yield connection


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        raise job_error(path, error) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise damage_error(path, f"its content can't be read: {error}") from error


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _leases(connection: sqlite3.Connection, told: bytes) -> tuple[int, LeasedRequest | None]:
    if not told:
        return 0, None
    leased, order, since = msgspec.msgpack.decode(told, type=tuple[int, int, float])
    row = connection.execute("SELECT record FROM request WHERE ord = ?", (order,)).fetchone()
    if row is None:
        return leased, None
    return leased, LeasedRequest(unpack(row[0]).url, datetime.fromtimestamp(since, UTC))


def _scopes(connection: sqlite3.Connection, lanes: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Count pending requests by scope. All records of a lane have the same, except in the lane of held requests."""
    counts: Counter[str] = Counter()
    for (record,) in connection.execute("SELECT record FROM request WHERE lane = ?", (HELD,)):
        counts.update(scope for scope, _ in unpack(record).its_scopes)
    for lane, count in lanes:
        if lane == HELD:
            continue
        (record,) = connection.execute("SELECT record FROM request WHERE lane = ? LIMIT 1", (lane,)).fetchone()
        for scope, _ in unpack(record).its_scopes:
            counts[scope] += count
    return counts.most_common()


def json_line(stored: JobRecord) -> bytes:
    """Return a pending request as a line of JSON. Values of types that JSON lacks are written as strings."""
    until = None if stored.until is None else datetime.fromtimestamp(stored.until, UTC)
    values = {
        "url": stored.url,
        "method": stored.method,
        "priority": stored.priority,
        "depth": stored.depth,
        "callback": stored.callback,
        "errback": stored.errback,
        "scopes": [scope for scope, _ in stored.its_scopes],
        "not_before": until,
        "dont_filter": stored.dont_filter,
        "headers": stored.headers,
        "cookies": stored.cookies,
        "body": stored.body,
        "meta": meta_and_notes(stored.meta)[0],
        "cb_kwargs": stored.cb_kwargs,
    }
    shown = {key: value for key, value in values.items() if value is not None and value is not False}
    try:
        return msgspec.json.encode(shown)
    except (TypeError, ValueError, OverflowError):
        return msgspec.json.encode(_plain(shown))


def _plain(value: Any) -> Any:
    """Return a value in which strings replace values that JSON lacks, such as a key that is a tuple."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return value
