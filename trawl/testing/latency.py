"""Latencies and outages of simulated hosts.

A latency is a number, a function of the request, or a distribution. Each run draws from a new generator, by seed and
host: the same seed gives the same times in every run on a web.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from attrs import validators

from trawl.errors import ConnectFailed, ConnectTimeout
from trawl.http import Request
from trawl.testing.responses import Failure, checked_failure

__all__ = ["Latency", "LogNormal", "Outage", "Uniform", "as_outages", "check_latency", "draw_seconds", "is_connecting"]


@attrs.frozen
class Outage:
    """A time, from ``start`` until just before ``end``, at which a host fails.

    Attributes:
        start: Seconds since the crawl began.
        end: Seconds since the crawl began; ``inf``: for ever.
        status: The status of its answers meanwhile.
        error: An error instead of answers: a connection error comes before the send, any other with the answer.
        retry_after: The ``Retry-After`` of its answers, if any.
        latency: Seconds until its answers and errors; None: the host's latency, and its ``connect`` for connection
            errors.

    Raises:
        ValueError: It ends before it starts, or a number is out of range.
        TypeError: The error is not a download error.
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
        """Return True if the host is down at ``now``."""
        return self.start <= now < self.end

    @property
    def is_connecting(self) -> bool:
        """True if connections fail, so that requests are not sent."""
        return self.error is not None and is_connecting(self.error)


def is_connecting(failure: Failure) -> bool:
    """Return True for a connection error, before which nothing is sent."""
    kind = failure if isinstance(failure, type) else type(failure)
    return issubclass(kind, ConnectFailed | ConnectTimeout)


def as_outages(outages: Iterable[Any]) -> tuple[Outage, ...]:
    """Return outages in order of time; a pair of numbers is the start and end of one with status 503.

    Raises:
        TypeError: An entry is neither an outage nor a pair.
    """
    made = [outage if isinstance(outage, Outage) else _of_pair(outage) for outage in outages]
    return tuple(sorted(made, key=lambda outage: (outage.start, min(outage.end, math.inf))))


def _of_pair(pair: Any) -> Outage:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return Outage(float(pair[0]), float(pair[1]))
    raise TypeError(f"an outage must be an Outage or a pair (start, end), not {pair!r}")


@attrs.frozen
class Uniform:
    """A uniform distribution between two times.

    Attributes:
        low: The minimum, in seconds.
        high: The maximum, in seconds.

    Raises:
        ValueError: ``low`` is negative, or more than ``high``.
    """

    low: float = attrs.field(validator=validators.ge(0))
    high: float = attrs.field()

    @high.validator
    def _in_order(self, attribute: object, high: float) -> None:
        if not self.low <= high < math.inf:
            raise ValueError(f"Uniform goes from the shorter to the longer time, not from {self.low} to {high}")

    def draw(self, generator: random.Random) -> float:
        """Draw a time, in seconds."""
        return generator.uniform(self.low, self.high)


@attrs.frozen
class LogNormal:
    """A log-normal distribution, like the response times of servers: most are near the median, some much longer.

    Attributes:
        median: The median, in seconds.
        sigma: The spread: one in six takes longer than ``median * e**sigma``.

    Raises:
        ValueError: One of them is negative.
    """

    median: float = attrs.field(validator=validators.gt(0))
    sigma: float = attrs.field(default=0.5, validator=validators.ge(0))

    def draw(self, generator: random.Random) -> float:
        """Draw a time, in seconds."""
        return self.median * math.exp(generator.gauss(0.0, self.sigma))


Latency = float | Callable[[Request], float] | Uniform | LogNormal
"""Seconds, a function of the request that returns seconds, or a distribution to draw from."""


def draw_seconds(latency: Latency, request: Request, generator: random.Random) -> float:
    """Return the seconds of ``latency`` for ``request``.

    Raises:
        ValueError: A function returned something else than seconds.
    """
    if isinstance(latency, int | float):
        return latency
    if isinstance(latency, Uniform | LogNormal):
        return latency.draw(generator)
    drawn: object = latency(request)
    if not isinstance(drawn, int | float) or not 0.0 <= drawn < math.inf:
        name = getattr(latency, "__qualname__", repr(latency))
        raise ValueError(f"{name} returned {drawn!r} for {request!r}: it must return seconds, from 0 up")
    return drawn


def check_latency(instance: object, attribute: attrs.Attribute[Any], latency: object) -> None:
    """Check a latency when the value is made (a validator of attrs).

    Raises:
        ValueError: The time is negative or infinite.
        TypeError: It is neither a number, nor a function, nor a distribution.
    """
    if isinstance(latency, Uniform | LogNormal) or callable(latency):
        return
    if isinstance(latency, bool) or not isinstance(latency, int | float):
        raise TypeError(f"{attribute.name} must be seconds or a function of the request, not {latency!r}")
    if not 0.0 <= latency < math.inf:
        raise ValueError(f"{attribute.name} must be seconds, from 0 up, not {latency!r}")
