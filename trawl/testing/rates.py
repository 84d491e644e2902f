"""A picture of rates over time (SVG 1.1), with a panel for each scope, the server's limit, and marks for refusals.

Theory of operation: sends are counted in windows of equal length. Each window is a bar, and the red top of the bar
shows the refused sends. Each refusal also has a mark below the axis at its time, because one refusal in a hundred is
too small to see in a bar. :class:`trawl.testing.Simulation`, the command ``trawl simulate`` and the benchmarks use this
module.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from trawl.testing.svg import (
    BARS,
    FAINT,
    GRID,
    INK,
    LETTER,
    Scale,
    axis_marks,
    axis_step,
    document,
    group,
    line,
    number,
    rectangle,
    text,
)

__all__ = [
    "MAX_PANELS",
    "Panel",
    "Rate",
    "check_picture_name",
    "count_rates",
    "draw_rates",
    "window_for",
    "write_picture",
]

MAX_PANELS = 12
"""Maximum number of scopes in one picture. It shows the busiest scopes."""

MAX_WINDOWS = 200
WIDTH, HEIGHT = 900.0, 116.0

_SENDS_IN_A_WINDOW = 5
"""Minimum average number of sends in a window. With fewer sends, most bars would show one send or none."""

_PNG_SCALE = 2  # PNG pixels per SVG pixel, for sharp text on modern screens
_LEFT, _RIGHT, _TOP, _LEGEND_ROW, _GRAPH_TOP, _GRAPH_FOOT = 64.0, 20.0, 78.0, 18.0, 34.0, 46.0


@attrs.frozen
class Rate:
    """The rate in one window of time.

    Attributes:
        start: The start of the window, in seconds since the start of the crawl.
        end: The end of the window, in seconds since the start of the crawl.
        rate: Sends per second.
        refused: Refused sends (429 or 503) per second.
    """

    start: float
    end: float
    rate: float
    refused: float


@attrs.frozen(kw_only=True)
class Panel:
    """The graph of one scope."""

    title: str
    rates: Sequence[Rate]  # the rate in each window
    refused_at: Sequence[float] = ()  # the times of the refusals, in seconds
    # The server's limit, as pairs of a time in seconds and the requests per second from then on. Empty if unknown.
    limit: Sequence[tuple[float, float]] = ()
    note: str = ""  # additional text next to the heading


def window_for(span: float, sends: int, max_windows: int = MAX_WINDOWS) -> float:
    """Return the length of a window: 1, 2 or 5 times a power of ten seconds, with at least five sends on average."""
    return axis_step(span, max(1, min(max_windows, sends // _SENDS_IN_A_WINDOW)))


def count_rates(
    times: Sequence[float], refused_at: Sequence[float], start: float, end: float, window: float
) -> list[Rate]:
    """Return the rate in each window from ``start`` to ``end``, inclusive. Times are sorted.

    The length of the last window is between half and one and a half times ``window``. Raises ValueError if the window
    is not more than 0.
    """
    if not window > 0.0:
        raise ValueError(f"window must be more than 0 seconds, not {window!r}")
    count = max(1, math.floor((end - start) / window + 0.5))
    edges = [start + place * window for place in range(count)] + [end]
    rates: list[Rate] = []
    for begun, ended in pairwise(edges):
        until = math.inf if ended == end else ended
        sent, refused = (bisect_left(each, until) - bisect_left(each, begun) for each in (times, refused_at))
        seconds = ended - begun
        rates.append(Rate(begun, ended, sent / seconds, refused / seconds) if seconds > 0 else Rate(begun, ended, 0, 0))
    return rates


def draw_rates(
    panels: Sequence[Panel],
    *,
    title: str,
    start: float,
    end: float,
    omitted: int = 0,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> str:
    """Draw the rates of several scopes over time, one below the other. Returns the picture as SVG text.

    ``height`` is that of each graph in pixels, without its heading and its axis. The number of scopes that are not
    shown (``omitted``) is written below the graphs.
    """
    scale = Scale(start, end if end > start else start + 1.0, _LEFT, width - _RIGHT)
    legend, rows = _legend(panels, width - _RIGHT)
    shapes = [text(20.0, 30.0, title, font_size=17.0, font_weight="600", fill=INK), *legend]
    top, each = _TOP + (rows - 1) * _LEGEND_ROW, _GRAPH_TOP + height + _GRAPH_FOOT
    for place, panel in enumerate(panels):
        shapes.append(group(_panel(panel, scale, top + place * each, height)))
    bottom = top + len(panels) * each
    if omitted:
        words = f"and {omitted:,} more scopes: these are the {len(panels)} busiest"
        shapes.append(text(20.0, bottom + 12.0, words, fill=FAINT, font_size=11.0))
    return document(width, bottom + 26.0, shapes, title)


def _legend(panels: Sequence[Panel], right: float) -> tuple[list[str], int]:
    """Return the legend and its number of rows. An entry that would exceed ``right`` starts the next row."""
    windows = {number(round(rate.end - rate.start, 9)) for panel in panels for rate in panel.rates[:1]}
    counted = f" in each {windows.pop()} s" if len(windows) == 1 else ""
    entries = [(BARS["good"][0], f"requests a second{counted}")]
    if any(panel.refused_at for panel in panels):
        entries.append((BARS["refused"][0], "refused (429 or 503); a mark below the axis for each"))
    if any(panel.limit for panel in panels):
        entries.append(("", "the server's limit"))
    shapes: list[str] = []
    x, row = 20.0, 0
    for colour, words in entries:
        before = 20.0 if colour else 32.0
        wide = before + LETTER * len(words)
        if x > 20.0 and x + wide > right:
            x, row = 20.0, row + 1
        y = 52.0 + row * _LEGEND_ROW
        shapes.append(rectangle(x, y - 5.0, 14.0, 10.0, fill=colour) if colour else _limit_line(x, y, x + 26.0))
        shapes.append(text(x + before, y + 4.0, words, fill=INK))
        x += wide + 18.0
    return shapes, row + 1


def _panel(panel: Panel, scale: Scale, top: float, height: float) -> list[str]:
    ceiling = top + _GRAPH_TOP
    floor = ceiling + height
    highest = max([*(rate.rate for rate in panel.rates), *(rate for _, rate in panel.limit)], default=0.0) * 1.1 or 1.0

    def y(rate: float) -> float:
        return floor - (floor - ceiling) * min(rate, highest) / highest

    heading = f"{panel.title}: {panel.note}" if panel.note else panel.title
    shapes = [
        text(20.0, top + 14.0, heading, fill=INK, font_weight="600"),
        text(20.0, top + 28.0, "requests/s", fill=FAINT, font_size=11.0),
    ]
    for rate, label in axis_marks(0.0, highest, 5):
        shapes.append(line(scale.left, y(rate), scale.right, y(rate), stroke=GRID))
        shapes.append(text(scale.left - 6.0, y(rate) + 4.0, label, fill=INK, font_size=11.0, text_anchor="end"))
    shapes += _bars(panel, scale, y)
    shapes += _steps(panel, scale, y)
    shapes.append(line(scale.left, floor, scale.right, floor, stroke=FAINT))
    shapes += _marks(panel, scale, floor)
    for at, label in axis_marks(scale.start, scale.end):
        shapes.append(text(scale.x(at), floor + 28.0, f"{label} s", fill=INK, font_size=11.0, text_anchor="middle"))
    return shapes


def _bars(panel: Panel, scale: Scale, y: Callable[[float], float]) -> list[str]:
    shapes: list[str] = []
    for rate in panel.rates:
        if not rate.rate or not scale.shows(rate.start, rate.end):
            continue
        left = scale.x(rate.start)
        wide = max(scale.x(rate.end) - left - 0.6, 0.5)
        good = rate.rate - rate.refused
        tip = f"{number(rate.start)} to {number(rate.end)} s: {rate.rate:.3g} requests/s"
        if rate.refused:
            tip += f", {rate.refused:.3g} of them refused"
            height = y(good) - y(rate.rate)
            shapes.append(rectangle(left, y(rate.rate), wide, height, fill=BARS["refused"][0], tip=tip))
        if good:
            shapes.append(rectangle(left, y(good), wide, y(0.0) - y(good), fill=BARS["good"][0], tip=tip))
    return shapes


def _limit_line(x1: float, y: float, x2: float) -> str:
    return line(x1, y, x2, y, stroke=INK, stroke_width=1.6, stroke_dasharray="6 4")


def _steps(panel: Panel, scale: Scale, y: Callable[[float], float]) -> list[str]:
    """Return the server's limit, as a dashed line for each period between two changes."""
    return [
        _limit_line(scale.x(at), y(rate), scale.x(until))
        for (at, rate), (until, _) in pairwise([*panel.limit, (math.inf, 0.0)])
        if scale.shows(at, until)
    ]


def _marks(panel: Panel, scale: Scale, floor: float) -> list[str]:
    """Return marks for the refusals as one shape, at most one per pixel, because there may be thousands."""
    places = dict.fromkeys(round(scale.x(at)) for at in panel.refused_at if scale.shows(at, at))
    if not places:
        return []
    strokes = "".join(f"M{x} {number(floor + 3.0)}v10" for x in places)
    return [f'<path d="{strokes}" stroke="{BARS["refused"][0]}" stroke-width="1.4"/>']


def check_picture_name(path: str | Path) -> None:
    """Check the file name of a picture before anything is drawn.

    Raises ValueError if the name ends in neither ``.svg`` nor ``.png``, and ImportError for a PNG without the ``png``
    extra.
    """
    kind = Path(path).suffix.lower()
    if kind not in (".svg", ".png"):
        raise ValueError(f"can't draw into {str(path)!r}: give a name that ends in .svg or .png")
    if kind == ".png":
        try:
            import resvg_py  # noqa: F401, PLC0415 - needs the extra png
        except ImportError as error:
            raise ImportError(
                "a PNG needs the png extra: pip install 'trawl-crawler[png]', or write an .svg"
            ) from error


def write_picture(picture: str, path: str | Path) -> None:
    """Write a picture as SVG or PNG. Raises as :func:`check_picture_name`, and OSError if the file can't be written."""
    check_picture_name(path)
    if Path(path).suffix.lower() == ".svg":
        Path(path).write_text(picture, encoding="utf-8")
        return
    from resvg_py import svg_to_bytes  # noqa: PLC0415 - needs the extra png

    Path(path).write_bytes(bytes(svg_to_bytes(svg_string=picture, zoom=_PNG_SCALE)))
