"""Line charts with two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs

from trawl.testing.svg import FAINT, GRID, INK, document, group, line, number, text

__all__ = ["Series", "chart"]

WIDTH, HEIGHT = 760.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 74.0, 540.0, 54.0, 350.0
COLOURS = ("#2563eb", "#111827", "#0f766e", "#dc2626")
LABEL = 17.0
"""Minimum distance between two labels, in pixels."""


@attrs.frozen
class Series:
    """One line.

    Attributes:
        name: Label at the end of the line.
        points: Points from left to right, all above 0.
    """

    name: str
    points: Sequence[tuple[float, float]]


class _Axis:
    """An axis that maps values to positions, by powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, whole: bool) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        self.low = math.floor(low + 1e-9) if whole else low
        self.high = math.ceil(high - 1e-9) if whole else high
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Return the position of a value."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)

    def powers(self) -> list[float]:
        """Return the powers of ten on the axis."""
        return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]


def chart(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> str:
    """Return a chart of lines, with a mark at every point and the name at the end of each line."""
    xs = sorted({x for each in series for x, _ in each.points})
    across = _Axis(xs, LEFT, RIGHT, whole=False)
    up = _Axis([y for each in series for _, y in each.points], BOTTOM, TOP, whole=True)
    shapes = [text(LEFT - 60, 24, title, fill=INK, font_weight="bold", font_size=14)]
    for power in up.powers():
        y = up.at(power)
        shapes += [line(LEFT, y, RIGHT, y, stroke=GRID)]
        shapes += [text(LEFT - 8, y + 4, f"{power:,g}", fill=FAINT, text_anchor="end")]
    for x in xs:
        shapes += [line(across.at(x), BOTTOM, across.at(x), BOTTOM + 5, stroke=FAINT)]
        shapes += [text(across.at(x), BOTTOM + 20, f"{x:,g}", fill=FAINT, text_anchor="middle")]
    shapes += [text((LEFT + RIGHT) / 2, BOTTOM + 42, x_title, fill=FAINT, text_anchor="middle")]
    shapes += [text(LEFT - 60, TOP - 12, y_title, fill=FAINT)]
    shapes += [_drawn(each, colour, across, up) for each, colour in zip(series, COLOURS[: len(series)], strict=True)]
    ends = [(across.at(each.points[-1][0]), up.at(each.points[-1][1]), each.name) for each in series]
    colours = dict(zip((each.name for each in series), COLOURS, strict=False))
    for x, y, name in _apart(ends):
        shapes += [text(x + 12, y + 4, name, fill=colours[name], font_weight="bold")]
    return document(WIDTH, HEIGHT, shapes, title)


def _drawn(series: Series, colour: str, across: _Axis, up: _Axis) -> str:
    """Return a line with its marks."""
    places = [(across.at(x), up.at(y)) for x, y in series.points]
    shapes = [line(x1, y1, x2, y2, stroke=colour, stroke_width=2) for (x1, y1), (x2, y2) in pairwise(places)]
    marks = [f'<circle cx="{number(x)}" cy="{number(y)}" r="4" fill="{colour}"/>' for x, y in places]
    return group(shapes + marks)


def _apart(ends: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return the labels, moved down if they would overlap."""
    moved: list[tuple[float, float, str]] = []
    for x, y, name in sorted(ends, key=lambda end: end[1]):
        above = max((other + LABEL for at, other, _ in moved if at == x), default=y)
        moved.append((x, max(y, above), name))
    return moved
