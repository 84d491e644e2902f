"""The result of a simulated crawl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from trawl.testing.recorder import Stretch
from trawl.testing.sends import Send, rounded, timeline
from trawl.testing.svg import draw

if TYPE_CHECKING:
    from trawl.throttling import ScopeReport

__all__ = ["Simulation"]


@attrs.frozen(kw_only=True)
class Simulation:
    """The result of one run of a spider on a simulated web.

    Attributes:
        sends: All sends, in order: pages, robots.txt, redirects, retries, direct fetches.
        items: The items, in the order in which they were finished.
        stats: The statistics by key.
        reason: The reason for the end of the crawl, as in ``CrawlResult``.
        elapsed: Seconds of the virtual clock.
        find_stretches: Computes ``stretches`` on first use.
        report: The report of each scope and of what limited it, the busiest first.
        title: The default title of pictures.
    """

    sends: tuple[Send, ...]
    items: list[Any]
    stats: Mapping[str, Any]
    reason: str
    elapsed: float
    find_stretches: Callable[[], Sequence[Stretch]] = attrs.field(default=tuple, repr=False, eq=False)
    report: Sequence[ScopeReport] = attrs.field(default=(), repr=False)
    title: str = "Sends"

    @cached_property
    def stretches(self) -> Sequence[Stretch]:
        """The times at which scopes were closed, and why."""
        return self.find_stretches()

    def of(self, scope: str) -> list[Send]:
        """Return the sends charged to ``scope`` (or, without any scope, sent to that host), in order."""
        return [send for send in self.sends if scope in send.scopes or (not send.scopes and send.host == scope)]

    def times(self, scope: str) -> list[float]:
        """Return the times of the sends of ``scope``, in seconds since the crawl began."""
        return [send.time for send in self.of(scope)]

    def gaps(self, scope: str) -> list[float]:
        """Return the seconds between consecutive sends of ``scope``."""
        return [rounded(later - earlier) for earlier, later in pairwise(self.times(scope))]

    def most_in_flight(self, scope: str | None = None) -> int:
        """Return the maximum of sends on the wire at once, in ``scope`` or in all; intervals exclude their ends."""
        sends = self.sends if scope is None else self.of(scope)
        changes = sorted([(send.time, 1) for send in sends] + [(send.finished, -1) for send in sends])
        most = count = 0
        for _, change in changes:
            count += change
            most = max(most, count)
        return most

    def rate(self, scope: str) -> float:
        """Return the sends a second between the first and the last send of ``scope``; 0.0 with fewer than two."""
        times = self.times(scope)
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else 0.0

    def timeline(self, most: int = 10_000) -> str:
        """Print the sends, a line for each, and return the same text.

        Args:
            most: Maximum of lines.
        """
        text = timeline(self.sends, most)
        print(text)
        return text

    def to_svg(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        start: float = 0.0,
        end: float | None = None,
        scopes: Iterable[str] | None = None,
        width: float = 1200.0,
    ) -> str:
        """Draw the sends, a track for each scope and a row for each slot; return the picture as SVG text.

        Args:
            path: A file to write it to.
            title: The heading; None: the spider's name.
            start: The first second to show.
            end: The last second to show; None: all.
            scopes: The scopes to show, in this order; None: all, the most used at the top.
            width: Width in pixels.

        Raises:
            OSError: The file can't be written.
        """
        told = self.title if title is None else title
        picture = draw(self.sends, self.stretches, title=told, width=width, start=start, end=end, scopes=scopes)
        if path is not None:
            Path(path).write_text(picture, encoding="utf-8")
        return picture
