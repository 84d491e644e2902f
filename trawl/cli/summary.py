"""The tables at the end of a crawl: its summary, and one row for each throttling scope; and what their words mean."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from trawl.cli import OK, exit_status
from trawl.http import Times
from trawl.observe import clipped, duration_words, number_words, printable, rate_words, summary_rows, times_words
from trawl.throttling import ScopeReport, limit_words

__all__ = ["MAX_SCOPES", "MEANINGS", "scopes_table", "summary_help", "summary_table"]

MAX_SCOPES = 15
"""Rows in the table of scopes, the busiest first."""

_FELT = 0.05
"""Shorter waits, in seconds, are not shown."""

_SCOPE_CHARACTERS = 40

_HINT_CHARACTERS = 40

NARROW = 90
"""Terminals with fewer columns than this get the smallest table."""

WIDE = 120
"""Terminals with at least this many columns also get the times of a request."""

_TITLES = ("scope", "sends", "rate", "allowed", "triggers", "steps", "waited", "each request", "hints")

_TITLES_NORMAL = ("scope", "sends", "rate", "allowed", "triggers", "steps", "waited", "hints")

_TITLES_NARROW = ("scope", "sends", "rate", "triggers", "waited")

_FIGURES = ("sends", "rate", "allowed", "triggers", "steps")


def summary_table(reason: str, elapsed: float, stats: Mapping[str, object], *, name: str = "") -> Table:
    """Return the summary of a crawl as a table of two columns.

    Args:
        reason: The reason it ended with.
        elapsed: Its duration in seconds.
        stats: Its statistics.
        name: The spider's, where there are several.
    """
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    if name:
        table.add_row(Text("spider"), Text(printable(name), style="bold cyan"))
    for title, words in summary_rows(reason, elapsed, stats):
        table.add_row(Text(title), Text(words, style=_style(title, reason)))
    return table


def scopes_table(reports: Sequence[ScopeReport], width: int = NARROW) -> Table | None:
    """Return a table of the scopes' sends, limits and delays; None if nothing was sent or delayed.

    Args:
        reports: The reports of the scopes, the busiest first.
        width: Columns of the terminal.
    """
    sent = [report for report in reports if report.sends or max(report.limited.values(), default=0.0) >= _FELT]
    if not sent:
        return None
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="cyan")
    titles = _TITLES if width >= WIDE else _TITLES_NORMAL if width >= NARROW else _TITLES_NARROW
    for title in titles:
        if title in _FIGURES:
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, overflow="fold")
    for report in sent[:MAX_SCOPES]:
        cells = dict(zip(_TITLES, _cells(report), strict=True))
        table.add_row(*(Text(cells[title]) for title in titles))
    if len(sent) > MAX_SCOPES:
        table.add_row(Text(f"and {number_words(len(sent) - MAX_SCOPES)} more", style="dim"))
    return table


def waited_words(limited: Iterable[tuple[str, float]]) -> str:
    """Return how long was waited for each limit, as in ``2.9 s for delay, 1.3 s for robots.txt``."""
    return ", ".join(f"{duration_words(seconds)} for {limit_words(limit)}" for limit, seconds in limited)


def _cells(report: ScopeReport) -> tuple[str, ...]:
    longest = sorted(report.limited.items(), key=lambda limited: -limited[1])[:2]
    felt = [(limit, seconds) for limit, seconds in longest if seconds >= _FELT]
    hints = f"{report.hints}: {clipped(report.last_hint, _HINT_CHARACTERS)}" if report.hints else ""
    return (
        clipped(report.scope, _SCOPE_CHARACTERS),
        number_words(report.sends),
        rate_words(report.rate) if report.rate else "",
        "any" if math.isinf(report.allowed) else rate_words(report.allowed),
        number_words(report.triggers),
        number_words(report.steps),
        waited_words(felt),
        times_words(_longest(report.times)) if report.times.total else "",
        hints,
    )


def _longest(times: Times) -> Times:
    """Return the two longest times of a request itself; time in the queue is that of other requests."""
    parts = {name: getattr(times, name) for name in ("throttled", "connecting", "fetching", "parsing")}
    return Times(**{name: parts[name] for name in sorted(parts, key=lambda name: -parts[name])[:2]})


def _style(title: str, reason: str) -> str:
    if title == "ended":
        return "bold green" if exit_status(reason) == OK else "bold red"
    return "red" if title in ("errors", "kinds of error") else ""


MEANINGS: Mapping[str, Mapping[str, str]] = {
    "The crawl": {
        "spider": "its name, where several were crawled with",
        "ended": "why: finished, a limit (closespider_...), shutdown, cancelled, or what failed",
        "elapsed": "from the start to the end; of a job also that of all its runs together",
        "pages": "responses that were read whole, those of robots.txt included",
        "items": "items that went to the feeds",
        "rate": "pages a second, the first left out: what came after it, over the time elapsed",
        "each request": "where the time of a request went, on average: queued behind others, throttled by its scopes, "
        "connecting, fetching, parsing in the callback",
        "statuses": "responses by status, those of robots.txt included",
        "errors": "what failed, by the part that it failed in",
        "kinds of error": "failed downloads and callbacks by the class of the error",
        "unhandled": "responses that no callback saw, and requests that were dropped by an error that says so",
        "retries": "requests sent again; after backoff: because their scope was told to slow down",
        "redirects": "redirects followed",
        "from the cache": "responses that the cache gave: nothing was sent",
        "files": "files and images that were had",
        "lost items": "items that no feed could write",
        "dropped items": "items that a pipeline dropped, or that are not of ITEM_TYPE",
        "filtered": "requests that were never sent, by reason",
    },
    "Each scope: a host, or what THROTTLING_SCOPES names": {
        "scope": "its name",
        "sends": "requests that went to the wire, robots.txt, redirects and retries included",
        "rate": "sends a second between the first and the last; empty with fewer than two",
        "allowed": "sends a second that its limits allowed in that same time, as delays were drawn and limits moved: "
        "never less than the rate; any: nothing kept a request waiting",
        "triggers": "answers that asked to slow down: 429, 503, Retry-After, failed connections",
        "steps": "times that it backed off for them; answers of one incident count once",
        "waited": "for how long in all its next request was kept waiting by the two limits that did so longest",
        "each request": "the two longest times of its requests, on average",
        "hints": "headers obeyed, and the last one: Retry-After, RateLimit",
    },
}
"""What the words of both tables mean."""

_WIDTH = 90


def summary_help() -> str:
    """Return what the words of the summary mean, for ``trawl help summary``."""
    lines = []
    for title, meanings in MEANINGS.items():
        lines += [title, ""]
        column = max(map(len, meanings)) + 4
        for word, meaning in meanings.items():
            first = f"  {word}".ljust(column)
            lines += textwrap.wrap(meaning, _WIDTH, initial_indent=first, subsequent_indent=" " * column)
        lines.append("")
    return "\n".join(lines[:-1])
