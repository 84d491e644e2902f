"""An SVG picture (SVG 1.1) of a run's sends: a track for each scope, a row for each slot, and a bar for each send.

Shades behind the bars show the periods in which a scope was closed, because of delays, backoff, server hints, quotas or
robots.txt. :class:`trawl.testing.Simulation` uses this module, and the benchmarks use its shapes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

import attrs

from trawl.observe import printable
from trawl.testing.sends import REFUSALS, Send, Span, merge_stretches
from trawl.throttling.limits import TABLE

__all__ = [
    "Scale",
    "Track",
    "axis_marks",
    "axis_step",
    "document",
    "draw",
    "group",
    "line",
    "make_tracks",
    "number",
    "rectangle",
    "text",
]

FONT = (
    "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, 'Liberation Sans', 'Noto Sans', 'DejaVu Sans', sans-serif"
)

DARK = {
    "#ffffff": "#0f172a",  # background, and text in bars
    "#f8fafc": "#1b2436",
    "#e5e7eb": "#334155",
    "#6b7280": "#94a3b8",
    "#111827": "#f1f5f9",
    "#2563eb": "#60a5fa",
    "#0d9488": "#2dd4bf",
    "#0f766e": "#5eead4",
    "#dc2626": "#f87171",
    "#d97706": "#fbbf24",
    "#bae6fd": "#164e63",
    "#fecaca": "#6d2929",
    "#fed7aa": "#6b3a16",
    **{row.shade[0]: row.shade[1] for row in TABLE if row.shade is not None},
}
"""The replacement of each color in dark mode (CSS Media Queries Level 5, section 12.5)."""


def number(value: float) -> str:
    """Return a coordinate with at most two decimal places."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _attributes(pairs: dict[str, str | float]) -> str:
    return "".join(
        f' {name.replace("_", "-")}="{number(value) if isinstance(value, int | float) else escape(value)}"'
        for name, value in pairs.items()
    )


def rectangle(x: float, y: float, width: float, height: float, *, tip: str = "", **style: str | float) -> str:
    """Return a rectangle with a tooltip."""
    shape = {"x": x, "y": y, "width": width, "height": height, **style}
    if not tip:
        return f"<rect{_attributes(shape)}/>"
    return f"<rect{_attributes(shape)}><title>{escape(printable(tip, keeps_lines=True))}</title></rect>"


def line(x1: float, y1: float, x2: float, y2: float, **style: str | float) -> str:
    """Return a straight line."""
    return f"<line{_attributes({'x1': x1, 'y1': y1, 'x2': x2, 'y2': y2, **style})}/>"


def text(x: float, y: float, words: str, **style: str | float) -> str:
    """Return text that starts at a point of its base line. ``text_anchor`` can make the text end or center there."""
    return f"<text{_attributes({'x': x, 'y': y, **style})}>{escape(printable(words))}</text>"


def group(shapes: list[str], **style: str | float) -> str:
    """Return shapes that share a style."""
    inside = "\n".join(shapes)
    return f"<g{_attributes(style)}>\n{inside}\n</g>"


def document(width: float, height: float, shapes: list[str], title: str) -> str:
    """Return a complete picture with a white background, or a dark background in dark mode."""
    inside = "\n".join(shapes)
    dark = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in DARK.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}" role="img" font-family="{FONT}" font-size="12">\n'
        f"<title>{escape(printable(title))}</title>\n"
        f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )


@attrs.frozen
class Scale:
    """The mapping from seconds to coordinates."""

    start: float  # the first second shown
    end: float  # the last second shown
    left: float  # the coordinate of `start`
    right: float  # the coordinate of `end`

    def x(self, at: float) -> float:
        """Return the coordinate of the time ``at``, limited to the edges."""
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return self.left + share * (self.right - self.left)

    def shows(self, start: float, end: float) -> bool:
        """Return True if the picture shows a part of the period from ``start`` to ``end``."""
        return end >= self.start and start <= self.end


def axis_step(span: float, max_parts: int) -> float:
    """Return the smallest step, of 1, 2 or 5 times a power of ten, that divides ``span`` into at most ``max_parts``."""
    least = span / max_parts
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def axis_marks(start: float, end: float, max_parts: int = 12) -> list[tuple[float, str]]:
    """Return round times from ``start`` to ``end``, each with a label. All labels have the same number of decimals."""
    step = axis_step(end - start, max_parts)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    return [(count * step, f"{count * step:.{digits}f}") for count in range(first, last + 1)]


MAX_TRACKS = 40
UNTHROTTLED = "(no scope)"
LONGEST_LABEL = 34


@attrs.frozen
class Track:
    """One scope of a picture."""

    scope: str  # the id of the scope; "" for sends without a scope
    row_names: Sequence[str]  # the label of each row, from the top
    bars: Sequence[tuple[int, Send]]  # pairs of a row and a send

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.row_names)

    @property
    def label(self) -> str:
        """The scope's name, shortened if it is long."""
        name = self.scope or UNTHROTTLED
        return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def make_tracks(sends: Sequence[Send], scopes: Iterable[str] | None = None) -> tuple[list[Track], int]:
    """Return the tracks of a picture from top to bottom, and the number of scopes omitted.

    Without ``scopes``, at most 40 scopes are shown, sorted by use and then by name.
    """
    used = Counter(scope for send in sends for scope in send.slots)
    if scopes is None:
        names = sorted(used, key=lambda scope: (-used[scope], scope))
        kept = names[:MAX_TRACKS]
    else:
        names = kept = list(scopes)
    tracks = [_track(scope, [send for send in sends if scope in send.slots]) for scope in kept]
    free = [send for send in sends if not send.slots]
    if free and scopes is None:
        tracks.append(_unthrottled_track(free))
    return tracks, len(names) - len(kept)


def _track(scope: str, sends: Sequence[Send]) -> Track:
    last = max([send.slots[scope] for send in sends], default=1)
    bars = [(send.slots[scope] - 1, send) for send in sends]
    return Track(scope, [f"slot {number + 1}" for number in range(last)], bars)


def _unthrottled_track(sends: Sequence[Send]) -> Track:
    """Return a track of sends without slots. Each send is in the first free row."""
    ends: list[float] = []
    bars: list[tuple[int, Send]] = []
    for send in sends:
        row = next((row for row, end in enumerate(ends) if end <= send.time), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = send.finished
        bars.append((row, send))
    return Track("", [""] * len(ends), bars)


SHADES: dict[str, tuple[str, str]] = {row.key: (row.shade[0], row.shade[2]) for row in TABLE if row.shade} | {
    "robots": ("#bae6fd", "robots.txt crawl-delay"),
    "backoff": ("#fecaca", "backoff"),
    "hint": ("#fed7aa", "requested by the server"),
}

BARS: dict[str, tuple[str, str]] = {
    "good": ("#2563eb", "2xx"),
    "moved": ("#0d9488", "3xx"),
    "refused": ("#dc2626", "429 or 503"),
    "failed": ("#d97706", "other 4xx, 5xx"),
    "error": ("#111827", "no answer"),
}

INK, FAINT, GRID = "#111827", "#6b7280", "#e5e7eb"

TOP, BOTTOM, RIGHT, TRACK_GAP, TRACK_PAD = 86.0, 48.0, 28.0, 10.0, 5.0
LETTER, BOLD_LETTER = 6.9, 7.7  # approximate width in pixels of a letter of 12 px
NARROWEST_BAR, NARROWEST_LABEL = 2.5, 26.0


@attrs.frozen
class _TrackBox:
    """A track and its position."""

    track: Track
    y: float
    row: float

    @property
    def height(self) -> float:
        return self.track.rows * self.row + 2 * TRACK_PAD


def draw(
    sends: Sequence[Send],
    stretches: Iterable[Span] = (),
    *,
    title: str = "Sends",
    width: float = 1200.0,
    start: float = 0.0,
    end: float | None = None,
    scopes: Iterable[str] | None = None,
) -> str:
    """Draw ``sends`` as an SVG picture, with the periods in which scopes were closed (``stretches``).

    The picture shows the seconds from ``start`` to ``end`` (None: the end of the last send), and the ``scopes`` in this
    order (None: all, the most used at the top). ``width`` is in pixels.
    """
    shown_until = max([send.finished for send in sends], default=1.0) if end is None else end
    if shown_until <= start:
        shown_until = start + 1.0
    seen = [send for send in sends if send.finished >= start and send.time <= shown_until]
    tracks, omitted = make_tracks(seen, scopes)
    left = 72.0 + BOLD_LETTER * max([len(track.label) for track in tracks], default=8)
    scale = Scale(start, shown_until, left, width - RIGHT)
    places, bottom = _place_tracks(tracks)
    closed = [each for each in merge_stretches(stretches) if scale.shows(each.start, each.end)]
    shapes = [*_heading(title, seen, scale), *_legend(seen, closed)]
    shapes += [rectangle(left, place.y, scale.right - left, place.height, fill="#f8fafc") for place in places]
    shapes += [group(_shading(place, closed, scale)) for place in places]
    shapes += _axis(scale, bottom)
    shapes += [group([*_labels(place, scale), *_bars(place, scale)]) for place in places]
    if omitted:
        shapes.append(text(24.0, bottom + 34, f"and {omitted} more scopes", fill=FAINT, font_size=11.0))
    return document(width, bottom + BOTTOM, shapes, title)


def _place_tracks(tracks: Sequence[Track]) -> tuple[list[_TrackBox], float]:
    """Return the tracks from top to bottom, and the lower end of the last track."""
    places: list[_TrackBox] = []
    y = TOP
    for track in tracks:
        place = _TrackBox(track, y, 18.0 if track.rows <= 12 else 10.0 if track.rows <= 40 else 5.0)
        places.append(place)
        y += place.height + TRACK_GAP
    return places, y


def _heading(title: str, sends: Sequence[Send], scale: Scale) -> list[str]:
    told = f"{len(sends)} sends from {number(scale.start)} s to {number(scale.end)} s"
    refused = sum(send.status in REFUSALS for send in sends)
    if refused:
        told += f", {refused} of them refused"
    return [
        text(24.0, 30.0, title, font_size=17.0, font_weight="600", fill=INK),
        text(24.0, 50.0, told, fill=FAINT),
    ]


def _legend(sends: Sequence[Send], closed: Sequence[Span]) -> list[str]:
    """Return the legend of the colors that occur."""
    there = {_kind_of(send) for send in sends}
    entries = [(colour, words, 1.0) for kind, (colour, words) in BARS.items() if kind in there]
    kinds = {stretch.kind for stretch in closed}
    entries += [(colour, words, 0.0) for kind, (colour, words) in SHADES.items() if kind in kinds]
    shapes: list[str] = []
    x = 24.0
    for colour, words, is_bar in entries:
        height = 10.0 if is_bar else 14.0
        rounding = 2.0 if is_bar else 0.0
        shapes.append(rectangle(x, 70.0 - height / 2, 22.0, height, fill=colour, rx=rounding))
        shapes.append(text(x + 28.0, 74.0, words, fill=INK))
        x += 28.0 + LETTER * len(words) + 22.0
    return shapes


def _shading(place: _TrackBox, closed: Iterable[Span], scale: Scale) -> list[str]:
    shapes = []
    for stretch in closed:
        if stretch.scope != place.track.scope or stretch.kind not in SHADES:
            continue
        x, to = scale.x(stretch.start), scale.x(stretch.end)
        source = f"\n{stretch.source}" if stretch.source else ""
        tip = f"{SHADES[stretch.kind][1]}: {stretch.start:.6g} to {stretch.end:.6g} s{source}"
        colour = SHADES[stretch.kind][0]
        y, height = place.y, place.height
        if stretch.slot:
            y, height = place.y + TRACK_PAD + (stretch.slot - 1) * place.row, place.row
        shapes.append(rectangle(x, y, max(to - x, 0.5), height, fill=colour, tip=tip))
    return shapes


def _axis(scale: Scale, bottom: float) -> list[str]:
    shapes = []
    floor = bottom - TRACK_GAP + 4
    for at, label in axis_marks(scale.start, scale.end):
        x = scale.x(at)
        shapes.append(line(x, TOP - 2, x, floor, stroke=GRID, stroke_width=1.0))
        shapes.append(line(x, floor, x, floor + 5, stroke=FAINT, stroke_width=1.0))
        shapes.append(text(x, floor + 18, label, text_anchor="middle", fill=INK, font_size=11.0))
    shapes.append(line(scale.left, floor, scale.right, floor, stroke=FAINT, stroke_width=1.0))
    middle = (scale.left + scale.right) / 2
    words = "seconds since the start of the crawl"
    shapes.append(text(middle, floor + 34, words, text_anchor="middle", fill=FAINT, font_size=11.0))
    return shapes


def _labels(place: _TrackBox, scale: Scale) -> list[str]:
    track = place.track
    middle = place.y + place.height / 2 + 4
    shapes = [text(24.0, middle, track.label, fill=INK, font_weight="600")]
    every = 1 if place.row >= 10.0 else 5
    for row, name in enumerate(track.row_names):
        if row % every == 0:
            y = place.y + TRACK_PAD + row * place.row + place.row / 2 + 3.5
            shapes.append(text(scale.left - 8, y, name, text_anchor="end", fill=FAINT, font_size=10.0))
    return shapes


def _bars(place: _TrackBox, scale: Scale) -> list[str]:
    shapes = []
    height = place.row - (4.0 if place.row > 10.0 else 2.0)
    for row, send in place.track.bars:
        x = scale.x(send.time)
        wide = max(scale.x(send.finished) - x, NARROWEST_BAR)
        y = place.y + TRACK_PAD + row * place.row + (place.row - height) / 2
        colour = BARS[_kind_of(send)][0]
        corner = min(2.0, wide / 2)
        shapes.append(
            rectangle(x, y, wide, height, fill=colour, rx=corner, stroke="#ffffff", stroke_width=0.6, tip=_tip(send))
        )
        if wide >= NARROWEST_LABEL and place.row >= 18.0:
            words = str(send.status or "error")
            centre = x + wide / 2
            shapes.append(
                text(centre, y + height / 2 + 3.6, words, fill="#ffffff", font_size=10.0, text_anchor="middle")
            )
    return shapes


def _tip(send: Send) -> str:
    scopes = ", ".join(f"{scope} ({amount:g})" for scope, amount in send.scopes.items())
    answer = send.status if send.status is not None else send.error or "cut off"
    return f"{send.method} {send.url}\n{send.time:.6g} to {send.finished:.6g} s: {answer}\n{scopes}"


def _kind_of(send: Send) -> str:
    if send.status is None:
        return "error"
    if send.status in REFUSALS:
        return "refused"
    return {2: "good", 3: "moved"}.get(send.status // 100, "failed")
