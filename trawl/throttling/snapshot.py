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
    """The result of rampup, valid for the same configured limits.

    Attributes:
        delay: The delay, in seconds.
        delay_per_slot: The delay per slot, in seconds.
        concurrency: The slots.
        refused: The last refused rate, in requests per second; None if no rate was refused.
        fallen_to: The rate that it fell to then, in requests per second.
        quiet: Windows since then.
        cost: Responses that the fall cost.
        has_fallen_back: True if backoff controls the scope.
        is_starting: True if it is in slow start.
        configured: The delay, delay per slot and concurrency that it started with. Under other limits, nothing here is
            valid.
    """

    delay: float
    delay_per_slot: float
    concurrency: float
    refused: float | None = None
    fallen_to: float = 0.0
    quiet: int = 0
    cost: int = 0
    has_fallen_back: bool = False
    is_starting: bool = False
    configured: tuple[float, float, float] = (0.0, 0.0, inf)


class QuotaSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The amount spent of a quota.

    Attributes:
        spent: The amount spent in the window.
        ends_at: The end of a window that does not slide.
        window: The length of that window, in seconds; 0.0 if unknown.
        charges: The times and amounts of charges, if the window slides.
        unknown: The additional amount that a killed run may have spent.
        unknown_at: The latest time at which it was spent.
    """

    spent: float = 0.0
    ends_at: float = -inf
    window: float = 0.0
    charges: tuple[tuple[float, float], ...] = ()
    unknown: float = 0.0
    unknown_at: float = -inf

    def moved(self, clock: Callable[[float], float]) -> QuotaSnapshot:
        """Return the same value with its times converted to another clock."""
        charges = tuple([(clock(at), amount) for at, amount in self.charges])
        return replace(self, ends_at=clock(self.ends_at), charges=charges, unknown_at=clock(self.unknown_at))


class QuotaAllowance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts that may have been spent beyond what a :class:`ThrottleSnapshot` holds.

    Attributes:
        until: The latest time at which they were spent.
        amounts: The amounts, by scope.
    """

    until: float
    amounts: dict[str, float] = {}


class SendSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sends of a scope, and its hold.

    Attributes:
        sent_at: The latest send.
        slots: The latest send of each slot that still rests.
        held_until: The end of the hold.
        held_limit: The limit that holds it.
        held_source: The source of that limit.
    """

    sent_at: float = -inf
    slots: tuple[float, ...] = ()
    held_until: float = -inf
    held_limit: str = "hint"
    held_source: str = ""

    def moved(self, clock: Callable[[float], float]) -> SendSnapshot:
        """Return the same value with its times converted to another clock."""
        slots = tuple([clock(at) for at in self.slots])
        return replace(self, sent_at=clock(self.sent_at), slots=slots, held_until=clock(self.held_until))


class ServerLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's limit, as announced by the headers of its latest good response. A job stores it unchanged.

    Attributes:
        delay: Seconds between two sends, capped; 0.0 if the limit is no longer believed.
        until: The time at which the limit ends.
        source: The header, and its response.
        sent_at: The send of the request with that response.
        heard_at: The time of that response.
        capped: The remaining amount that it announced, if the delay was capped; None if it was not.
        doubts: Number of responses that announced the same although more than the announced amount was sent.
    """

    delay: float
    until: float
    source: str
    sent_at: float
    heard_at: float
    capped: int | None = None
    doubts: int = 0

    def moved(self, clock: Callable[[float], float]) -> ServerLimit:
        """Return the same value with its times converted to another clock."""
        return replace(self, until=clock(self.until), sent_at=clock(self.sent_at), heard_at=clock(self.heard_at))


class ScopeSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scope.

    Attributes:
        pace: The last sends and the hold; None if neither matters anymore.
        quota: The amount spent; None if nothing is spent.
        backoff: The backoff state; None if it is not backing off.
        failing_for: Seconds of failures without a good response, while the crawl ran; ``inf`` if there are none.
        trigger_source: The last trigger, in words.
        good_at: The time of the last good response.
        has_answered: True if the scope ever gave a response.
        refused: The request that was refused since then and is not known to fail by itself; "*" for several.
        robots: The Crawl-delay obeyed, in seconds. It also delays a new request for robots.txt.
        auto: The delay that AutoThrottle had found, in seconds; None without one.
        last_latency: The last latency that AutoThrottle measured, in seconds.
        learned: The state of rampup; None without one.
        told: The limit that the server announced; None if there is none.
        times: The times until which records of limits with a single number count, by key.
    """

    pace: SendSnapshot | None = None
    quota: QuotaSnapshot | None = None
    # These two are stored under the names that they had in the first jobs.
    backoff: BackoffState | None = msgspec.field(default=None, name="trouble")
    failing_for: float = msgspec.field(default=inf, name="trouble_for")
    trigger_source: str = ""
    good_at: float = -inf
    has_answered: bool = False
    refused: str = ""
    robots: float = 0.0
    auto: float | None = None
    last_latency: float = 0.0
    learned: RampupSnapshot | None = None
    told: ServerLimit | None = None
    times: dict[str, tuple[float, ...]] = {}

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
    """A whole throttle.

    Attributes:
        at: The time of this state.
        unknown_until: The end of the period in which there may have been unrecorded sends, because the process was
            killed before it stored the next state; ``-inf`` if this is the last state.
        scopes: The states worth storing, by scope.
        answered: Scopes that once gave a response and have no other state worth storing.
        given_up: The times at which scopes were given up.
        pages: Received pages of scopes with a page budget.
    """

    at: float
    unknown_until: float = -inf
    scopes: dict[str, ScopeSnapshot] = {}
    answered: tuple[str, ...] = ()
    given_up: dict[str, float] = {}
    pages: dict[str, int] = {}


class SharedSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a scope that the policies of one process learned. Times are seconds before it was written.

    Attributes:
        backoff: The backoff state; None if it is not backing off.
        step: Incidents counted.
        source: The last trigger, in words.
        hold: Seconds for which it is held.
        hold_limit: The limit that holds it.
        hold_source: The source of that limit.
    """

    backoff: BackoffState | None = None
    step: int = 0
    source: str = ""
    hold: float = 0.0
    hold_limit: str = "hint"
    hold_source: str = ""
