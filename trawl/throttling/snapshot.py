"""The state of a throttle as a value that a job stores, for a later process to go on with.

Instants are seconds of wall time (epoch), because the run clock ends with its process; ``inf`` and ``-inf`` stay as
they are. Durations are seconds. Only what was learned or spent is stored: limits come from the settings, which may have
changed meanwhile.
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
    """The result of rampup, under limits that were configured alike.

    Attributes:
        delay: The delay, in seconds.
        delay_per_slot: The delay per slot, in seconds.
        concurrency: The slots.
        refused: The last refused rate, in requests a second; None where none was.
        fallen_to: The rate that it fell to then.
        quiet: Windows since.
        cost: Answers that the fall cost.
        has_fallen_back: True if backoff moves the scope.
        is_starting: True if it is in slow start.
        configured: Delay, delay per slot and concurrency that it began with: under others, nothing of this holds.
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
        spent: How much, in the window that ran.
        ends_at: When a window that does not slide ends.
        window: The length of that window, in seconds; 0.0: it is not known.
        charges: When what was spent, where it slides.
        unknown: How much more may have been spent, by a run that was killed.
        unknown_at: When it was spent at the latest.
    """

    spent: float = 0.0
    ends_at: float = -inf
    window: float = 0.0
    charges: tuple[tuple[float, float], ...] = ()
    unknown: float = 0.0
    unknown_at: float = -inf

    def moved(self, clock: Callable[[float], float]) -> QuotaSnapshot:
        """Return the same with its instants on another clock."""
        charges = tuple([(clock(at), amount) for at, amount in self.charges])
        return replace(self, ends_at=clock(self.ends_at), charges=charges, unknown_at=clock(self.unknown_at))


class QuotaAllowance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts that may have been spent beyond what a :class:`ThrottleSnapshot` holds.

    Attributes:
        until: When it was spent at the latest.
        amounts: How much, by scope.
    """

    until: float
    amounts: dict[str, float] = {}


class SendSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sends of a scope, and its hold.

    Attributes:
        sent_at: The latest send.
        slots: The latest send of each slot that still rests.
        held_until: No send before this.
        held_for: The same as seconds from the instant of the state: a clock that was set back must not lengthen it.
        held_limit: Which limit that is.
        held_source: Where it comes from.
    """

    sent_at: float = -inf
    slots: tuple[float, ...] = ()
    held_until: float = -inf
    held_for: float = 0.0
    held_limit: str = "hint"
    held_source: str = ""


class ServerLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's limit, as the headers of its latest good answer told it. A job stores it as it is.

    Attributes:
        delay: Seconds between two sends that it leads to, capped; 0.0 if it is no longer believed.
        until: The instant from which it says nothing any more.
        source: The header, and of which answer.
        sent_at: The send that was answered so.
        heard_at: The instant of that answer.
        capped: What it said remains, if the delay was capped; None: it was not.
        doubts: Answers that went on as before though more was asked than it said remains.
    """

    delay: float
    until: float
    source: str
    sent_at: float
    heard_at: float
    capped: int | None = None
    doubts: int = 0

    def moved(self, clock: Callable[[float], float]) -> ServerLimit:
        """Return the same with its instants on another clock."""
        return replace(self, until=clock(self.until), sent_at=clock(self.sent_at), heard_at=clock(self.heard_at))


class ScopeSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scope.

    Attributes:
        pace: When it sent, and until when it is held.
        quota: What was spent; None: nothing.
        backoff: How far it has backed off; None: not at all.
        failing_for: Seconds of failures without a good answer, while the crawl ran; ``inf``: there are none.
        trigger_source: What the last trigger was, in words.
        good_at: The last good answer.
        has_answered: True if anything was ever answered.
        refused: Which request was refused since, that is not known to fail by itself; "*": several.
        robots: The Crawl-delay obeyed, in seconds: robots.txt itself is not asked for sooner, when it is asked anew.
        auto: The delay that AutoThrottle had found, in seconds.
        last_latency: The last latency it saw, in seconds.
        learned: What rampup had found.
        told: The limit that its server had told; None: none.
    """

    pace: SendSnapshot | None = None
    quota: QuotaSnapshot | None = None
    # Stored under the names that these two had when the first jobs were stored.
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


class ThrottleSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole throttle.

    Attributes:
        at: When this was so.
        unknown_until: Until when there may have been sends that this does not know of, because the process was killed
            before the next state was stored; ``-inf``: it is the last word.
        scopes: What is worth knowing, by scope.
        answered: Scopes of which only that is worth knowing, that they once answered.
        given_up: When scopes were given up.
        pages: Pages that have come, of scopes with a page budget.
    """

    at: float
    unknown_until: float = -inf
    scopes: dict[str, ScopeSnapshot] = {}
    answered: tuple[str, ...] = ()
    given_up: dict[str, float] = {}
    pages: dict[str, int] = {}


class SharedSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The knowledge that one process's policies have of a scope; instants are seconds before it was written.

    Attributes:
        backoff: How far it backs off; None: not at all.
        step: Incidents counted.
        source: The last trigger, in words.
        hold: Seconds for which it is held.
        hold_limit: By which limit.
        hold_source: Where that comes from.
    """

    backoff: BackoffState | None = None
    step: int = 0
    source: str = ""
    hold: float = 0.0
    hold_limit: str = "hint"
    hold_source: str = ""
