"""When a simulated server is down, and how it shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import attrs
from attrs import validators

from trawl.errors import ConnectFailed, ConnectTimeout
from trawl.testing.responses import Failure, checked_failure

__all__ = ["Outage", "as_outages", "is_connecting"]


@attrs.frozen
class Outage:
    """From ``start`` until just before ``end`` a host fails.

    Attributes:
        start: Seconds since the crawl began.
        end: Seconds since the crawl began; ``inf`` for good.
        status: What it answers meanwhile.
        error: What goes wrong in place of an answer, if anything: a failure to connect comes before the send, any other
            at the time of the answer.
        retry_after: The ``Retry-After`` of its answers, if any.
        latency: Seconds that its answers and errors take; None: what the host's latency says. A failure to connect
            takes the host's ``connect`` then.

    Raises:
        ValueError: It ends before it starts, or a number is out of range.
        TypeError: The error is none.
    """

    start: float = attrs.field(validator=validators.ge(0))
    end: float = attrs.field()
    status: int = attrs.field(default=503, validator=[validators.ge(200), validators.le(599)])
    error: Failure | None = attrs.field(default=None, kw_only=True)
    retry_after: float | str | None = attrs.field(default=None, kw_only=True)
    latency: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))

    @end.validator
    def _after_start(self, attribute: object, end: float) -> None:
        if not end > self.start:
            raise ValueError(f"an outage ends after it starts, not at {end} when it starts at {self.start}")

    @error.validator
    def _is_failure(self, attribute: object, error: object) -> None:
        if error is not None:
            checked_failure(error)

    def holds(self, now: float) -> bool:
        """Whether the host is down at ``now``."""
        return self.start <= now < self.end

    @property
    def is_connecting(self) -> bool:
        """Whether it shows before a request is sent."""
        return self.error is not None and is_connecting(self.error)


def is_connecting(failure: Failure) -> bool:
    """Whether a failure is one of connecting, so that nothing is ever sent."""
    kind = failure if isinstance(failure, type) else type(failure)
    return issubclass(kind, ConnectFailed | ConnectTimeout)


def as_outages(outages: Iterable[Any]) -> tuple[Outage, ...]:
    """Outages in order of time; a pair of numbers is the start and the end of one that answers 503.

    Raises:
        TypeError: One is neither an outage nor a pair.
    """
    made = [outage if isinstance(outage, Outage) else _of_pair(outage) for outage in outages]
    return tuple(sorted(made, key=lambda outage: (outage.start, min(outage.end, math.inf))))


def _of_pair(pair: Any) -> Outage:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return Outage(float(pair[0]), float(pair[1]))
    raise TypeError(f"an outage is an Outage or a pair (start, end), not {pair!r}")
