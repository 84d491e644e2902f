"""How long something takes on the simulated wire: a number, a function of the request, or a draw.

Draws come from a generator that the run makes anew, by its seed and the host: the same seed gives the same times in
every run, whatever ran before on the same web.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import attrs
from attrs import validators

from trawl.http import Request

__all__ = ["Law", "LogNormal", "Uniform", "checked_law", "seconds"]


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


Law = float | Callable[[Request], float] | Uniform | LogNormal
"""Seconds, a function of the request that gives seconds, or a distribution to draw from."""


def seconds(law: Law, request: Request, generator: random.Random) -> float:
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


def checked_law(instance: object, attribute: attrs.Attribute[Any], law: object) -> None:
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
