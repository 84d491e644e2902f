"""The summary of a crawl in words for people, and the settings of the log and the progress.

Only :mod:`trawl.observe` imports this module. The command and the log of :func:`trawl.run` show the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from trawl.http import Times
from trawl.observe.text import clipped, counted, duration_words, number_words, printable, rate_words, times_words

__all__ = [
    "FAILINGS",
    "LogLevel",
    "ObserveSettings",
    "came_to_nothing",
    "failings",
    "summary_rows",
]

LogLevel = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"]


class ObserveSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of log and progress. Only the command configures logging; a program that uses trawl does not.

    Attributes:
        log_enabled: Write a log. False logs nothing.
        log_level: The least severe level to log. Tracebacks of expected errors are logged at DEBUG only.
        log_file: The file of the log; null logs to standard error.
        log_file_append: Append to an existing log file. False overwrites it.
        log_encoding: The encoding of the log file.
        log_format: The format of a log line, in the percent style of ``logging``. ``json`` writes each entry as one
            line of JSON, with the fields of the [reference](../reference/log.md).
        log_dateformat: The format of the time in a log line, as for ``strftime``.
        panel_token: The secret that is the first part of every path of the panel (``trawl crawl --panel``): letters,
            digits, ``-`` and ``_``. A panel that other machines can reach needs it.
        logstats_interval: Log progress at this interval when no live panel is shown. 0 disables it.
    """

    log_enabled: bool = True
    log_level: LogLevel | int = "INFO"
    log_file: str | None = None
    log_file_append: bool = True
    log_encoding: str = "utf-8"
    log_format: str = "%(asctime)s [%(name)s] %(levelname)s: %(message)s"
    log_dateformat: str = "%Y-%m-%d %H:%M:%S"
    panel_token: str = ""
    logstats_interval: Annotated[float, Meta(ge=0, title="s")] = 60.0


_DETAILS = 4

_KIND_CHARACTERS = 40


def summary_rows(reason: str, elapsed: float, stats: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the summary of a crawl as rows of title and text. ``elapsed`` is the duration of this run, in seconds."""
    pages, items = _count(stats, "response_count"), _count(stats, "item_scraped_count")
    intervals = max(pages - 1, 0)  # as in a scope's rate: two pages sent 1 s apart are 1 page/s, not 2
    runs, counted = _count(stats, "job_run_count"), elapsed  # statistics add up over the runs of a job
    words = duration_words(elapsed)
    if runs > 1:
        counted = max(elapsed, _count(stats, "elapsed_seconds"))
        words = f"{words}, {duration_words(counted)} in {number_words(runs)} runs"
    rows = [
        ("ended", printable(reason)),
        ("elapsed", words),
        ("pages", number_words(pages)),
        ("items", number_words(items)),
        ("rate", rate_words(intervals / counted if counted > 0 else 0.0)),
    ]
    sends = _count(stats, "request_count")
    if sends:
        rows.append(("each request", times_words(Times(*[_count(stats, key) / sends for key in _TIMES]))))
    rows += [(title, ", ".join(parts)) for title, keys in _ROWS.items() if (parts := list(_parts(stats, keys)))]
    return rows


def _nothing_sent(reason: str, stats: Mapping[str, object]) -> str:
    """Return a sentence that explains why a crawl ended by itself without any request or item; else ""."""
    done = ("request_count", "response_count", "item_scraped_count", "item_dropped_count", "item_invalid_count")
    if reason != "finished" or "finish_reason" not in stats or any(_count(stats, key) for key in done):
        return ""
    if stats.get("shared/joined"):  # other processes of the job did the work
        return ""
    why = [f"errors in {part}" for part in _parts(stats, _ROWS["errors"])]
    if why and (kinds := ", ".join(_parts(stats, _ROWS["kinds of error"]))):
        why[-1] += f" ({kinds})"
    why += [part for title in ("unhandled", "filtered") for part in _parts(stats, _ROWS[title])]
    return f"nothing was sent: {', '.join(why) or 'start() gave no request'}"


FAILINGS = ("errors", "no-items", "unreachable", "given-up")
"""Kinds of failure of a finished crawl that ``trawl crawl --fail-on`` accepts."""


def failings(stats: Mapping[str, object]) -> dict[str, str]:
    """Return the failures of a crawl that finished, each with a sentence. The keys are in :data:`FAILINGS`.

    ``errors``: user code failed or an item was lost (failed downloads do not count). ``no-items``: there were no items.
    ``unreachable``: downloads failed and none succeeded. ``given-up``: a host was given up while it had pending
    requests. The statistics include earlier runs of a job.
    """
    found = {}
    if own := list(_parts(stats, _OF_CODE)):
        found["errors"] = f"errors in {', '.join(own)}"
    if not _count(stats, "item_scraped_count"):
        found["no-items"] = "no item came"
    if _count(stats, "download_error_count") and not any(_count(stats, key) for key in _ANSWERED):
        kinds = ", ".join(_parts(stats, (("download_error_count/", ""),)))
        found["unreachable"] = f"no server could be reached{f' ({kinds})' if kinds else ''}"
    if given_up := _count(stats, "given_up_count"):
        found["given-up"] = f"{counted(given_up, 'request')} of a host that was given up"
    return found


def came_to_nothing(reason: str, stats: Mapping[str, object]) -> str:
    """Return a sentence that explains why a crawl ended by itself without any result; else "".

    A crawl has no result if it sent nothing, if it reached no server, or if it has no items and something failed. A
    crawl that ended at a limit has no result only if it reached no server, because the limit may be the reason that
    items are missing. The statistics include earlier runs of a job.
    """
    if "finish_reason" not in stats or not (reason == "finished" or reason.startswith("closespider_")):
        return ""
    if words := _nothing_sent(reason, stats):
        return words
    found = failings(stats)
    if "unreachable" in found or reason != "finished":
        return found.get("unreachable", "")
    return f"{found['no-items']}: {found['errors']}" if {"no-items", "errors"} <= found.keys() else ""


_ANSWERED = ("response_count", "httpcache/hit")

_TIMES = tuple(f"{part}_seconds" for part in Times.__struct_fields__)

_ROWS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "statuses": (("response_status_count/", ""),),
    "rendered": (
        ("browser/page_count", "pages"),
        ("browser/request_count", "their requests"),
        ("browser/shared", "shared files"),
        ("browser/refused/", ""),
        ("browser/failed/", ""),
    ),
    "errors": (
        ("download_error_count", "downloads"),
        ("spider_exceptions", "callbacks"),
        ("item_error_count", "pipelines"),
        ("file_error_count", "files"),
        ("feed_item_errors", "items that a feed could not write"),
        ("middleware_exceptions", "middlewares"),
        ("throttling_errors", "throttling managers"),
        ("scope_errors", "scopes"),
    ),
    "kinds of error": (("download_error_count/", ""), ("spider_exceptions/", "")),
    "unhandled": (("httperror_ignored_count", "responses outside 2xx"), ("ignored_count", "requests ignored")),
    "retries": (
        ("retry_count", ""),
        ("backoff_count", "after backoff"),
        ("retry_max_reached", "given up"),
        ("given_up_count", "of hosts that were given up"),
    ),
    "redirects": (("redirect_count", ""),),
    "from the cache": (("httpcache/hit", ""),),
    "files": (("file_count", ""),),
    "lost items": (("item_lost_count", ""),),
    "dropped items": (("item_dropped_count", ""), ("item_invalid_count", "of the wrong type")),
    "filtered": (
        ("dupefilter_filtered", "seen before"),
        ("offsite_filtered", "offsite"),
        ("robots_forbidden", "refused by robots.txt"),
        ("private_addresses_refused", "at a private address"),
        ("scheme_filtered", "not http or https"),
        ("depth_filtered", "too deep"),
        ("urllength_filtered", "URL too long"),
        ("pages_filtered", "over a page limit"),
        ("unstorable_requests", "not storable in the job"),
        ("dropped_by_hand", "dropped by hand"),
    ),
}
"""The statistics of each row and their descriptions. A key that ends in ``/`` stands for all keys below it."""

_OF_CODE = (
    *(row for row in _ROWS["errors"] if row[0] != "download_error_count"),
    ("item_lost_count", "lost items"),
    ("watcher_exceptions", "watchers"),
)
"""The errors that neither a server nor the network caused."""


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
