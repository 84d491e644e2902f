"""What a person is told when a crawl has ended, as rows of two texts; the command draws them.

Where a crawl is, as one value, and the rate between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from trawl.http import Times
from trawl.observe.stats import Stats
from trawl.observe.text import clipped, counted, duration_words, number_words, printable, rate_words, times_words

__all__ = [
    "ERROR_KEYS",
    "Progress",
    "Speed",
    "nothing_sent",
    "progress_line",
    "speed_between",
    "summary_rows",
    "waiting_words",
]

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
class Speed:
    """Speed over some time.

    Attributes:
        pages: Pages a second.
        items: Items a second.
    """

    pages: float = 0.0
    items: float = 0.0


def speed_between(earlier: Progress, later: Progress) -> Speed:
    """The speed between two instants; none where no time has passed."""
    seconds = later.at - earlier.at
    if seconds <= 0:
        return Speed()
    return Speed((later.pages - earlier.pages) / seconds, (later.items - earlier.items) / seconds)


def progress_line(now: Progress, speed: Speed) -> str:
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


_DETAILS = 4

_KIND_CHARACTERS = 40


def summary_rows(reason: str, elapsed: float, stats: Mapping[str, object]) -> list[tuple[str, str]]:
    """The summary of a crawl, row by row; what did not occur has no row.

    Args:
        reason: Why it ended.
        elapsed: How long this run of it took, in seconds.
        stats: Its statistics.
    """
    pages, items = _count(stats, "response_count"), _count(stats, "item_scraped_count")
    runs, counted = _count(stats, "job_run_count"), elapsed  # all that is counted goes on from run to run of a job
    words = duration_words(elapsed)
    if runs > 1:
        counted = max(elapsed, _count(stats, "elapsed_seconds"))
        words = f"{words}, {duration_words(counted)} in {number_words(runs)} runs"
    rows = [
        ("ended", printable(reason)),
        ("elapsed", words),
        ("pages", number_words(pages)),
        ("items", number_words(items)),
        ("rate", rate_words(pages / counted if counted > 0 else 0.0)),
    ]
    sends = _count(stats, "request_count")
    if sends:
        rows.append(("each request", times_words(Times(*[_count(stats, key) / sends for key in _TIMES]))))
    for title, keys in _ROWS.items():
        parts = list(_parts(stats, keys))
        if parts:
            rows.append((title, ", ".join(parts)))
    return rows


def nothing_sent(reason: str, stats: Mapping[str, object]) -> str:
    """Say that a crawl which ended by itself sent nothing and gave nothing, and why; "" where it did.

    Args:
        reason: Why it ended.
        stats: Its statistics, those of a job's earlier runs included.
    """
    done = ("request_count", "response_count", "item_scraped_count", "item_dropped_count", "item_invalid_count")
    if reason != "finished" or "finish_reason" not in stats or any(_count(stats, key) for key in done):
        return ""
    why = [f"errors in {part}" for part in _parts(stats, _ROWS["errors"])]
    why += [part for title in ("unhandled", "filtered") for part in _parts(stats, _ROWS[title])]
    return f"nothing was sent: {', '.join(why) or 'start() gave no request'}"


_TIMES = tuple(f"{part}_seconds" for part in Times.__struct_fields__)

_ROWS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "statuses": (("response_status_count/", ""),),
    "errors": (
        ("download_error_count", "downloads"),
        ("spider_exceptions", "callbacks"),
        ("item_error_count", "pipelines"),
        ("file_error_count", "files"),
        ("feed_item_errors", "items that a feed can't hold"),
        ("middleware_exceptions", "middlewares"),
        ("throttling_errors", "throttling managers"),
        ("scope_errors", "scopes"),
    ),
    "kinds of error": (("download_error_count/", ""), ("spider_exceptions/", "")),
    "unhandled": (("httperror_ignored_count", "responses outside 2xx"), ("ignored_count", "requests ignored")),
    "retries": (
        ("retry_count", ""),
        ("backoff_count", "sent again after backing off"),
        ("retry_max_reached", "given up"),
        ("refused", "refused by their host"),
    ),
    "redirects": (("redirect_count", ""),),
    "from the cache": (("httpcache/hit", ""),),
    "files": (("file_count", ""),),
    "lost items": (("item_lost_count", ""),),
    "dropped items": (("item_dropped_count", ""), ("item_invalid_count", "not of their type")),
    "filtered": (
        ("dupefilter_filtered", "seen before"),
        ("offsite_filtered", "offsite"),
        ("robots_forbidden", "refused by robots.txt"),
        ("private_addresses_refused", "at a private address"),
        ("scheme_filtered", "not http or https"),
        ("depth_filtered", "too deep"),
        ("urllength_filtered", "URL too long"),
        ("pages_filtered", "beyond a page budget"),
        ("unstorable_requests", "not to be stored by the job"),
    ),
}
"""Row title to the statistics in it and their words; a key that ends in ``/`` stands for all keys below it."""


def _parts(stats: Mapping[str, object], keys: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for key, words in keys:
        if key.endswith("/"):
            below = [name for name in sorted(stats) if name.startswith(key)]
            for name in sorted(below, key=lambda name: -_count(stats, name))[:_DETAILS]:
                yield f"{clipped(name[len(key) :], _KIND_CHARACTERS)}: {number_words(_count(stats, name))}"
            if len(below) > _DETAILS:
                yield f"{len(below) - _DETAILS} other {'kinds' if len(below) > _DETAILS + 1 else 'kind'}"
        elif n := _count(stats, key):
            yield f"{words}: {number_words(n)}" if words else number_words(n)


def _count(stats: Mapping[str, object], key: str) -> float:
    value = stats.get(key, 0)
    return value if isinstance(value, int | float) else 0
