"""How a crawl meets a server's limit: ``python -m benchmarks.limit_req [--svg FILE]``.

It starts an nginx with ``limit_req`` at 5 and at 50 requests a second (``nodelay``, burst 5, 429), and crawls it with
rampup, and from full speed without: all side by side in one process, in about two minutes. The table shows what nginx
served and refused; the picture, which ``docs/explanation`` shows, the rate over time with every 429.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers.limited import CASES, HTTP, RAMPED, SERVER, Run, crawl_all, write_page
from tests.servers.nginx import running
from trawl.testing.svg import Scale, axis_marks, document, group, line, number, rectangle, text

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 900.0, 240.0, 60.0, 880.0, 44.0, 54.0
BIN = 2.0
"""Seconds over which the rate is counted."""

FOUND = 20.0
"""Seconds from which on the rate is told."""

GRID, INK, QUIET, SERVED, REFUSED = "#e5e7eb", "#111827", "#4b5563", "#2563eb", "#dc2626"
TITLES = {
    "five-rampup": "5 requests/s allowed, rampup, from a page a second",
    "fifty-rampup": "50 requests/s allowed, rampup, from a page a second",
    "five-plain": "5 requests/s allowed, no rampup, from delay 0 and concurrency 8",
}


def panel(run: Run, top: float) -> str:
    """One crawl: a bar for the pages served in each window, the allowed rate as a line, a mark for each 429."""
    scale = Scale(0.0, run.took, LEFT, RIGHT)
    floor, ceiling = top + PANEL - BOTTOM, top + TOP
    highest = run.case.allowed * 1.3

    def y(rate: float) -> float:
        return floor - (floor - ceiling) * min(rate, highest) / highest

    shapes = [text(LEFT, top + 18, TITLES[run.case.name], fill=INK, font_weight="bold", font_size=13)]
    for rate, label in axis_marks(0.0, highest, 5):
        shapes += [line(LEFT, y(rate), RIGHT, y(rate), stroke=GRID)]
        shapes += [text(LEFT - 6, y(rate) + 4, label, fill=QUIET, text_anchor="end")]
    for at, label in axis_marks(0.0, run.took, 12):
        shapes += [text(scale.x(at), floor + 34, label, fill=QUIET, text_anchor="middle")]
    shapes += [text(RIGHT, floor + 48, "seconds", fill=QUIET, text_anchor="end")]
    shapes += [text(LEFT, top + 36, "pages/s", fill=QUIET, text_anchor="end")]
    shapes += bars(run, scale, floor, y)
    allowed = y(run.case.allowed)
    shapes += [line(LEFT, allowed, RIGHT, allowed, stroke=INK, stroke_dasharray="6 4")]
    shapes += [text(LEFT + 6, allowed - 5, "allowed", fill=INK)]
    at_429 = [scale.x(at) for at in run.refused]
    shapes += [line(x, floor + 4, x, floor + 16, stroke=REFUSED, stroke_width=2) for x in at_429]
    words = f"{run.case.pages:,} pages, {len(run.refused)} answers 429 (red marks), {len(run.lost)} pages lost"
    shapes += [text(RIGHT, top + 36, words, fill=QUIET, text_anchor="end")]
    return group(shapes)


def bars(run: Run, scale: Scale, floor: float, y: Callable[[float], float]) -> list[str]:
    """What was served in each ``BIN`` seconds; the last bar, cut short by the end, is as wide as it lasted."""
    shapes, start = [], 0.0
    while start < run.took:
        end = min(start + BIN, run.took)
        rate = run.rate(start, end) if end - start > BIN / 4 else 0.0
        left, right = scale.x(start), scale.x(end)
        tip = f"{number(start)} to {number(end)} s: {rate:.1f} pages/s"
        shapes.append(rectangle(left, y(rate), max(right - left - 1, 0.5), floor - y(rate), tip=tip, fill=SERVED))
        start = end
    return [group(shapes, opacity=0.75)]


def settled(run: Run) -> str:
    """The rate once the limit is found, as a part of what is allowed."""
    share = run.rate(FOUND, run.took) / run.case.allowed
    refused = sum(at >= FOUND for at in run.refused)
    return f"{share:.0%} of what is allowed and {refused} of the answers 429 from {FOUND:.0f} s on"


def main() -> None:
    """Crawl, tell, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="write the picture there")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        root, own = Path(folder, "root"), Path(folder, "nginx")
        root.mkdir()
        own.mkdir()
        write_page(root)
        with running(own, root, extra=HTTP, server=SERVER) as nginx:
            runs = trio.run(crawl_all, nginx, CASES)
    for name, run in runs.items():
        told = f"{run.case.pages} pages in {run.took:.0f} s, {len(run.refused)} answers 429, {len(run.lost)} pages lost"
        print(f"{name}: {told}" + (f", {settled(run)}" if name in RAMPED else ""))
    if options.svg:
        panels = [panel(runs[name], place * PANEL) for place, name in enumerate(TITLES)]
        height = PANEL * len(TITLES)
        options.svg.write_text(document(WIDTH, height, panels, "Pages a second under limit_req"), encoding="utf-8")


if __name__ == "__main__":
    main()
