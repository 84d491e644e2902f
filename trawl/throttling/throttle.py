"""The throttle: what the engine talks to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from trawl.throttling.explain import Reason, ScopeReport
from trawl.throttling.scope import Scope
from trawl.throttling.settings import ThrottlingSettings

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.http import Outcome, Request

__all__ = ["Sent", "Throttle"]

Charges = tuple[tuple[str, float | None], ...]
"""The scopes of a request and the amount expected of each, sorted by id."""


class Sent(Protocol):
    """What the throttle needs to know of a request that was sent (the scheduler's entry has it)."""

    @property
    def request(self) -> Request:
        """The request as it was pending."""
        ...

    @property
    def scopes(self) -> Charges:
        """What it is charged to."""
        ...

    @property
    def steps(self) -> Sequence[int]:
        """The step of each scope when it was taken, in the order of ``scopes``; empty if none was taken."""
        ...

    @property
    def sent_at(self) -> float | None:
        """When it went to the wire."""
        ...

    @property
    def is_exempt(self) -> bool:
        """Whether it passed its scopes by (``dont_throttle``)."""
        ...


class Throttle:
    """Which scopes a request has, what they allow, and what an outcome changes.

    Args:
        settings: The limits and policies.
        seed: The run's seed; every scope derives its own stream of draws from it.
        manager: The user's throttling manager, or None for the one that ``settings`` names.
        changed: Called with a scope whose limits moved, and ``now``: waiters are looked at again.
        wall: For dates in headers.
        concurrent_requests: The cap on requests in flight in all; ``inf`` for none.
        crawl: Given to the managers' ``from_crawler``.
    """

    def __init__(
        self,
        settings: ThrottlingSettings,
        *,
        seed: int | str,
        wall: WallClock,
        changed: Callable[[Scope, float], None],
        manager: object | None = None,
        concurrent_requests: float | None = None,
        crawl: object = None,
    ) -> None:
        raise NotImplementedError

    def bind(self, changed: Callable[[Scope, float], None]) -> None:
        """Name another receiver of changes: the chooser, where it is made after the throttle."""
        raise NotImplementedError

    def scope(self, id: str, now: float) -> Scope:
        """The scope of this id, made on demand."""
        raise NotImplementedError

    def scopes_of_nowait(self, request: Request) -> Charges | None:
        """What a request is charged to, without asking a user's manager; None: :meth:`scopes_of` has to."""
        raise NotImplementedError

    async def scopes_of(self, request: Request) -> Charges:
        """What a request is charged to. Raises TypeError or ValueError for scopes that are none."""
        raise NotImplementedError

    async def begin(self, now: float) -> None:
        """Ask the manager what to hold before the first send (E10), and give the warnings due at start (A11)."""
        raise NotImplementedError

    def heard_nowait(self, entry: Sent, outcome: Outcome, now: float) -> bool:
        """Take an outcome in without asking a user's manager; False: nothing was done, :meth:`heard` has to."""
        raise NotImplementedError

    async def heard(self, entry: Sent, outcome: Outcome, now: float) -> None:
        """Take an outcome in: after the body is read, before the places are given back. Sets ``outcome.is_excused``."""
        raise NotImplementedError

    def items(self, request: Request, count: int, now: float) -> None:
        """Note how many items a response gave (H16)."""
        raise NotImplementedError

    def refused(self, entry: Sent, now: float) -> str | None:
        """``"refused"`` for a pending request whose scope was given up (B20), else None: the chooser's ``vet``."""
        raise NotImplementedError

    def robots_delay(self, host_scope: str, delay: float, now: float) -> None:
        """Obey a Crawl-delay (seconds) of a host (D09-D13). Call it only with ``ROBOTSTXT_OBEY``."""
        raise NotImplementedError

    def waiting_direct(self, count: int) -> None:
        """Say how many direct fetches wait now (F10)."""
        raise NotImplementedError

    def set(self, scope_id: str, *, now: float, **limits: object) -> None:
        """Change a scope's configuration while the crawl runs (I12): the keys of ``THROTTLING_SCOPES``."""
        raise NotImplementedError

    def why(self, scope_id: str, now: float, amount: float = 1.0) -> Reason:
        """Why a request of ``amount`` would wait for this scope now; limit "" if it would not."""
        raise NotImplementedError

    def next_change(self, now: float) -> float:
        """The next instant at which some scope moves by itself (recovery, rampup, giving up); ``inf`` for none."""
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """Let the windows that are over at ``now`` take effect; the scopes that moved are reported as changed."""
        raise NotImplementedError

    def report(self, now: float) -> list[ScopeReport]:
        """What every scope did, the busiest first: the table at the end."""
        raise NotImplementedError


def _stream(seed: int | str, name: str) -> random.Random:
    return random.Random(f"{seed}:{name}")
