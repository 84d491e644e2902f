"""What a row of the benchmark gives: figures, each with its goal, and how they are told."""

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
        name: What was measured.
        value: The figure.
        unit: Its unit; ``x`` for a ratio.
        least: The goal, where it is to be at least this.
        most: The goal, where it is to be at most this.
        each: The figures of the single rounds, where there were several.
        note: What else is to be known.
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
        """Whether the goal is; None: there is none."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def goal(self) -> str:
        """The goal in words."""
        if self.least is not None:
            return f">= {shown(self.least)}"
        return "" if self.most is None else f"<= {shown(self.most)}"


def shown(value: float) -> str:
    """Three digits that count, and all before the point."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def median_of(name: str, values: Iterable[float], unit: str = "", **more: Any) -> Figure:
    """The median of several rounds."""
    each = list(values)
    return Figure(name=name, value=median(each), unit=unit, each=each, **more)


def ratio_of(name: str, ours: Iterable[float], theirs: Iterable[float], **more: Any) -> Figure:
    """The median over the rounds of our figure divided by theirs in the same round: what slows both is not in it."""
    return median_of(name, [our / their for our, their in zip(ours, theirs, strict=True)], "x", **more)


def half(values: Iterable[float]) -> str:
    """The smallest and the largest, in words."""
    each = list(values)
    return f"{shown(min(each))} to {shown(max(each))}"


def table(title: str, figures: Iterable[Figure]) -> str:
    """The figures of one row, to be printed."""
    lines = [title]
    for figure in figures:
        reached = {True: "reached", False: "MISSED", None: ""}[figure.is_reached]
        spread = f"[{half(figure.each)}]" if len(figure.each) > 1 else ""
        value = f"{shown(figure.value)} {figure.unit}".strip()
        lines.append(f"  {figure.name:46} {value:>18}  {figure.goal:>10} {reached:8} {spread} {figure.note}".rstrip())
    return "\n".join(lines)
