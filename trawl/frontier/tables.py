"""What is done to a job's tables, as functions of a connection; each is a part of somebody's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

import attrs

__all__ = [
    "Found",
    "LaneHead",
    "LaneRow",
    "Row",
    "end",
    "insert",
    "read_lanes",
    "replace",
    "spill",
    "survey",
    "unspill",
    "which_are_seen",
]

Row: TypeAlias = "tuple[int, int, int, float, bytes]"
"""Order, lane, minus priority, minus share, record."""

LaneRow: TypeAlias = "tuple[int, int, float, int, bytes]"
"""Of a lane's first record: the lane, minus priority, minus share, order, record."""

LaneHead: TypeAlias = "tuple[int, float, int, bytes]"
"""One of a lane's first records: minus priority, minus share, order, record."""

_FIRST = "SELECT priority, share, ord, record FROM request WHERE lane = ? ORDER BY priority, share, ord LIMIT ?"


@attrs.frozen
class Found:
    """What a frontier takes from its database when it is opened.

    Attributes:
        lanes: How many records each lane has, and its first, in the order of the firsts' coming.
        last_order: The largest order of coming, without its sign.
        seen: How many fingerprints were seen.
        marks: These fingerprints, or None where they are many.
    """

    lanes: Sequence[tuple[int, LaneRow]]
    last_order: int
    seen: int
    marks: Sequence[bytes] | None


def survey(connection: sqlite3.Connection, most_marks: int) -> Found:
    """Look through the database; ``marks`` is left out where there are more than ``most_marks``."""
    counts = connection.execute("SELECT lane, count(*) FROM request GROUP BY lane").fetchall()
    lanes = [(pending, (lane, *connection.execute(_FIRST, (lane, 1)).fetchone())) for lane, pending in counts]
    lanes.sort(key=lambda lane: abs(lane[1][3]))
    edges = [
        abs(connection.execute(f"SELECT {edge}(ord) FROM {table}").fetchone()[0] or 0)  # depth first, they are negative
        for table in ("request", "failed")
        for edge in ("min", "max")
    ]
    seen: int = connection.execute("SELECT count(*) FROM seen").fetchone()[0]
    marks = None
    if seen <= most_marks:
        marks = [row[0] for row in connection.execute("SELECT fingerprint FROM seen")]
    return Found(lanes, max(edges), seen, marks)


def insert(connection: sqlite3.Connection, rows: Sequence[Row], marks: Sequence[bytes]) -> None:
    """Store requests and their marks in the seen set."""
    if rows:
        connection.executemany("INSERT INTO request (ord, lane, priority, share, record) VALUES (?, ?, ?, ?, ?)", rows)
    if marks:
        connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(mark,) for mark in sorted(marks)])


def end(connection: sqlite3.Connection, order: int, failed: tuple[str, float] | None) -> None:
    """End a request; with the reason of a failure and its wall time, it is kept among the failed."""
    if failed is not None:
        connection.execute(
            "INSERT INTO failed SELECT ord, lane, ?, ?, record FROM request WHERE ord = ?",
            (failed[1], failed[0], order),
        )
    connection.execute("DELETE FROM request WHERE ord = ?", (order,))


def replace(connection: sqlite3.Connection, order: int, rows: Sequence[Row], marks: Sequence[bytes]) -> None:
    """Put a request in the place of another."""
    end(connection, order, None)
    insert(connection, rows, marks)


def spill(connection: sqlite3.Connection, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Store items of a request that has not ended, each with its order and its number among them."""
    connection.executemany("INSERT INTO spilled VALUES (?, ?, ?)", rows)


def unspill(connection: sqlite3.Connection, order: int) -> None:
    """Forget the items that a request spilled: it will be sent again."""
    connection.execute("DELETE FROM spilled WHERE ord = ?", (order,))


def read_lanes(connection: sqlite3.Connection, wanted: Sequence[tuple[int, int]]) -> list[list[LaneHead]]:
    """The first records of each lane, as many as are wanted of it, each with what its lane is ordered by."""
    return [connection.execute(_FIRST, each).fetchall() for each in wanted]


def which_are_seen(connection: sqlite3.Connection, marks: Sequence[bytes]) -> set[bytes]:
    """Those of ``marks`` that are in the seen set."""
    statement = "SELECT 1 FROM seen WHERE fingerprint = ?"
    return {mark for mark in marks if connection.execute(statement, (mark,)).fetchone() is not None}
