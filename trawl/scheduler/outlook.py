"""Why something waits, read off where it waits (I11). Costs the choice nothing: it is worked out when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from trawl.scheduler.gates import OriginGate
from trawl.scheduler.lanes import PAGE, READY, Entry, Lane, PageLane, page_lane_id
from trawl.throttling.explain import Reason

if TYPE_CHECKING:
    from trawl.scheduler.choose import Chooser
    from trawl.scheduler.waiting import Room

__all__ = ["Group", "Stored", "pending_pages", "waiting", "why"]

Group: TypeAlias = "tuple[int, Reason]"
"""How many entries wait, and for what."""

Stored: TypeAlias = "Callable[[PageLane], int]"
"""How many entries of a lane of pages wait behind those that the core has."""

_NO_PLACE = Reason("", "places", inf, "CONCURRENT_REQUESTS")


def why(chooser: Chooser, subject: object, now: float) -> Reason | None:
    """Why a pending entry, its request, a lane of pages, or a scope (by its id) waits at ``now``; None: nothing does.

    An entry behind others of its lane waits for what the first of them waits for. A request is searched for among all
    that are pending. A scope that is open waits for what its requests wait for; one that is not in use for nothing.
    """
    if isinstance(subject, str):
        return _why_scope(chooser, subject, now)
    if isinstance(subject, tuple):
        lane = chooser.lanes.get(page_lane_id(subject))
        return None if lane is None else _why_lane(chooser, lane, now)
    entry = subject if isinstance(subject, Entry) else _entry_of(chooser, subject)
    if entry is None or not entry.is_pending:
        return None
    if entry.lane is None:
        return Reason("", "not_before", entry.not_before, "the request's own delay")
    return _why_lane(chooser, entry.lane, now)


def pending_pages(chooser: Chooser) -> list[Entry]:
    """Every page that waits, in no promised order: at the end of a crawl they are given back."""
    lined = [ticket[-1] for lane in chooser.lanes.values() for ticket in lane.queue]
    return [entry for entry in [*lined, *chooser.later.pending()] if entry.is_pending and not entry.is_direct]


def waiting(chooser: Chooser, now: float, most: int, stored: Stored | None = None) -> list[Group]:
    """What pending entries wait for, the largest groups first, at most ``most`` of them.

    Args:
        chooser: Whose entries.
        now: The instant.
        most: How many groups.
        stored: How many more entries of a lane of pages wait where the core does not see them; None: none do.
    """

    def size(lanes: Iterable[Lane]) -> int:
        return sum(len(lane.queue) + (stored(lane.page_lane) if stored and lane.kind == PAGE else 0) for lane in lanes)

    return nlargest(most, _groups(chooser, now, size), key=lambda group: group[0])


def _groups(chooser: Chooser, now: float, size: Callable[[Iterable[Lane]], int]) -> Iterator[Group]:
    for room in chooser.board.rooms.values():
        lanes = room.lanes()
        if lanes:
            yield size(lanes), _why_room(room, lanes[0], now)
    for gate in chooser.closed.values():
        count = size(gate.waiting())
        if count:
            yield count, gate.reason
    later = chooser.later.pending()
    if later:
        yield len(later), Reason("", "not_before", later[0].not_before, "the request's own delay")
    if chooser.in_flight >= chooser.places:
        ready = size(lane for lane in chooser.lanes.values() if lane.where is READY)
        if ready:
            yield ready, _NO_PLACE


def _why_lane(chooser: Chooser, lane: Lane, now: float) -> Reason | None:
    where = lane.where
    if isinstance(where, OriginGate):
        return where.reason
    if where is READY:
        return _NO_PLACE if chooser.in_flight >= chooser.places else None
    return None if where is None or isinstance(where, str) else _why_room(where, lane, now)


def _why_room(room: Room, lane: Lane, now: float) -> Reason:
    """What the best entry of a lane waits for, which waits in this room: the scope of its own that opens last."""
    reasons = [scope.reason(now, lane.amount_in(scope)) for scope in lane.scopes]
    worst = max(reasons, key=lambda reason: reason.until if reason.limit else -inf)
    if not worst.limit and room.withholds(lane):
        return Reason(room.scope.id, "claim", inf, "a request of several scopes goes first")
    return worst if worst.limit else room.scope.reason(now, lane.amount_in(room.scope))


def _why_scope(chooser: Chooser, scope_id: str, now: float) -> Reason | None:
    others: Reason | None = None
    for lane in chooser.lanes.values():
        for scope in lane.scopes:
            if scope.id == scope_id:
                reason = scope.reason(now, lane.amount_in(scope))
                if reason.limit:
                    return reason
                others = others or _why_lane(chooser, lane, now)
    return None if others is _NO_PLACE else others  # places are nothing of the scope's


def _entry_of(chooser: Chooser, request: object) -> Entry | None:
    for lane in chooser.lanes.values():
        for item in lane.queue:
            if item[3].request is request:
                return item[3]
    return next((entry for entry in chooser.later.pending() if entry.request is request), None)
