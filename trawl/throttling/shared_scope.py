"""A scope that several processes need, as one of them knows it: see :mod:`trawl.throttling.shared`."""

from __future__ import annotations

from math import inf

import attrs

from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope
from trawl.throttling.shared import Line, Token

__all__ = ["SharedScope"]


class SharedScope(Scope):
    """A scope that others use too, as this process knows it.

    Its quota is counted in the store alone.

    Args:
        id: Its name.
        limits: The configured limits.
        line: Where it is granted.
        seed: The run's seed.

    Attributes:
        tokens: The tokens of its slots that are in use.
    """

    __slots__ = ("_line", "tokens")

    def __init__(self, id: str, limits: Limits, line: Line, *, seed: int | str = 0) -> None:
        super().__init__(id, limits, seed=seed)
        self.tokens: dict[int, Token] = {}
        self._line = line

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Put ``limits`` in force, a delay per slot as a delay, and without those that the store counts.

        A rate makes up for no lateness: others may have sent meanwhile.
        """
        delay = max(limits.delay, limits.delay_per_slot)
        limits = attrs.evolve(limits, delay=delay, delay_per_slot=0.0, quota=inf, pages=inf, is_rate=False)
        super().apply_limits(limits, now)

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Decide once more, at the wire, when the request in ``slot`` may be written: not without a good token."""
        at, token = super().opens_at(slot, now, amount), self.tokens.get(slot)
        if token is None:
            return at
        return inf if token.until <= now else max(at, token.at)

    def begins_at(self, now: float, amount: float = 1.0) -> float:
        """Decide when a page of ``amount`` may begin: not while one waits for its token, maybe for long."""
        is_behind = self.delay <= 0.0 and self.prepared > self.elsewhere
        return inf if is_behind else super().begins_at(now, amount)

    def is_tight(self, begun: int | None = None) -> bool:
        """Return False: the store's line says who goes first, and a claim of this process would keep tokens waiting."""
        return False

    @property
    def counts_sends(self) -> bool:
        """True: a token is good for one send."""
        return True

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count what ``slot`` sent at ``sent_at`` from ``now``, when its write has ended."""
        super().written(slot, sent_at, now)
        token = self.tokens.get(slot)
        if token is not None:
            self._line.written(token.number, now)

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota by ``difference``."""
        self._line.correct(self.id, difference)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set what is left of the quota."""
        self._line.set_remaining(self.id, remaining)
