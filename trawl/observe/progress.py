"""Where a crawl is, as one value, and the rate between two of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trawl.observe.stats import Stats
from trawl.observe.words import counted, number_words, rate_words

__all__ = ["ERROR_KEYS", "Pace", "Progress", "pace", "progress_line", "waiting_words"]

ERROR_KEYS = (
    "download_error_count",
    "spider_exceptions",
    "item_error_count",
    "middleware_exceptions",
    "throttling_errors",
    "scope_errors",
)
"""The statistics whose sum a person sees as "errors"."""


@attrs.frozen(kw_only=True)
class Progress:
    """A crawl at one instant.

    Attributes:
        at: Seconds since the crawl began.
        pages: Responses so far.
        items: Items so far.
        queued: Requests that wait, for whatever reason.
        in_flight: Requests on the wire.
        errors: What went wrong so far: downloads, callbacks, pipelines.
        waiting: What holds up most of the waiting requests, in words: ``"a.example delay 0.4 s"``.
        held: How many requests wait on something else than a free place.
    """

    at: float = 0.0
    pages: int = 0
    items: int = 0
    queued: int = 0
    in_flight: int = 0
    errors: int = 0
    held: int = 0
    waiting: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, stats: Stats, *, at: float, queued: int, in_flight: int, held: int = 0, waiting: Sequence[str] = ()
    ) -> Progress:
        """The progress that these statistics tell."""
        return cls(
            at=at,
            pages=stats.count("response_count"),
            items=stats.count("item_scraped_count"),
            errors=sum(stats.count(key) for key in ERROR_KEYS),
            queued=queued,
            in_flight=in_flight,
            held=held,
            waiting=tuple(waiting),
        )


@attrs.frozen
class Pace:
    """Speed over some time.

    Attributes:
        pages: Pages a second.
        items: Items a second.
    """

    pages: float = 0.0
    items: float = 0.0


def pace(earlier: Progress, later: Progress) -> Pace:
    """The speed between two instants; none where no time has passed."""
    seconds = later.at - earlier.at
    if seconds <= 0:
        return Pace()
    return Pace((later.pages - earlier.pages) / seconds, (later.items - earlier.items) / seconds)


def progress_line(now: Progress, speed: Pace) -> str:
    """Progress as one line of the log."""
    line = (
        f"{counted(now.pages, 'page')} ({rate_words(speed.pages)}), "
        f"{counted(now.items, 'item')} ({rate_words(speed.items)}), "
        f"{number_words(now.queued)} queued, {now.in_flight} in flight, {counted(now.errors, 'error')}"
    )
    return f"{line}; {waiting_words(now)}" if now.waiting else line


def waiting_words(now: Progress) -> str:
    """What is held up and by what: ``37 waiting: a.example delay 0.4 s; b.example Retry-After 12 s``."""
    return f"{number_words(now.held)} waiting: {'; '.join(now.waiting)}" if now.waiting else ""
