"""What a frontier stores and promises: pending requests, by lane, leased ahead in batches.

A frontier only stores. It knows nothing of time limits or scopes: it groups what is pending by *lane* (the requests
that share scopes and origin), hands out the best of a lane on request, and remembers which fingerprints were ever
claimed.

The life of a record::

    claim_many ──► push_many ──► lease_many ──► acknowledge        done; its children were pushed in the same step
        │                            │   └────► replace            a redirect or a retry took its place, still leased
        └─ disclaim                  └────────► release            given back, to its old place

A lease is not a promise that the request is sent: heads of lanes are leased ahead, so that a decision never awaits.
Everything a crawl must not lose at a kill goes through one call, so that a backend can make it one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import attrs

from trawl.http import Request

__all__ = ["Amounts", "Frontier", "FrontierStatistics", "LaneKey", "Record", "Scopes", "SortKey"]

Scopes: TypeAlias = "tuple[tuple[str, float | None], ...]"
"""Scope ids, sorted, each with its expected amount (None: not named, counts 1.0)."""

Amounts: TypeAlias = "tuple[float | None, ...]"
"""The amounts named of scopes with a quota, in the order of the scopes; None where none is. Empty: none is anywhere."""

LaneKey: TypeAlias = "tuple[tuple[str, ...], str] | tuple[tuple[str, ...], str, Amounts]"
"""Scope ids, sorted, and the origin; and the amounts, where a quota makes them matter."""

SortKey: TypeAlias = "tuple[int, float, int]"
"""What orders a lane: minus priority, minus the share of a quota, and the order of coming. The least goes first."""


class Record:
    """A pending request with what was decided when it was admitted.

    Attributes:
        request: What is to be sent.
        scopes: Its throttling scopes with the amounts it expects to use.
        origin: Its origin, as ``trawl.http.origin_of`` says.
        fingerprint: 16 bytes that were claimed for it; None where duplicates are wanted (``dont_filter``).
        not_before: The instant on the run clock before which it may not be sent; 0.0 for none.
        share: The largest part of a quota that it names as its amount; 0.0 where it names none. The larger goes first.
        amounts: The amounts it names of scopes with a quota; empty where it names none. Requests of different amounts
            are in different lanes, so that one that fits passes one that does not (F11).
        order: Given by the frontier when it is pushed or replaced: later is larger.
    """

    __slots__ = ("amounts", "fingerprint", "not_before", "order", "origin", "request", "scopes", "share")

    def __init__(
        self,
        request: Request,
        scopes: Scopes,
        origin: str,
        fingerprint: bytes | None = None,
        not_before: float = 0.0,
        share: float = 0.0,
        amounts: Amounts = (),
    ) -> None:
        self.request: Request = request
        self.scopes: Scopes = scopes
        self.origin: str = origin
        self.fingerprint: bytes | None = fingerprint
        self.not_before: float = not_before
        self.share: float = share
        self.amounts: Amounts = amounts
        self.order: int = 0

    def lane_key(self) -> LaneKey:
        """The lane it belongs to; amounts that no quota counts stay out."""
        if self.request.meta_get("dont_throttle"):  # it needs none of its scopes: who does must not be before it
            return (), self.origin
        ids = tuple([scope for scope, _ in self.scopes])
        return (ids, self.origin, self.amounts) if self.amounts else (ids, self.origin)

    def __repr__(self) -> str:
        return f"<Record {self.order} {self.request.method} {self.request.url}>"


@attrs.frozen
class FrontierStatistics:
    """How much a frontier holds.

    Attributes:
        pending: Records that are stored and not leased.
        leased: Records that are leased and neither acknowledged nor given back.
        seen: Fingerprints ever claimed.
        lanes: Lanes with something pending.
    """

    pending: int
    leased: int
    seen: int
    lanes: int


class Frontier(Protocol):
    """Where the crawl's pending requests are kept. Every backend passes the same contract suite."""

    async def claim_many(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Mark ``fingerprints`` as seen; True for each that was new. The same one twice in a call is new once."""
        ...

    async def disclaim(self, fingerprints: Iterable[bytes]) -> None:
        """Forget claims whose requests were not pushed after all."""
        ...

    async def push_many(self, records: Sequence[Record]) -> None:
        """Store ``records``, whose fingerprints are claimed, in this order."""
        ...

    async def lease_many(self, lane: LaneKey, most: int) -> list[Record]:
        """Take up to ``most`` of a lane's records, best first. Each is the caller's until one of the calls below."""
        ...

    async def acknowledge(self, lease: Record, outputs: Sequence[Record] = ()) -> None:
        """End a lease, and store the requests that came of it, in one step."""
        ...

    async def replace(self, lease: Record, record: Record) -> None:
        """Put ``record`` (a redirect's target, or a retry) in the place of a leased one, in one step.

        The new record is leased at once and goes behind its equals: its ``order`` is new.
        """
        ...

    async def release(self, leases: Iterable[Record]) -> None:
        """Give leases back; each keeps its old place in its lane."""
        ...

    def lanes(self) -> Sequence[LaneKey]:
        """The lanes with something stored and not leased, in the order of coming; asked once, when a crawl begins."""
        ...

    def best(self, lane: LaneKey) -> SortKey | None:
        """The key of the best record stored in a lane and not leased; None when there is none. Costs no I/O."""
        ...

    def pending_in(self, lane: LaneKey) -> int:
        """How many records are stored in a lane and not leased. Costs no I/O."""
        ...

    def lane_of(self, request: Request) -> LaneKey | None:
        """The lane in which this very request is stored and not leased; None: in none. For explanations: may search."""
        ...

    def statistics(self) -> FrontierStatistics:
        """How much is held now. Costs no I/O."""
        ...

    async def aclose(self) -> None:
        """Give up what is open. Nothing that was acknowledged is lost."""
        ...
