"""The end of a crawl: tables for people, and ``--fail-on`` and the file of ``--stats`` for programs."""

from __future__ import annotations

import math
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from trawl.cli import OK, exit_status
from trawl.cli.load import STANDARD_OUTPUT
from trawl.cli.view import add_rest, plain_table
from trawl.errors import TrawlError, UsageError
from trawl.feeds import to_json
from trawl.file_sync import write_file
from trawl.http import Times
from trawl.observe import (
    FAILINGS,
    clipped,
    duration_words,
    failings,
    number_words,
    printable,
    rate_words,
    summary_rows,
    times_words,
)
from trawl.throttling import ScopeReport, limit_words

__all__ = ["MAX_SCOPES", "MEANINGS", "FailOn", "StatsFile", "scopes_table", "summary_help", "summary_table"]

MAX_SCOPES = 15
"""Maximum number of rows in the table of scopes, the busiest scopes first."""

_FELT = 0.05
"""Seconds. Shorter waits are not shown."""

_SCOPE_CHARACTERS = 40

_HINT_CHARACTERS = 40

NARROW = 90
"""Terminals with fewer columns than this get the smallest table."""

WIDE = 120
"""Terminals with at least this many columns also get the times of a request."""

_FIGURES = ("sends", "rate", "allowed", "triggers", "steps")


def summary_table(
    reason: str, elapsed: float, stats: Mapping[str, object], *, name: str = "", hidden: Sequence[str] = ()
) -> Table:
    """Return the summary of a crawl. ``hidden`` has a sentence for each setting that another setting overrides."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    if name:
        table.add_row(Text("spider"), Text(printable(name), style="bold cyan"))
    for title, words in summary_rows(reason, elapsed, stats):
        table.add_row(Text(title), Text(words, style=_style(title, reason)))
    for sentence in hidden:
        table.add_row(Text("settings"), Text(printable(sentence), style="yellow"))
    return table


def scopes_table(reports: Sequence[ScopeReport], width: int = NARROW) -> Table | None:
    """Return a table of the busiest scopes' sends, limits and delays; None if nothing was sent or delayed."""
    sent = [report for report in reports if report.sends or max(report.limited.values(), default=0.0) >= _FELT]
    if not sent:
        return None
    table = plain_table()
    rows = [_cells(report) for report in sent[:MAX_SCOPES]]
    hidden = {"each request"} if width >= NARROW else {"each request", "allowed", "steps", "hints"}
    titles = [title for title in rows[0] if width >= WIDE or title not in hidden]
    for title in titles:
        if title in _FIGURES:
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[title]) for title in titles))
    add_rest(table, len(sent) - MAX_SCOPES)
    return table


def waited_words(limited: Iterable[tuple[str, float]]) -> str:
    """Return the waiting time for each limit, such as ``2.9 s for delay, 1.3 s for robots.txt``."""
    return ", ".join(f"{duration_words(seconds)} for {limit_words(limit)}" for limit, seconds in limited)


def _cells(report: ScopeReport) -> dict[str, str]:
    longest = sorted(report.limited.items(), key=lambda limited: -limited[1])[:2]
    felt = [(limit, seconds) for limit, seconds in longest if seconds >= _FELT]
    hints = f"{report.hints}: {clipped(report.last_hint, _HINT_CHARACTERS)}" if report.hints else ""
    return {
        "scope": clipped(report.scope, _SCOPE_CHARACTERS),
        "sends": number_words(report.sends),
        "rate": rate_words(report.rate) if report.rate else "",
        "allowed": "any" if math.isinf(report.allowed) else rate_words(report.allowed),
        "triggers": number_words(report.triggers),
        "steps": number_words(report.steps),
        "waited": waited_words(felt),
        "each request": times_words(_longest(report.times)) if report.times.total else "",
        "hints": hints,
    }


def _longest(times: Times) -> Times:
    """Return the two longest times of a request, except the time in the queue, which other requests cause."""
    parts = {name: getattr(times, name) for name in ("throttled", "connecting", "fetching", "parsing")}
    return Times(**{name: parts[name] for name in sorted(parts, key=lambda name: -parts[name])[:2]})


def _style(title: str, reason: str) -> str:
    if title == "ended":
        return "bold green" if exit_status(reason) == OK else "bold red"
    return "red" if title in ("errors", "kinds of error") else ""


MEANINGS: Mapping[str, Mapping[str, str]] = {
    "The crawl": {
        "spider": "its name, if several spiders ran",
        "ended": "the reason: finished, a limit (closespider_...), shutdown, cancelled, or an error",
        "elapsed": "time from the start to the end; for a job also the total of all runs",
        "pages": "complete responses, including robots.txt",
        "items": "items written to the feeds",
        "rate": "pages per second of the elapsed time, without the first page",
        "each request": "average time of a request: queued behind other requests, throttled by its scopes, connecting, "
        "fetching, parsing in the callback",
        "statuses": "responses by status code, including robots.txt",
        "rendered": "pages that a browser has rendered, and their requests",
        "errors": "errors by the component that failed",
        "kinds of error": "failed downloads and callbacks by error class",
        "unhandled": "responses that reached no callback, and requests dropped by IgnoreRequest",
        "retries": "requests sent again; after backoff: because the server asked their scope to slow down",
        "redirects": "redirects followed",
        "from the cache": "responses from the cache, without a request to the server",
        "files": "downloaded files and images",
        "lost items": "items that no feed could write",
        "dropped items": "items that a pipeline dropped, or that do not match ITEM_TYPE",
        "filtered": "requests that were not sent, by reason",
        "settings": "a setting without effect because another setting overrides it",
    },
    "Each scope: a host, or an entry of THROTTLING_SCOPES": {
        "scope": "its name",
        "sends": "requests sent, including robots.txt, redirects and retries",
        "rate": "sends per second between the first and the last send; empty for fewer than two sends",
        "allowed": "sends per second that the limits allowed in this time, with the delays that were drawn and all "
        "changes of the limits. Never less than the rate. any: no limit made a request wait. For a scope with a "
        "`rate` this is the mean; any t seconds contain at most t * rate + 2 sends",
        "triggers": "responses and errors that cause backoff: 429, 503, Retry-After, failed connections",
        "steps": "times that the scope backed off; all triggers of one incident count once",
        "waited": "total time that the next request waited, for the two limits that made it wait longest",
        "each request": "the two longest times of its requests, on average",
        "hints": "headers obeyed, and the last header: Retry-After, RateLimit",
    },
}
"""Explanations of the terms in both tables."""

_WIDTH = 90


def summary_help() -> str:
    """Return the explanations of the summary's terms, for ``trawl help summary``."""
    lines = []
    for title, meanings in MEANINGS.items():
        lines += [title, ""]
        column = max(map(len, meanings)) + 4
        for word, meaning in meanings.items():
            first = f"  {word}".ljust(column)
            lines += textwrap.wrap(meaning, _WIDTH, initial_indent=first, subsequent_indent=" " * column)
        lines.append("")
    return "\n".join(lines[:-1])


_FEWER = re.compile(r"fewer-items=(\d+(?:\.\d+)?)%")


@attrs.frozen
class FailOn:
    """The kinds that ``--fail-on`` names. ``fewer`` is the tolerated share of missing items, from 0.0 to 1.0."""

    kinds: frozenset[str] = frozenset()
    fewer: float | None = None

    @classmethod
    def parse(cls, typed: Sequence[str], stats_file: StatsFile | None) -> FailOn:
        """Return the kinds that the options name, separated by commas. ``fewer-items`` needs a file of ``--stats``."""
        kinds, fewer = set(), None
        for name in (name.strip() for text in typed for name in text.split(",")):
            if name in FAILINGS:
                kinds.add(name)
            elif match := _FEWER.fullmatch(name):
                fewer = float(match[1]) / 100.0
            else:
                known = ", ".join((*FAILINGS, "fewer-items=30%"))
                raise UsageError(f"--fail-on {name}: there is no such failure; use {known}")
        if fewer is not None and (stats_file is None or not stats_file.is_kept):
            raise UsageError("--fail-on fewer-items: name the file of the last crawl's statistics with --stats FILE")
        return cls(frozenset(kinds), fewer)

    def failed_in(self, stats: Mapping[str, object]) -> str:
        """Return the named kinds of failure that a crawl had, except for ``fewer-items``; "" if there are none."""
        return "; ".join(f"{kind}: {words}" for kind, words in failings(stats).items() if kind in self.kinds)

    def lost_items(self, stats: Mapping[str, object], earlier: Mapping[str, object]) -> str:
        """Return a sentence if a crawl has too few items compared with the last crawl; otherwise ""."""
        items, before = (each.get("item_scraped_count", 0) for each in (stats, earlier))
        if self.fewer is None or not isinstance(items, int) or not isinstance(before, int | float):
            return ""
        if items >= before * (1.0 - self.fewer):
            return ""
        lost = 100.0 * (1.0 - items / before)
        return (
            f"fewer-items: {items} items, and {before:g} in the last crawl: {lost:.0f} % fewer. The --stats file keeps"
            " the last crawl's numbers; delete it to accept the new ones"
        )


class StatsFile:
    """The file of ``--stats``, which is written completely or not at all. The path ``-`` is standard output."""

    def __init__(self, path: str) -> None:
        self._path = None if path == STANDARD_OUTPUT else Path(os.path.realpath(path))
        if self._path is None:
            return
        folder = self._path.parent
        if not folder.is_dir():
            raise UsageError(f"--stats {path}: there is no folder {folder}; make it first")
        if self._path.is_dir():
            raise UsageError(f"--stats {path}: that is a folder; name a file in it")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"--stats {path}: no file can be written in {folder}; change its permissions")

    @property
    def is_kept(self) -> bool:
        """Whether the next crawl can read the file. False for standard output."""
        return self._path is not None

    def earlier(self) -> Mapping[str, object]:
        """Return the statistics of the last crawl, or of the last crawls by spider; empty if there is no file."""
        if self._path is None or not self._path.exists():
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"--fail-on fewer-items: {self._path} has no statistics of an earlier crawl ({error}):"
                " delete it, or give --stats another file"
            ) from error

    def write(self, stats: Mapping[str, object]) -> None:
        """Write the statistics, with dates in ISO 8601 format. An existing file is replaced."""
        text = msgspec.json.format(to_json(dict(stats))) + b"\n"
        try:
            if self._path is None and sys.stdout.isatty():
                print(printable(text.decode(), keeps_lines=True), end="")
            elif self._path is None:
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
            elif self._path.exists() and not self._path.is_file():  # a pipe, or a device
                self._path.write_bytes(text)
            else:
                write_file(self._path, text)
        except OSError as error:
            raise TrawlError(
                f"the statistics can't be written to {self._path or 'stdout'}: {error.strerror}"
            ) from error
