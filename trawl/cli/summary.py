"""The tables at the end of a crawl: its summary, and one row for each throttling scope."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from trawl.cli import OK, exit_status
from trawl.http import Times
from trawl.observe import clipped, duration_words, number_words, rate_words, summary_rows, times_words
from trawl.throttling import ScopeReport, limit_words

__all__ = ["MAX_SCOPES", "scopes_table", "summary_table"]

MAX_SCOPES = 15
"""Rows in the table of scopes; the busiest are shown."""

_FELT = 0.05
"""Seconds of waiting that are worth telling."""

_SCOPE_CHARACTERS = 40

_HINT_CHARACTERS = 40

NARROW = 90
"""A terminal of fewer columns gets a table of fewer columns."""

WIDE = 120
"""One of as many has a column for the time of a request."""

_TITLES = ("scope", "sends", "rate", "allowed", "triggers", "steps", "limited by", "each request", "hints")

_TITLES_NORMAL = ("scope", "sends", "rate", "allowed", "triggers", "steps", "limited by", "hints")

_TITLES_NARROW = ("scope", "sends", "rate", "triggers", "limited by")

_FIGURES = ("sends", "rate", "allowed", "triggers", "steps")


def summary_table(reason: str, elapsed: float, stats: Mapping[str, object]) -> Table:
    """What came of a crawl, two columns, ready to be printed.

    Args:
        reason: Why it ended.
        elapsed: How long it took, in seconds.
        stats: Its statistics.
    """
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for title, words in summary_rows(reason, elapsed, stats):
        table.add_row(Text(title), Text(words, style=_style(title, reason)))
    return table


def scopes_table(reports: Sequence[ScopeReport], width: int = NARROW) -> Table | None:
    """What each scope did and what limited it, the busiest first; None where nothing was sent or kept waiting.

    Args:
        reports: What the scopes tell.
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


def _cells(report: ScopeReport) -> tuple[str, ...]:
    longest = sorted(report.limited.items(), key=lambda limited: -limited[1])[:2]
    felt = [(limit_words(limit), seconds) for limit, seconds in longest if seconds >= _FELT]
    limited = ", ".join(f"{limit} {duration_words(seconds)}" for limit, seconds in felt)
    hints = f"{report.hints}: {clipped(report.last_hint, _HINT_CHARACTERS)}" if report.hints else ""
    return (
        clipped(report.scope, _SCOPE_CHARACTERS),
        number_words(report.sends),
        rate_words(report.rate),
        "any" if math.isinf(report.allowed) else rate_words(report.allowed),
        number_words(report.triggers),
        number_words(report.steps),
        limited,
        times_words(_longest(report.times)) if report.times.total else "",
        hints,
    )


def _longest(times: Times) -> Times:
    """The two longest parts of what a request itself takes: time that is queued is that of others."""
    parts = {name: getattr(times, name) for name in ("throttled", "connecting", "fetching", "parsing")}
    return Times(**{name: parts[name] for name in sorted(parts, key=lambda name: -parts[name])[:2]})


def _style(title: str, reason: str) -> str:
    if title == "ended":
        return "bold green" if exit_status(reason) == OK else "bold red"
    return "red" if title in ("errors", "kinds of error") else ""
