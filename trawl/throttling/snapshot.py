"""The state of a throttle as a value that a job stores, so that a later process can continue from it.

Times are wall times in epoch seconds, because the event loop time ends with its process. ``inf`` and ``-inf`` are
stored unchanged. Durations are seconds. Only learned and spent values are stored. Limits come from the settings, which
may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
from msgspec.structs import replace

from trawl.throttling.backoff import BackoffState

__all__ = [
    "QuotaAllowance",
    "QuotaSnapshot",
    "RampupSnapshot",
    "ScopeSnapshot",
    "SendSnapshot",
    "ServerLimit",
    "SharedSnapshot",
    "ThrottleSnapshot",
]


class RampupSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of rampup, valid for the same configured limits."""

    delay: float  # seconds
    delay_per_slot: float  # seconds
    concurrency: float
    refused: float | None = None  # the last refused rate, in requests per second; None if no rate was refused
    fallen_to: float = 0.0  # the rate that it fell to then, in requests per second
    quiet: int = 0  # windows since then
    cost: int = 0  # responses that the fall cost
    has_fallen_back: bool = False  # True if backoff controls the scope
    is_starting: bool = False  # True if it is in slow start
    # The delay, delay per slot and concurrency that it started with. Under other limits, nothing here is valid.
    configured: tuple[float, float, float] = (0.0, 0.0, inf)


class QuotaSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The amount spent of a quota."""

    spent: float = 0.0  # the amount spent in the window
    ends_at: float = -inf  # the end of a window that does not slide
    window: float = 0.0  # the length of that window, in seconds; 0.0 if unknown
    charges: tuple[tuple[float, float], ...] = ()  # times and amounts of charges, if the window slides
    unknown: float = 0.0  # the additional amount that a killed run may have spent
    unknown_at: float = -inf  # the latest time at which it was spent

    def moved(self, clock: Callable[[float], float]) -> QuotaSnapshot:
        """Return the same value with its times converted to another clock."""
        charges = tuple([(clock(at), amount) for at, amount in self.charges])
        return replace(self, ends_at=clock(self.ends_at), charges=charges, unknown_at=clock(self.unknown_at))


class QuotaAllowance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts that may have been spent beyond what a :class:`ThrottleSnapshot` holds."""

    until: float  # the latest time at which they were spent
    amounts: dict[str, float] = {}  # the amounts, by scope


class SendSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sends of a scope, and its hold."""

    sent_at: float = -inf  # the latest send
    slots: tuple[float, ...] = ()  # the latest send of each slot that still rests
    held_until: float = -inf  # the end of the hold
    held_limit: str = "hint"  # the limit that holds it
    held_source: str = ""  # the source of that limit

    def moved(self, clock: Callable[[float], float]) -> SendSnapshot:
        """Return the same value with its times converted to another clock."""
        slots = tuple([clock(at) for at in self.slots])
        return replace(self, sent_at=clock(self.sent_at), slots=slots, held_until=clock(self.held_until))


class ServerLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's limit, as announced by the headers of its latest good response. A job stores it unchanged."""

    delay: float  # seconds between two sends, capped; 0.0 if the limit is no longer believed
    until: float  # time at which the limit ends
    source: str  # the header, and its response
    sent_at: float  # the send of the request with that response
    heard_at: float  # time of that response
    capped: int | None = None  # the remaining amount that it announced, if the delay was capped; None if it was not
    doubts: int = 0  # number of responses that announced the same although more than the announced amount was sent

    def moved(self, clock: Callable[[float], float]) -> ServerLimit:
        """Return the same value with its times converted to another clock."""
        return replace(self, until=clock(self.until), sent_at=clock(self.sent_at), heard_at=clock(self.heard_at))


class ScopeSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scope."""

    pace: SendSnapshot | None = None  # the last sends and the hold; None if neither matters anymore
    quota: QuotaSnapshot | None = None  # the amount spent; None if nothing is spent
    # These two are stored under the names that they had in the first jobs.
    # None if it is not backing off.
    backoff: BackoffState | None = msgspec.field(default=None, name="trouble")
    # Seconds of failures without a good response, while the crawl ran; `inf` if there are none.
    failing_for: float = msgspec.field(default=inf, name="trouble_for")
    trigger_source: str = ""  # the last trigger, in words
    good_at: float = -inf  # time of the last good response
    has_answered: bool = False  # True if the scope ever gave a response
    refused: str = ""  # the request that was refused since then and is not known to fail by itself; "*" for several
    robots: float = 0.0  # the Crawl-delay obeyed, in seconds. It also delays a new request for robots.txt.
    auto: float | None = None  # the delay that AutoThrottle had found, in seconds; None without one
    last_latency: float = 0.0  # the last latency that AutoThrottle measured, in seconds
    learned: RampupSnapshot | None = None  # of rampup; None without it
    told: ServerLimit | None = None  # the limit that the server announced; None if there is none
    times: dict[str, tuple[float, ...]] = {}  # times until which records of limits with a single number count, by key

    def moved(self, clock: Callable[[float], float]) -> ScopeSnapshot:
        """Return the same value with its times converted to another clock."""
        return replace(
            self,
            pace=None if self.pace is None else self.pace.moved(clock),
            quota=None if self.quota is None else self.quota.moved(clock),
            backoff=None if self.backoff is None else self.backoff.moved(clock),
            good_at=clock(self.good_at),
            told=None if self.told is None else self.told.moved(clock),
            times={key: tuple([clock(at) for at in times]) for key, times in self.times.items()},
        )


class ThrottleSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole throttle."""

    at: float  # time of this state
    # The end of the period in which there may have been unrecorded sends, because the process was killed before it
    # stored the next state; `-inf` if this is the last state.
    unknown_until: float = -inf
    scopes: dict[str, ScopeSnapshot] = {}  # the states worth storing, by scope
    answered: tuple[str, ...] = ()  # scopes that once gave a response and have no other state worth storing
    given_up: dict[str, float] = {}  # times at which scopes were given up
    pages: dict[str, int] = {}  # received pages of scopes with a page budget


class SharedSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a scope that the policies of one process learned. Times are seconds before it was written."""

    backoff: BackoffState | None = None  # None if it is not backing off
    step: int = 0  # incidents counted
    source: str = ""  # the last trigger, in words
    hold: float = 0.0  # seconds for which it is held
    hold_limit: str = "hint"  # the limit that holds it
    hold_source: str = ""  # the source of that limit
