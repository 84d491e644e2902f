"""Stored requests with a time of their own: held apart from all lanes until it has come.

They are in the table of requests like all others, in a lane of their own, ordered by their time: the column of the
priority has the wall time in microseconds before which they may not be sent. So none of them is in memory, and none
holds up those behind it. When its time has come, a request moves into its own lane.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from trawl.frontier.codec import repack, unpack
from trawl.frontier.errors import malformed

__all__ = ["HELD", "bring_forward", "due", "first_due", "hold", "is_clock_set_back", "let_in", "wall_time"]

HELD = int.from_bytes(b"held", "big")
"""The number of their lane. Those of other lanes are hashes of 64 bits."""

AT_ONCE = 1000
"""Requests that are let in by one transaction."""


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
