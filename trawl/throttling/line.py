"""The line of shared scopes: what the scheduler and the throttle ask of whoever grants them for several processes.

A *shared scope* is one that requests of several processes of a job need: a proxy, an account, an API key. It is granted
in the job's store, all shared scopes of a request at once. Who asks gets a *token*, good for one send, or stands in
line. All other scopes are decided in the memory of the one process that sends to their hosts.

Times are instants of the run clock of this process, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from trawl.throttling.explain import Reason

__all__ = ["Line", "SharedLimits", "Token"]


@attrs.frozen
class Token:
    """The right to send one request in all shared scopes that were asked for.

    Attributes:
        number: The number of the ask.
        at: It is good from this instant on: never earlier than the store has said.
        until: ... and until this one.
    """

    number: int
    at: float
    until: float


@attrs.frozen(kw_only=True)
class SharedLimits:
    """The limits of a shared scope that are in force for all processes.

    Attributes:
        concurrency: Requests in flight at most; ``inf`` for no limit.
        delay: Seconds between two sends, before jitter.
        shortest: No interval is shorter than this, in seconds, whatever is drawn.
        hold: Seconds for which nothing is sent.
        quota: What may be spent in a window; ``inf`` for no quota.
        window: Its length, in seconds.
        learned: What the policies have learned, for :meth:`Throttle.adopt <trawl.throttling.throttle.Throttle.adopt>`.
    """

    concurrency: float
    delay: float
    shortest: float
    hold: float
    quota: float
    window: float
    learned: bytes


class Line(Protocol):
    """Grants shared scopes. No method waits: what is told goes to the store with the next round trip."""

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        """Say who is called with a token, and with what another process has learned of a scope: its id, that, its age.

        Call it once, before anything else.
        """
        ...

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        """Ask for a token for shared scopes. Returns the number of the ask.

        Args:
            scopes: Their ids, each with the amount that the request is to use.
            priority: Of the request.
            lead: Seconds that it takes to the wire: several tokens that are not sent yet make up for it.
        """
        ...

    def drop(self, number: int) -> None:
        """Leave the line, or give a token back that was not used."""
        ...

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        """Say that the request of a token went to the wire at ``now``, and how long each scope is to rest after it."""
        ...

    def written(self, number: int, now: float) -> None:
        """Say that the write of that request has ended: its scopes rest from ``now``."""
        ...

    def given_back(self, number: int) -> None:
        """Free the places of a token that was used."""
        ...

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        """Put limits in force for all processes, unless another one has changed them meanwhile: that is adopted.

        Args:
            scope_id: The scope.
            limits: Its limits.
            is_new: This process did not know the scope before: what others have learned of it stands.
        """
        ...

    def correct(self, scope_id: str, difference: float) -> None:
        """Correct what is spent of a scope's quota by ``difference`` (negative: a refund)."""
        ...

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        """Set what is left of a scope's quota in the window that runs."""
        ...

    def why(self, number: int) -> Reason:
        """Explain what the ask waits for, as it was told last."""
        ...

    async def run(self) -> None:
        """Talk with the store, until it is cancelled. A checkpoint."""
        ...
