"""The protocol of frontiers, stores of pending requests by lane, and of what a job keeps besides.

A frontier only stores. It knows nothing of time limits or scopes: it groups pending requests by *lane* (those that
share scopes and origin), leases the best of a lane on request, and remembers all fingerprints ever claimed.

The life of a record::

    claim_many ──► push_many ──► lease_many ──► acknowledge        done; its children were pushed in the same step
        │                            │   └────► replace            a redirect or a retry took its place, still leased
        └─ disclaim                  └────────► release            given back, to its old place

A record with a time of its own (``not_before``) is *held*: it is in no lane, and can't be leased, until that time has
come and :meth:`Frontier.wake` lets it in. So held records need not be in memory, and hold up nobody behind them.

A lease is not a promise that the request is sent: heads of lanes are leased ahead, so that a decision never awaits.
Everything a crawl must not lose at a kill goes through one call, which a backend can make one transaction.

A frontier of a job keeps items too, in an *outbox*: those of a request enter it in the step that acknowledges the
request, each under the next position. The writer of the feeds reads the outbox from the position that the feeds have
reached, and records that with the job (:mod:`trawl.frontier.job`). A kill between the two repeats nothing: what the
feeds hold beyond the recorded position is cut away first.

A call that is cancelled has either done nothing or all it was to do; one that returns is on disk, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from trawl.http import Request
from trawl.passwords import without_passwords
from trawl.throttling.scopes import ScopeAmounts

__all__ = [
    "Amounts",
    "Frontier",
    "FrontierStatistics",
    "LaneKey",
    "OutboxItem",
    "PushResult",
    "Record",
    "ScopeAmounts",
    "SortKey",
    "lane_key",
]

Amounts: TypeAlias = "tuple[float | None, ...]"
"""The amounts that a request names, in the order of its scopes; None: not named. Empty: none is."""

LaneKey: TypeAlias = "tuple[tuple[str, ...], str] | tuple[tuple[str, ...], str, Amounts]"
"""Scope ids, sorted, and the origin; and the amounts, where any is named."""

SortKey: TypeAlias = "tuple[int, float, int]"
"""Order within a lane: minus priority, minus the share of a quota, and the order of coming. The least goes first."""

_ORDINARY: tuple[float, float, bool, bool] = (0.0, 0.0, False, False)


def lane_key(scopes: ScopeAmounts, origin: str, amounts: Amounts = (), *, is_exempt: bool = False) -> LaneKey:
    """Make the key of the lane for requests of these scopes, origin and amounts.

    An exempt request needs none of its scopes, so those that do need them must not be before it: it is in the lane of
    requests without scopes.
    """
    if is_exempt:
        return (), origin
    ids = tuple([id for id, _ in scopes])
    return (ids, origin, amounts) if amounts else (ids, origin)


class Record:
    """A pending request with what was decided when it was admitted.

    Attributes:
        request: The request.
        scopes: Its throttling scopes with the amounts it expects to use.
        origin: Its origin, as ``trawl.http.origin_of`` says; empty, or without its scheme, where it has no gate.
        fingerprint: 16 bytes that were claimed for it; None if duplicates are wanted (``dont_filter``).
        not_before: The instant on the run clock before which it may not be sent; 0.0 for none.
        share: The first amount that it names; 0.0 where it names none. The larger goes first in a lane.
        lane: The key of its lane, made once, with the amounts that it names, whether or not their scopes have a quota
            (one may be set while it waits). Requests of different amounts are in different lanes, so that one that fits
            passes one that does not (F11).
        is_diverted: Its scopes and origin are those of the request that its middleware last made of it.
        is_exempt: It takes no slot in its scopes (meta ``dont_throttle``); a diverted record always does.
        order: Given by the frontier when it is pushed or replaced: later is larger.
        found_at: The instant on the run clock, in seconds, at which it was taken in, with a job at the earliest the
            beginning of this run; None: it takes the place of another.
        stored: The frontier's own: the record as it writes it.
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
        # Values that few records have, in a tuple that the others share: each slot is memory of every pending request.
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
        """Make a record of values that another had, which was ordinary."""
        untyped: Any = cls  # compiled, a class has no __new__ that mypyc knows of
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
        """True if it has no time of its own and no share, and is neither diverted nor exempt."""
        return self._special is _ORDINARY

    @property
    def origin(self) -> str:
        """See the attribute of this name."""
        return self.lane[1]

    @property
    def amounts(self) -> Amounts:
        """The amounts that make its lane; empty where it names none, or is exempt."""
        return self.lane[2] if len(self.lane) == 3 else ()

    @property
    def not_before(self) -> float:
        """See the attribute of this name."""
        return self._special[0]

    @not_before.setter
    def not_before(self, not_before: float) -> None:
        self._special = (not_before, *self._special[1:])

    @property
    def share(self) -> float:
        """See the attribute of this name."""
        return self._special[1]

    @share.setter
    def share(self, share: float) -> None:
        self._special = (self._special[0], share, *self._special[2:])

    @property
    def is_diverted(self) -> bool:
        """See the attribute of this name."""
        return self._special[2]

    @property
    def is_exempt(self) -> bool:
        """See the attribute of this name."""
        return self._special[3]

    def __repr__(self) -> str:
        return without_passwords(f"<Record {self.order} {self.request.method} {self.request.url}>")


@attrs.frozen
class FrontierStatistics:
    """Counts of the records in a frontier.

    Attributes:
        pending: Records that are stored and not leased.
        leased: Records that are leased and neither acknowledged nor given back.
        seen: Fingerprints ever claimed.
        lanes: Lanes with something pending.
        held: Of those pending, how many wait for a time of their own.
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
        here: Those that are pending in this frontier now, in their order.
        seen: Those that were not stored: their fingerprints were seen before, though :meth:`Frontier.claim_many` did
            not know it.
        elsewhere: Those that are stored, and pending with another session of the job, which sends them.
    """

    here: Sequence[Record]
    seen: Sequence[Record] = ()
    elsewhere: Sequence[Record] = ()


class Frontier(Protocol):
    """Store of a crawl's pending requests. Every backend passes the same contract suite."""

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Mark ``fingerprints`` as seen; True for each that was new. The same one twice in a call is new once.

        A frontier that would have to ask a server for it may say that one is new which was stored long ago, or by
        another process: then the call that is to store the request does not, and says so (:attr:`PushResult.seen`).
        """
        ...

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Forget claims whose requests were not pushed after all."""
        ...

    def refusal(self, record: Record) -> str | None:
        """Return the reason why ``record`` can't be stored, with the part and what to do; None when it can.

        Asked of every record before it is pushed or replaces another. Costs no I/O.
        """
        ...

    async def push_many(self, records: Sequence[Record]) -> PushResult:
        """Store ``records``, whose fingerprints are claimed, in this order; their claims become lasting with it.

        Returns:
            Which of them are pending here: all, unless other processes work on the same job.

        Raises:
            ValueError: :meth:`refusal` has a reason against one of them; none is stored.
        """
        ...

    async def lease_many(self, lane: LaneKey, limit: int) -> list[Record]:
        """Take up to ``limit`` of a lane's records, best first. Each is the caller's until one of the calls below."""
        ...

    async def spill(self, lease: Record, items: Sequence[bytes]) -> None:
        """Take items of a request whose callback still runs, so that memory need not hold them all (C4).

        They come into the outbox when the lease is acknowledged, before the items given then, and are gone if it is
        given back or the process ends before.
        """
        ...

    async def acknowledge(
        self, lease: Record, outputs: Sequence[Record] = (), items: Sequence[bytes] = (), failure: str | None = None
    ) -> PushResult:
        """End a lease, and store what came of it, in one step: requests, their claims, and items for the outbox.

        Args:
            lease: The lease to end.
            outputs: Requests that came of it.
            items: Items that came of it, encoded; only with a job.
            failure: Reason in a sentence if it failed: a job keeps the request, so that it can be queued again.
                None: it has not failed.

        Returns:
            Which of ``outputs`` are pending here: all, unless other processes work on the same job.

        Raises:
            ValueError: :meth:`refusal` has a reason against an output, or there are items and no outbox; nothing was
                done.
        """
        ...

    async def replace(self, lease: Record, record: Record) -> bool:
        """Put ``record`` (a redirect's target, or a retry) in place of a leased one, in one step.

        The new record is leased at once and goes behind its equals: its ``order`` is new.

        Returns:
            True: so it is. False: it is stored, and is with another process that works on the same job.
        """
        ...

    async def release(self, leases: Iterable[Record]) -> None:
        """Give leases back; each keeps its old place in its lane, or is held until its time has come."""
        ...

    def next_due(self) -> float:
        """The instant on the run clock at which the first of those held may go; infinity for none. Costs no I/O."""
        ...

    async def wake(self, now: float) -> Sequence[LaneKey]:
        """Let records whose time has come at the instant ``now`` into their lanes, and name these.

        It may leave some to the next call, which :meth:`next_due` then tells.
        """
        ...

    def held_until(self, request: Request) -> float | None:
        """The instant until which this very request is held; None: it is not, or only the disk knows. May search."""
        ...

    def lanes(self) -> Sequence[LaneKey]:
        """The lanes with something stored and not leased, in the order of coming; asked once, when a crawl begins."""
        ...

    def best(self, lane: LaneKey) -> SortKey | None:
        """The key of the best record stored in a lane and not leased; None when there is none. Costs no I/O."""
        ...

    def pending_in(self, lane: LaneKey) -> int:
        """Return the number of records stored in a lane and not leased. Costs no I/O."""
        ...

    def lane_of(self, request: Request) -> LaneKey | None:
        """The lane in which this request, or its equal, is stored and not leased; None: not known. May search."""
        ...

    def statistics(self) -> FrontierStatistics:
        """Return the counts of now. Costs no I/O."""
        ...

    async def aclose(self) -> None:
        """Give up what is open. Nothing that was acknowledged is lost."""
        ...


@attrs.frozen
class OutboxItem:
    """An item of an acknowledged request, waiting to be written to the feeds.

    Attributes:
        position: Its place in the outbox: 1 for the first of the job, without gaps.
        item: The item, encoded as it was given.
    """

    position: int
    item: bytes
