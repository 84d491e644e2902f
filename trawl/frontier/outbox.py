"""The outbox of a job: items of acknowledged requests, in order, until the feeds have them.

An item comes in with the transaction that acknowledges its request and leaves with the one that stores how far the
feeds have come. Those that came last are kept in memory too, within a bound, because the writer of the feeds asks for
them at once.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence

from trawl.frontier.base import OutboxItem
from trawl.frontier.trouble import malformed

__all__ = ["Outbox"]

TAIL_BYTES = 1 << 20
"""Bytes of the items that came last and are kept in memory."""

READ_BYTES = 1 << 20
"""Bytes after which a reading from the database stops."""


class Outbox:
    """Positions of the outbox, and its last items.

    Two threads meet here, never at once: ``add`` and ``drop`` run inside a transaction; the others in Trio's thread.

    Args:
        start: The position up to which the feeds have it.
        end: The position of the last item.

    Attributes:
        start: The position up to which the feeds have it.
        end: The position of the last item that is in for good.
    """

    __slots__ = ("_added", "_tail", "_tail_bytes", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start: int = start
        self.end: int = end
        self._added = end
        self._tail: deque[OutboxItem] = deque()
        self._tail_bytes = 0

    def add(
        self, connection: sqlite3.Connection, order: int, items: Sequence[bytes], *, is_spilled: bool
    ) -> list[OutboxItem] | None:
        """In a transaction: put a request's items in, those it spilled first.

        Returns what :meth:`added` is to be told: the items, or None where they are too many to be looked at here.
        """
        if is_spilled:
            moved = connection.execute(
                "INSERT INTO outbox (position, item) SELECT ? + n, item FROM spilled WHERE ord = ? ORDER BY n",
                (self._added, order),
            ).rowcount
            connection.execute("DELETE FROM spilled WHERE ord = ?", (order,))
            self._added += moved
        entries = [OutboxItem(self._added + n, item) for n, item in enumerate(items, start=1)]
        self._added += len(entries)
        connection.executemany("INSERT INTO outbox VALUES (?, ?)", [(each.position, each.item) for each in entries])
        return None if is_spilled else entries

    def added(self, entries: list[OutboxItem] | None, end: int) -> None:
        """The transaction has ended: the items up to ``end`` are in."""
        self.end = end
        if entries is None:
            self._tail.clear()
            self._tail_bytes = 0
            return
        self._tail.extend(entries)
        self._tail_bytes += sum(len(each.item) for each in entries)
        while self._tail_bytes > TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().item)

    @property
    def next_position(self) -> int:
        """In a transaction: the position of the last item that was put in, be it for good or not."""
        return self._added

    def after(self, position: int, most: int) -> list[OutboxItem] | None:
        """Up to ``most`` items after ``position`` from memory; None where they have to be read."""
        if position >= self.end:
            return []
        if not self._tail or self._tail[0].position > position + 1:
            return None
        first = position + 1 - self._tail[0].position
        return [self._tail[i] for i in range(first, min(first + most, len(self._tail)))]

    def done(self, position: int) -> None:
        """The feeds have all up to ``position``.

        Raises:
            ValueError: There is no such item yet, or a later one was told before.
        """
        if not self.start <= position <= self.end:
            raise ValueError(f"the feeds can't be at {position}: the outbox goes from {self.start} to {self.end}")
        self.start = position
        while self._tail and self._tail[0].position <= position:
            self._tail_bytes -= len(self._tail.popleft().item)

    @staticmethod
    def read(connection: sqlite3.Connection, position: int, most: int) -> list[OutboxItem]:
        """Up to ``most`` items after ``position`` from the database, fewer where they are large.

        Raises:
            sqlite3.DatabaseError: One of them is not there, or is no data.
        """
        found: list[OutboxItem] = []
        size = 0
        rows = connection.execute(
            "SELECT position, item FROM outbox WHERE position > ? ORDER BY position LIMIT ?", (position, most)
        )
        for row in rows:
            if row[0] != position + len(found) + 1 or type(row[1]) is not bytes:
                raise malformed(f"item {position + len(found) + 1}, which waits for the feeds, is not there")
            found.append(OutboxItem(*row))
            size += len(found[-1].item)
            if size >= READ_BYTES:
                break
        rows.close()
        return found
