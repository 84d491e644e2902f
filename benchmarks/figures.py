"""The figures of a benchmark row, with their goals, and their presentation."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

import attrs

__all__ = ["Figure", "half", "median_of", "ratio_of", "table"]


@attrs.frozen(kw_only=True)
class Figure:
    """One figure.

    Attributes:
        name: Description of the figure.
        value: Value of the figure.
        unit: Unit; ``x`` for a ratio.
        least: Goal for the minimum; None if there is none.
        most: Goal for the maximum; None if there is none.
        each: Values of the rounds, if there were several.
        note: Further information.
    """

    name: str
    value: float
    unit: str = ""
    least: float | None = None
    most: float | None = None
    each: list[float] = attrs.field(factory=list)
    note: str = ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None if there is no goal."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def goal(self) -> str:
        """Return the goal in words."""
        if self.least is not None:
            return f">= {shown(self.least)}"
        return "" if self.most is None else f"<= {shown(self.most)}"


def shown(value: float) -> str:
    """Return a value with three significant digits, or with more if the integer part has more."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def median_of(name: str, values: Iterable[float], unit: str = "", **more: Any) -> Figure:
    """Return the median of several rounds."""
    each = list(values)
    return Figure(name=name, value=median(each), unit=unit, each=each, **more)


def ratio_of(name: str, ours: Iterable[float], theirs: Iterable[float], **more: Any) -> Figure:
    """Return the median of the ratios of each round. If the machine is slow in a round, its ratio stays the same."""
    return median_of(name, [our / their for our, their in zip(ours, theirs, strict=True)], "x", **more)


def half(values: Iterable[float]) -> str:
    """Return the smallest and the largest value, in words."""
    each = list(values)
    return f"{shown(min(each))} to {shown(max(each))}"


def table(title: str, figures: Iterable[Figure]) -> str:
    """Return the figures of one row as text."""
    lines = [title]
    for figure in figures:
        reached = {True: "reached", False: "MISSED", None: ""}[figure.is_reached]
        spread = f"[{half(figure.each)}]" if len(figure.each) > 1 else ""
        value = f"{shown(figure.value)} {figure.unit}".strip()
        lines.append(f"  {figure.name:46} {value:>18}  {figure.goal:>10} {reached:8} {spread} {figure.note}".rstrip())
    return "\n".join(lines)
