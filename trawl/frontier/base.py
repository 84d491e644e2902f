"""The protocol of frontiers. They store pending requests by lane, and the frontier of a job also stores items.

A frontier does not apply time limits or the limits of scopes. It groups pending requests by *lane* (requests with the
same scopes and origin), leases the best requests of a lane, and remembers all fingerprints ever claimed.

The life of a record::

    claim_many ──► push_many ──► lease_many ──► acknowledge        finished; new requests were stored in the same step
        │                            │   └────► replace            a redirect or a retry replaces it and is leased
        └─ disclaim                  └────────► release            pending again, at its old place

A record with its own earliest time (``not_before``) is *held*: it is not in a lane and can't be leased until that time
has come and :meth:`Frontier.wake` moves it into its lane. So a held record need not be in memory, and it does not block
later records.

A leased request is not always sent. The scheduler leases the first requests of each lane in advance, because a
scheduling decision must not await. If a crawl is killed, it must not lose the results of a request, so one call passes
all of them and a backend can write them in one transaction.

The frontier of a job stores items too, in an *outbox* (:mod:`trawl.frontier.job`). If the process is killed after
writing items but before saving the position of the feeds, no item is written twice, because the next process first
truncates the feeds to the saved position.

A cancelled call has made either all of its changes or none. If the frontier stores on disk, the changes are on the disk
when a call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import attrs

from trawl.http import Request, host_scope
from trawl.passwords import without_passwords
from trawl.throttling.scopes import ScopeAmounts

__all__ = [
    "Amounts",
    "Counts",
    "Frontier",
    "FrontierStatistics",
    "LaneKey",
    "OutboxItem",
    "PushResult",
    "Record",
    "ScopeAmounts",
    "SortKey",
    "host_of_lane",
    "lane_key",
]

Amounts: TypeAlias = "tuple[float | None, ...]"
"""The amounts that a request names, in the order of its scopes; None for a scope without an amount.

Empty if no scope has an amount.
"""

LaneKey: TypeAlias = "tuple[tuple[str, ...], str] | tuple[tuple[str, ...], str, Amounts]"
"""Sorted scope ids and the origin, followed by the amounts if the request names any."""

SortKey: TypeAlias = "tuple[int, float, int]"
"""Order within a lane: negated priority, negated share of a quota, and arrival order. The smallest goes first."""

_ORDINARY: tuple[float, float, bool, bool] = (0.0, 0.0, False, False)


def lane_key(scopes: ScopeAmounts, origin: str, amounts: Amounts = (), *, is_exempt: bool = False) -> LaneKey:
    """Return the key of the lane for requests with these scopes, origin and amounts.

    An exempt request does not wait for its scopes, so it must not be queued behind requests that do. It goes into the
    lane of requests without scopes.
    """
    if is_exempt:
        return (), origin
    ids = tuple([id for id, _ in scopes])
    return (ids, origin, amounts) if amounts else (ids, origin)


def host_of_lane(lane: LaneKey) -> str:
    """Return the host of a lane's requests, as ``trawl.http.host_scope`` does; "" if they may have several hosts."""
    origin = lane[1]
    return host_scope(f"http:{origin}" if origin.startswith("//") else origin) if origin else ""


class Record:
    """A pending request with the scopes, origin and times that were set when it was admitted.

    Attributes:
        request: The request.
        scopes: The throttling scopes of the request, with the amounts that the request is expected to use.
        origin: Its origin as returned by ``trawl.http.origin_of``. If the request does not wait for robots.txt, the
            origin is empty or has no scheme.
        fingerprint: The fingerprint claimed for the request, 16 bytes; None if duplicates are wanted (``dont_filter``).
        not_before: Event loop time, in seconds, before which the request must not be sent; 0.0 if there is none.
        share: The first amount that the request names; 0.0 if it names none. Within a lane, requests with larger shares
            go first.
        lane: The key of its lane, computed once. The key contains the amounts that the request names, even if their
            scopes have no quota, because a quota may be set while the request is pending. Requests with different
            amounts are in different lanes, so that a small request can pass a large one that exceeds the remaining
            quota.
        is_diverted: Whether middleware has changed the request, so that its scopes and origin are those of the changed
            request.
        is_exempt: Whether the request takes no slot in its scopes (meta ``dont_throttle``). Always false for a diverted
            record.
        order: Arrival order, set by the frontier when the record is pushed or replaces another. Later records have
            larger values.
        found_at: Event loop time, in seconds, at which the request was found, or the start of this run if it was found
            in an earlier run. None for a redirect or retry that replaces a record.
        stored: The encoded record, for use by the frontier only.
    """

    __slots__ = ("_special", "fingerprint", "found_at", "lane", "order", "request", "scopes", "stored")

    def __init__(
        self,
        request: Request,
        scopes: ScopeAmounts,
        origin: str,
        fingerprint: bytes | None = None,
        not_before: float = 0.0,
        share: float = 0.0,
        amounts: Amounts = (),
        *,
        is_diverted: bool = False,
    ) -> None:
        self.request: Request = request
        self.scopes: ScopeAmounts = scopes
        self.fingerprint: bytes | None = fingerprint
        self.order: int = 0
        self.found_at: float | None = None
        self.stored: object = None
        is_exempt = not is_diverted and bool(request.meta_get("dont_throttle"))
        self.lane: LaneKey = lane_key(scopes, origin, amounts, is_exempt=is_exempt)
        # Few records have these values. All other records share one tuple, because each further slot would cost memory
        # in every pending request.
        is_special = not_before or share or is_diverted or is_exempt
        self._special = (not_before, share, is_diverted, is_exempt) if is_special else _ORDINARY

    @classmethod
    def ordinary(
        cls,
        request: Request,
        scopes: ScopeAmounts,
        lane: LaneKey,
        fingerprint: bytes | None,
        order: int,
        found_at: float | None,
    ) -> Record:
        """Return a record with the values of an earlier ordinary record."""
        untyped: Any = cls  # mypyc's type of a compiled class lacks __new__
        record: Record = untyped.__new__(cls)
        record.request = request
        record.scopes = scopes
        record.lane = lane
        record.fingerprint = fingerprint
        record.order = order
        record.found_at = found_at
        record.stored = None
        record._special = _ORDINARY
        return record

    @property
    def is_ordinary(self) -> bool:
        """True if the record has no earliest time and no share, and is not diverted or exempt."""
        return self._special is _ORDINARY

    @property
    def origin(self) -> str:
        """See ``Attributes`` of the class."""
        return self.lane[1]

    @property
    def amounts(self) -> Amounts:
        """The amounts in the key of the record's lane; empty if the request names no amounts or is exempt."""
        return self.lane[2] if len(self.lane) == 3 else ()

    @property
    def not_before(self) -> float:
        """See ``Attributes`` of the class."""
        return self._special[0]

    @not_before.setter
    def not_before(self, not_before: float) -> None:
        self._special = (not_before, *self._special[1:])

    @property
    def share(self) -> float:
        """See ``Attributes`` of the class."""
        return self._special[1]

    @share.setter
    def share(self, share: float) -> None:
        self._special = (self._special[0], share, *self._special[2:])

    @property
    def is_diverted(self) -> bool:
        """See ``Attributes`` of the class."""
        return self._special[2]

    @property
    def is_exempt(self) -> bool:
        """See ``Attributes`` of the class."""
        return self._special[3]

    def __repr__(self) -> str:
        return without_passwords(f"<Record {self.order} {self.request.method} {self.request.url}>")


@attrs.frozen
class FrontierStatistics:
    """Counts of the records in a frontier.

    Attributes:
        pending: Records that are stored and not leased.
        leased: Records that are leased and neither acknowledged nor released.
        seen: Fingerprints ever claimed.
        lanes: Lanes with pending records.
        held: Pending records that wait for their earliest time (``not_before``).
    """

    pending: int
    leased: int
    seen: int
    lanes: int
    held: int = 0


@attrs.frozen
class PushResult:
    """The result of storing requests.

    Attributes:
        here: Records that are now pending in this frontier, in the order in which they were passed.
        seen: Records that were not stored, because their fingerprints were already seen, although
            :meth:`Frontier.claim_many` had reported these fingerprints as new.
        elsewhere: Records that are stored and will be sent by another session of the job.
    """

    here: Sequence[Record]
    seen: Sequence[Record] = ()
    elsewhere: Sequence[Record] = ()


class Frontier(Protocol):
    """Store of a crawl's pending requests. Every backend passes the same contract suite."""

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Mark ``fingerprints`` as seen, and return for each whether it was new.

        If a fingerprint is passed twice, only the first is new.

        A frontier that keeps the seen marks in a server may report a fingerprint as new although it was stored long ago
        or by another process. The call that should store the request then skips the request and reports it in
        :attr:`PushResult.seen`.
        """

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Forget the claims of requests that were not pushed."""

    def refusal(self, record: Record) -> str | None:
        """Return why ``record`` can't be stored, with the field and the fix; None if it can be stored.

        The caller calls this for every record before it pushes the record or replaces another record with it. Does no
        I/O.
        """

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store ``records`` in this order. The claims of their fingerprints become permanent in the same step.

        Returns:
            The records that are pending here. These are all records, unless other processes work on the same job.

        Raises:
            ValueError: If :meth:`refusal` returns a reason for one of the records. No record is stored.
        """

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Lease up to ``limit`` records of a lane, best first.

        Each record stays leased until the caller ends the lease with one of the methods below.
        """

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Store items of a request whose callback is still running, so that they need not all stay in memory.

        When the lease is acknowledged, these items enter the outbox before the items passed with the acknowledgement.
        They are discarded if the lease is released or the process ends first.
        """

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """End a lease and store its results in one step: requests, their claims, and items for the outbox.

        Args:
            lease: The lease to end.
            outputs: Requests that the callback yielded.
            items: Encoded items that the callback yielded; empty without a job.
            failure: Why the request failed, as a sentence; None if it did not fail. A job keeps failed requests, so
                that they can be queued again.

        Returns:
            The ``outputs`` that are pending here. These are all outputs, unless other processes work on the same job.

        Raises:
            ValueError: If :meth:`refusal` returns a reason for an output, or if there are items but no outbox. Nothing
                is changed.
        """

    async def replace(self, lease: Record, record: Record) -> bool:
        """Replace a leased record with ``record`` (the target of a redirect, or a retry) in one step.

        The new record is leased immediately. It gets a new ``order``, so it is sorted after records of equal priority.

        Returns:
            True if the new record is leased here; False if it was stored for another process that works on the same
                job.
        """

    async def release(self, leases: Iterable[Record]) -> None:
        """Release leases. Each record returns to its old place in its lane, or is held until its earliest time."""

    async def drop(self, host: str, leases: Sequence[Record], starts: Callable[[int, int], None]) -> int:
        """Remove the pending records of a host and ``leases`` in one step, and return their number.

        Their fingerprints stay seen. Other leases of the host stay leased.

        Args:
            host: The host, as in ``trawl.http.host_scope``.
            leases: Leases of the host whose requests were not sent.
            starts: Called before the step with the number of records to remove and the next arrival order, so that the
                step stores the caller's count. All of these records have smaller orders (absolute values).
        """

    def next_due(self) -> float:
        """Return the event loop time at which the first held record is due; infinity if there is none. Does no I/O."""

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Move held records that are due at the event loop time ``now`` into their lanes, and return these lanes.

        It may leave some due records for the next call. :meth:`next_due` then returns a time in the past.
        """

    def held_until(self, request: Request) -> float | None:
        """Return the event loop time until which this request object is held; None if unknown or not held.

        May be slow.
        """

    def lanes(self) -> Sequence[LaneKey]:
        """Return the lanes with records that are stored and not leased, in arrival order.

        Called once, when a crawl starts.
        """

    def best(self, lane: LaneKey) -> SortKey | None:
        """Return the key of the best pending record of a lane, excluding leased records; None if there is none.

        Does no I/O.
        """

    def pending_in(self, lane: LaneKey) -> int:
        """Return the number of pending records of a lane, excluding leased records. Does no I/O."""

    def lane_of(self, request: Request) -> LaneKey | None:
        """Return the lane in which this request, or an equal request, is stored and not leased; None if unknown."""

    def statistics(self) -> FrontierStatistics:
        """Return the current counts. Does no I/O."""

    async def aclose(self) -> None:
        """Close the frontier. No acknowledged change is lost."""


@attrs.frozen
class OutboxItem:
    """An item of an acknowledged request, waiting to be written to the feeds.

    Attributes:
        position: Its position in the outbox: 1 for the first item of the job, without gaps.
        item: The encoded item, as it was passed in.
    """

    position: int
    item: bytes


class Counts(NamedTuple):
    """The counts of all sessions since the first of the current ones started. Errors are failed callbacks."""

    pages: int = 0
    in_flight: int = 0
    items: int = 0
    errors: int = 0
