"""Time as places on a picture: which part of a run is shown, and where the marks of the axis go."""

from __future__ import annotations

import math

import attrs

__all__ = ["Scale", "marks", "step_of"]


@attrs.frozen
class Scale:
    """From seconds to places on a line.

    Attributes:
        start: The first second shown.
        end: The last second shown.
        left: Where ``start`` is.
        right: Where ``end`` is.
    """

    start: float
    end: float
    left: float
    right: float

    def x(self, at: float) -> float:
        """The place of ``at``; what is outside is put on the edge."""
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return self.left + share * (self.right - self.left)

    def shows(self, start: float, end: float) -> bool:
        """Whether any of the time from ``start`` to ``end`` is on the picture."""
        return end >= self.start and start <= self.end


def step_of(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that divides ``span`` seconds into at most ``most`` parts."""
    least = span / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def marks(start: float, end: float, most: int = 12) -> list[tuple[float, str]]:
    """Round instants from ``start`` to ``end`` with their labels, all with the same number of digits."""
    step = step_of(end - start, most)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    return [(count * step, f"{count * step:.{digits}f}") for count in range(first, last + 1)]
