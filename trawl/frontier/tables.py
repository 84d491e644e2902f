"""SQL on the tables of a job, each function a part of a transaction; and the filter of duplicates above it.

Values that are read are checked as far as that costs next to nothing: their types, which SQLite does not enforce, and
whether rows are missing. Another program may have changed the database, and a silent loss is worse than an error.

A claimed fingerprint is in memory until its request is stored, and is stored in the same transaction. Beside those, the
fingerprints used last are kept in two generations: when the younger is full it replaces the older. So a crawl of common
size never reads the database for one, and a large crawl only for those that it has not met for a while.

A request with a time of its own is *held*: it stands in the table of requests in a lane that no other is in, ordered by
its time. The column of the priority has the wall time in microseconds before which it may not be sent. So held requests
are not in memory, and hold up nobody behind them. When its time has come, a request moves into its own lane.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs

from trawl.frontier.codec import repack, unpack
from trawl.frontier.errors import malformed

__all__ = [
    "HELD",
    "DupeFilter",
    "LaneHead",
    "LaneRow",
    "Row",
    "RowCounts",
    "Snapshot",
    "bring_forward",
    "due",
    "end",
    "first_due",
    "hold",
    "insert",
    "is_clock_set_back",
    "let_in",
    "read_kept",
    "read_lanes",
    "read_outbox_ends",
    "read_snapshot",
    "replace",
    "spill",
    "unspill",
    "wall_time",
    "which_are_seen",
]


class DupeFilter:
    """Fingerprints of requests seen before, as far as memory knows them.

    Args:
        known: All fingerprints that are stored, or None where they are too many to remember.
        count: How many are stored.
        generation: How many a generation holds.

    Attributes:
        count: Fingerprints ever claimed, those that are stored included.
    """

    __slots__ = ("_claimed", "_generation", "_is_complete", "_old", "_young", "count")

    def __init__(self, known: Iterable[bytes] | None, count: int, generation: int) -> None:
        self._claimed: set[bytes] = set()
        self._young: set[bytes] = set()
        self._old: set[bytes] = set(known or ())
        self._is_complete = known is not None
        self._generation = generation
        self.count: int = count

    def claim(self, fingerprint: bytes) -> bool | None:
        """Claim a fingerprint. Returns whether it was new; None: tell :meth:`settle` what the database says."""
        if fingerprint in self._claimed or fingerprint in self._young:
            return False
        if fingerprint in self._old:
            self._remember(fingerprint)
            return False
        self._claimed.add(fingerprint)
        self.count += 1
        return True if self._is_complete else None

    def settle(self, fingerprint: bytes, *, was_stored: bool) -> None:
        """Take the database's answer to a claim that memory could not decide."""
        if was_stored:
            self.withdraw(fingerprint)
            self._remember(fingerprint)

    def withdraw(self, fingerprint: bytes) -> None:
        """Forget a claim whose request was not stored; one that was stays."""
        if fingerprint in self._claimed:
            self._claimed.remove(fingerprint)
            self.count -= 1

    def stored(self, fingerprint: bytes) -> None:
        """Note that its request is stored, and the claim with it."""
        self._claimed.discard(fingerprint)
        self._remember(fingerprint)

    def _remember(self, fingerprint: bytes) -> None:
        if len(self._young) >= self._generation:
            self._is_complete &= not self._old
            self._old, self._young = self._young, set()
        self._young.add(fingerprint)


HELD = int.from_bytes(b"held", "big")
"""The number of their lane. Those of other lanes are hashes of 64 bits."""

AT_ONCE = 1000
"""Requests that are let in by one transaction."""


Row: TypeAlias = "tuple[int, int, int, float, bytes]"
"""Order, lane, minus priority, minus share, record."""

LaneRow: TypeAlias = "tuple[int, int, float, int, bytes]"
"""Of a lane's first record: the lane, minus priority, minus share, order, record."""

LaneHead: TypeAlias = "tuple[int, float, int, bytes]"
"""One of a lane's first records: minus priority, minus share, order, record."""

LAST_ORDER = 1 << 62
"""Orders of coming end there, half of what 64 bits hold."""

_FIRST = "SELECT priority, share, ord, record FROM request WHERE lane = ? ORDER BY priority, share, ord LIMIT ?"


@attrs.frozen
class Snapshot:
    """State of the database when a frontier is opened.

    Attributes:
        lanes: How many records each lane has, and its first, in the order of the firsts' coming.
        last_order: The largest order of coming, without its sign.
        seen: How many fingerprints were seen.
        marks: These fingerprints, or None where they are many.
        held: How many requests wait for a time of their own, in no lane.
        due: The time of the first of these, as :func:`wall_time` has it; None: there is none.
    """

    lanes: Sequence[tuple[int, LaneRow]]
    last_order: int
    seen: int
    marks: Sequence[bytes] | None
    held: int = 0
    due: int | None = None


class RowCounts:
    """Counts of rows, stored with each transaction and compared when the job is opened: lost rows are noticed.

    It is written with each transaction and compared when the job is opened. A job of an earlier release has none yet.

    Attributes:
        requests: Requests, leased or not.
        seen: Fingerprints.
    """

    __slots__ = ("_stored", "requests", "seen")

    def __init__(self) -> None:
        self.requests: int = 0
        self.seen: int = 0
        self._stored = (0, 0)

    def compare(self, connection: sqlite3.Connection, requests: int, seen: int) -> None:
        """Begin with counted rows.

        Raises:
            sqlite3.DatabaseError: It is not what the last transaction left.
        """
        counted = {"requests": requests, "seen": seen}
        names = {"requests": "pending requests", "seen": "seen fingerprints"}
        for name, value in connection.execute("SELECT name, value FROM state WHERE name IN ('requests', 'seen')"):
            if value != counted[name]:
                raise malformed(f"it has {counted[name]} {names[name]} and had {value}")
        self.requests, self.seen = requests, seen

    def write(self, connection: sqlite3.Connection) -> None:
        """Store the counts; called last in a transaction."""
        now = (self.requests, self.seen)
        if now != self._stored:
            rows = [("requests", self.requests), ("seen", self.seen)]
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
            self._stored = now


def read_kept(connection: sqlite3.Connection) -> dict[str, bytes]:
    """Read the saved values by name.

    Raises:
        sqlite3.DatabaseError: One of them is not bytes.
    """
    kept: dict[str, bytes] = dict(connection.execute("SELECT name, blob FROM kept"))
    for name, blob in kept.items():
        if type(name) is not str or type(blob) is not bytes:
            raise malformed(f"what it kept as {name!r} is not bytes")
    return kept


def read_outbox_ends(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the position up to which the feeds have the outbox, and that of its last item.

    Raises:
        sqlite3.DatabaseError: Its first items, or its last, are not there. Items missing between are found when they
            are read.
    """
    state = dict(connection.execute("SELECT name, value FROM state"))
    start, end = state.get("outbox_start", 0), state.get("outbox_end", 0)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < LAST_ORDER:
        raise malformed(f"its items can't be numbered from {start!r} to {end!r}")
    first, last = connection.execute("SELECT min(position), max(position) FROM outbox").fetchone()
    if (first, last) != ((None, None) if start == end else (start + 1, end)):
        raise malformed(f"items {start + 1} to {end} are to wait for the feeds, and {first} to {last} do")
    return start, end


def read_snapshot(connection: sqlite3.Connection, max_marks: int, row_counts: RowCounts) -> Snapshot:
    """Read the state of the database; ``marks`` is None if there are more than ``max_marks``.

    Raises:
        sqlite3.DatabaseError: It is not as the last transaction left it.
    """
    counts = connection.execute("SELECT lane, count(*) FROM request GROUP BY lane").fetchall()
    held = sum(pending for lane, pending in counts if lane == HELD)
    counts = [(lane, pending) for lane, pending in counts if lane != HELD]
    lanes = [(pending, (lane, *_heads(connection, lane, 1)[0])) for lane, pending in counts]
    lanes.sort(key=lambda lane: abs(lane[1][3]))
    edges = [
        abs(connection.execute(f"SELECT {edge}(ord) FROM {table}").fetchone()[0] or 0)  # depth first, they are negative
        for table in ("request", "failed")
        for edge in ("min", "max")
    ]
    if max(edges) >= LAST_ORDER:
        raise malformed(f"one of its requests has the order {max(edges)}")
    seen: int = connection.execute("SELECT count(*) FROM seen").fetchone()[0]
    row_counts.compare(connection, held + sum(pending for pending, _ in lanes), seen)
    marks = None
    if seen <= max_marks:
        marks = [row[0] for row in connection.execute("SELECT fingerprint FROM seen")]
        if not all(type(mark) is bytes for mark in marks):
            raise malformed("its seen fingerprints are not bytes")
    return Snapshot(lanes, max(edges), seen, marks, held, first_due(connection))


def insert(connection: sqlite3.Connection, rows: Sequence[Row], marks: Sequence[bytes], row_counts: RowCounts) -> None:
    """Store requests and fingerprints."""
    if rows:
        connection.executemany("INSERT INTO request (ord, lane, priority, share, record) VALUES (?, ?, ?, ?, ?)", rows)
        row_counts.requests += len(rows)
    if marks:
        new = connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(mark,) for mark in sorted(marks)])
        row_counts.seen += new.rowcount


def end(connection: sqlite3.Connection, order: int, failed: tuple[str, float] | None, row_counts: RowCounts) -> None:
    """Remove a request; with the reason of a failure and its wall time, move it to the failed ones."""
    if failed is not None:
        connection.execute(
            "INSERT INTO failed SELECT ord, lane, ?, ?, record FROM request WHERE ord = ?",
            (failed[1], failed[0], order),
        )
    row_counts.requests -= connection.execute("DELETE FROM request WHERE ord = ?", (order,)).rowcount


def replace(
    connection: sqlite3.Connection, order: int, rows: Sequence[Row], marks: Sequence[bytes], row_counts: RowCounts
) -> None:
    """Replace a request by another."""
    end(connection, order, None, row_counts)
    insert(connection, rows, marks, row_counts)


def spill(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Store items of a request that has not ended, each with its order and number."""
    connection.executemany("INSERT INTO spilled VALUES (?, ?, ?)", rows)


def unspill(connection: sqlite3.Connection, order: int) -> None:
    """Remove the spilled items of a request that will be sent again."""
    connection.execute("DELETE FROM spilled WHERE ord = ?", (order,))


def read_lanes(connection: sqlite3.Connection, wanted: Sequence[tuple[int, int]]) -> list[list[LaneHead]]:
    """Read the first records of each lane, as many as are wanted of it, with their sort keys."""
    return [_heads(connection, *each) for each in wanted]


def _heads(connection: sqlite3.Connection, lane: int, limit: int) -> list[LaneHead]:
    heads: list[LaneHead] = connection.execute(_FIRST, (lane, limit)).fetchall()
    for priority, share, order, record in heads:
        if type(record) is not bytes:
            raise malformed(f"its request {order} is not bytes")
        if type(priority) is not int or type(share) is not float:
            raise malformed(f"its request {order} has the priority {priority!r} and the share {share!r}")
    return heads


def which_are_seen(connection: sqlite3.Connection, marks: Sequence[bytes]) -> set[bytes]:
    """Return those of ``marks`` that were seen."""
    statement = "SELECT 1 FROM seen WHERE fingerprint = ?"
    return {mark for mark in marks if connection.execute(statement, (mark,)).fetchone() is not None}


def wall_time(until: float) -> int:
    """Return the value stored as priority for a wall time in seconds since 1970, rounded up."""
    return int(until * 1e6) + 2


def due(connection: sqlite3.Connection, now: int) -> list[tuple[int, bytes]]:
    """Read the first requests that are due at ``now``, in microseconds since 1970: the order and record of each."""
    statement = "SELECT ord, record FROM request WHERE lane = ? AND priority <= ? ORDER BY priority, share, ord LIMIT ?"
    rows: list[tuple[int, bytes]] = connection.execute(statement, (HELD, now, AT_ONCE)).fetchall()
    return rows


def let_in(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, float, int]]) -> int | None:
    """Move requests into their lanes. Returns the time of the first request still held; None if there is none.

    Args:
        connection: The database.
        rows: The lane, minus priority, minus share and order of each.
    """
    connection.executemany("UPDATE request SET lane = ?, priority = ?, share = ? WHERE ord = ?", rows)
    return first_due(connection)


def hold(connection: sqlite3.Connection, rows: Sequence[tuple[int, int]]) -> None:
    """Hold requests that are in lanes, each given by its order, until a time."""
    statement = "UPDATE request SET lane = ?, priority = ?, share = 0.0 WHERE ord = ?"
    connection.executemany(statement, [(HELD, until, order) for order, until in rows])


def first_due(connection: sqlite3.Connection) -> int | None:
    """Return the time of the first held request; None if there is none."""
    (first,) = connection.execute("SELECT min(priority) FROM request WHERE lane = ?", (HELD,)).fetchone()
    if first is not None and type(first) is not int:
        raise malformed(f"a request may go at {first!r}")
    return first


def is_clock_set_back(connection: sqlite3.Connection, now: float) -> bool:
    """Return whether the newest held request was stored later than ``now``, in seconds since 1970."""
    statement = "SELECT record FROM request WHERE lane = ? ORDER BY abs(ord) DESC LIMIT 1"
    row = connection.execute(statement, (HELD,)).fetchone()
    if row is None:
        return False
    stored = unpack(row[0])
    return stored.until is not None and stored.until - stored.wait > now + 1.0


def bring_forward(connection: sqlite3.Connection, now: float) -> None:
    """Limit waits after the clock was set back to ``now``: none is longer than when its request was stored."""
    last = -(2**63)
    statement = "SELECT ord, record FROM request WHERE lane = ? AND ord > ? ORDER BY ord LIMIT ?"
    while rows := connection.execute(statement, (HELD, last, AT_ONCE)).fetchall():
        last = rows[-1][0]
        changed = []
        for order, record in rows:
            stored = unpack(record)
            if stored.until is not None and stored.until > now + stored.wait:
                until = now + stored.wait
                changed.append((wall_time(until), repack(stored, until=until), order))
        connection.executemany("UPDATE request SET priority = ?, record = ? WHERE ord = ?", changed)
