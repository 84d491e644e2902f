"""The tables at the end of a crawl: what came of it, and what each throttling scope did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from trawl.cli.exits import OK, status_of
from trawl.observe import clipped, duration_words, number_words, rate_words, summary_rows
from trawl.throttling import ScopeReport

__all__ = ["MOST_SCOPES", "scopes_table", "summary_table"]

MOST_SCOPES = 15
"""Rows in the table of scopes; the busiest are shown."""

_SCOPE_CHARACTERS = 40
_HINT_CHARACTERS = 40

_TITLES = ("scope", "sends", "rate", "allowed", "triggers", "steps", "limited by", "hints")
_FIGURES_UNTIL = _TITLES.index("limited by")
_TROUBLES = ("triggers", "steps", "limited by", "hints")
"""Columns that are shown where they have something to say."""

_NONE = ("", "0")


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


def scopes_table(reports: Sequence[ScopeReport]) -> Table | None:
    """What each scope did and what limited it, the busiest first; None where nothing was sent."""
    sent = [report for report in reports if report.sends]
    if not sent:
        return None
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="cyan")
    rows = [_cells(report) for report in sent[:MOST_SCOPES]]
    shown = [
        place for place, title in enumerate(_TITLES) if title not in _TROUBLES or any(row[place] not in _NONE for row in rows)
    ]
    for place in shown:
        is_figure = 0 < place < _FIGURES_UNTIL
        table.add_column(_TITLES[place], justify="right" if is_figure else "left", no_wrap=is_figure, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[place]) for place in shown))
    if len(sent) > MOST_SCOPES:
        table.add_row(Text(f"and {number_words(len(sent) - MOST_SCOPES)} more", style="dim"))
    return table


def _cells(report: ScopeReport) -> tuple[str, ...]:
    longest = sorted(report.limited.items(), key=lambda limited: -limited[1])[:2]
    limited = ", ".join(f"{limit.replace('_', ' ')} {duration_words(seconds)}" for limit, seconds in longest if seconds)
    hints = f"{report.hints}: {clipped(report.last_hint, _HINT_CHARACTERS)}" if report.hints else ""
    return (
        clipped(report.scope, _SCOPE_CHARACTERS),
        number_words(report.sends),
        rate_words(report.rate),
        "any" if math.isinf(report.allowed) else rate_words(report.allowed),
        number_words(report.triggers),
        number_words(report.steps),
        limited,
        hints,
    )


def _style(title: str, reason: str) -> str:
    if title == "ended":
        return "bold green" if status_of(reason) == OK else "bold red"
    return "red" if title in ("errors", "kinds of error") else ""
