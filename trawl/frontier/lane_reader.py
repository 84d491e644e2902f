"""Reads the best records of lanes from the database, when a decision needs more than memory has at hand."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import trio

from trawl.frontier.base import LaneKey, Record, SortKey
from trawl.frontier.commits import Commits
from trawl.frontier.shelf import Held, Shelf, Shelves
from trawl.frontier.tables import LaneHead, read_lanes

__all__ = ["LaneReader"]

LANES_AT_ONCE = 128
"""Lanes that are read with the one that is asked for, when a job of many lanes begins."""


class LaneReader:
    """Puts the best records of a lane at hand.

    What is leased is still in the database, and is passed over.

    Args:
        commits: The transactions in which is read.
        shelves: What memory knows of the lanes.
        leased: The orders of the records that are leased.

    Attributes:
        unread: Lanes of an earlier process that were not asked for yet, in their order.
    """

    __slots__ = ("_commits", "_leased", "_shelves", "unread")

    def __init__(self, commits: Commits, shelves: Shelves, leased: Container[int]) -> None:
        self._commits = commits
        self._shelves = shelves
        self._leased = leased
        self.unread: dict[LaneKey, None] = {}

    async def read(self, shelf: Shelf, wanted: int) -> None:
        """Have the ``wanted`` best records of a lane at hand, and a few more. A checkpoint.

        Somebody else may have taken them when it returns: look again.

        Raises:
            JobError: The database can't be read.
        """
        if shelf.reading is not None:
            await shelf.reading.wait()
            return
        ahead = self._shelves.ahead
        shelves = [shelf, *self._others(shelf)]
        limits = [ahead + each.leased + 1 for each in shelves]  # the one more says where the rest begins
        limits[0] += wanted
        for each in shelves:
            each.reading = trio.Event()

        def applied(found: list[list[LaneHead]]) -> None:
            for each, limit, rows in zip(shelves, limits, found, strict=True):
                self._refill(each, rows, are_all=len(rows) < limit)

        asked = [(each.number, limit) for each, limit in zip(shelves, limits, strict=True)]
        try:
            await self._commits.do(partial(read_lanes, wanted=asked), applied, is_writing=False)
        finally:
            for each in shelves:
                if each.reading is not None:
                    each.reading.set()
                each.reading = None
                self._shelves.forget_if_empty(each)

    def _others(self, shelf: Shelf) -> list[Shelf]:
        """Lanes that will be asked for next, because a crawl that resumes asks for all in their order."""
        others: list[Shelf] = []
        self.unread.pop(shelf.lane, None)
        while self.unread and len(others) < LANES_AT_ONCE:
            lane = next(iter(self.unread))
            del self.unread[lane]
            other = self._shelves.by_lane.get(lane)
            if other is not None and other.pending and not other.at_hand and other.reading is None:
                others.append(other)
        return others

    def _refill(self, shelf: Shelf, rows: list[LaneHead], *, are_all: bool) -> None:
        """Take over the best rows of a lane; a record that is at hand already stays the object it is."""
        known = {key: record for key, record in shelf.at_hand if isinstance(record, Record)}
        held: list[Held] = []
        for priority, share, order, blob in rows:
            if order not in self._leased:
                key: SortKey = (priority, share, order)
                held.append((key, known.get(key, blob)))
        beyond = None
        if not are_all:
            beyond = held.pop()[0] if held else rows[-1][:3]
        self._shelves.refill(shelf, held, beyond)
