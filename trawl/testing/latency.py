"""How long something takes on the simulated wire: a number, a function of the request, or a draw.

Draws come from a generator that the run makes anew, by its seed and the host: the same seed gives the same times in
every run, whatever ran before on the same web.

When a simulated server is down, and how it shows.
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


@attrs.frozen
class Uniform:
    """Anything between two times is as likely.

    Attributes:
        low: The shortest, in seconds.
        high: The longest, in seconds.

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
        """One draw, in seconds."""
        return generator.uniform(self.low, self.high)


@attrs.frozen
class LogNormal:
    """Most take about the median, a few take much longer: what response times of servers look like.

    Attributes:
        median: Half take longer than this many seconds.
        sigma: The spread: one in six takes longer than ``median * e**sigma``.

    Raises:
        ValueError: One of them is negative.
    """

    median: float = attrs.field(validator=validators.gt(0))
    sigma: float = attrs.field(default=0.5, validator=validators.ge(0))

    def draw(self, generator: random.Random) -> float:
        """One draw, in seconds."""
        return self.median * math.exp(generator.gauss(0.0, self.sigma))


Latency = float | Callable[[Request], float] | Uniform | LogNormal
"""Seconds, a function of the request that gives seconds, or a distribution to draw from."""


def draw_seconds(law: Latency, request: Request, generator: random.Random) -> float:
    """What ``law`` says for ``request``.

    Raises:
        ValueError: A function gave something that is no time; the sentence names it.
    """
    if isinstance(law, int | float):
        return law
    if isinstance(law, Uniform | LogNormal):
        return law.draw(generator)
    drawn: object = law(request)
    if not isinstance(drawn, int | float) or not 0.0 <= drawn < math.inf:
        name = getattr(law, "__qualname__", repr(law))
        raise ValueError(f"{name} gave {drawn!r} for {request!r}: a time is a number of seconds from 0 up")
    return drawn


def check_latency(instance: object, attribute: attrs.Attribute[Any], law: object) -> None:
    """Validator of attrs: refuse what is no law when the value is made, not when the first request comes.

    Raises:
        ValueError: A negative or endless time.
        TypeError: Neither a number, nor a function, nor a distribution.
    """
    if isinstance(law, Uniform | LogNormal) or callable(law):
        return
    if isinstance(law, bool) or not isinstance(law, int | float):
        raise TypeError(f"{attribute.name} is a number of seconds or a function of the request, not {law!r}")
    if not 0.0 <= law < math.inf:
        raise ValueError(f"{attribute.name} is a number of seconds from 0 up, not {law!r}")
