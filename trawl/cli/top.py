"""The command ``trawl top``: the processes that work on a job, drawn anew each second.

``trawl job --workers`` and ``--why`` print parts of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import trio
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trawl.cli.local_server import refuse_directory, with_server
from trawl.cli.view import can_show
from trawl.errors import JobError
from trawl.frontier.inspect import JobReport, SessionReport
from trawl.frontier.parts import SessionState
from trawl.observe import duration_words, number_words, printable, rate_words

__all__ = ["top_command", "waiting_lines", "workers_table"]

EVERY = 1.0
"""Seconds between two looks."""

_COLUMNS = ("session", "process", "since", "hosts", "pages", "rate", "items", "in flight", "queued", "errors")
_WIDE_ONLY = ("session", "since", "in flight")
WIDE = 100
"""Terminals with at least so many columns get the whole table."""

_REASONS = 10


def workers_table(sessions: Sequence[SessionReport], width: int = WIDE) -> Table:
    """Return a table of the sessions of a job, with their sum below.

    Args:
        sessions: The sessions.
        width: Columns of the terminal.
    """
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="cyan")
    titles = [title for title in _COLUMNS if width >= WIDE or title not in _WIDE_ONLY]

    def add(cells: Iterable[str], style: str = "") -> None:
        shown = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*(Text(printable(shown[title]), style=style) for title in titles))

    for title in titles:
        table.add_column(title, justify="left" if title == "process" else "right", no_wrap=True)
    for session in sessions:
        add(_cells(session))
    said = [session.saying for session in sessions if session.saying is not None]
    if len(said) > 1:
        names = ("pages", "rate", "items", "in_flight", "queued", "errors")
        sums = {name: sum([getattr(each, name) for each in said]) for name in names}
        add(("", "all", "", "", *_figures(SessionState(since=0.0, **sums))), "bold")
    return table


def _cells(session: SessionReport) -> Iterator[str]:
    yield str(session.number)
    yield f"{session.name}{' (late)' if session.lease_left < 0 else ''}{'' if session.works else ' (export)'}"
    said = session.saying
    if said is None:
        yield from ("", f"{session.parts}/1024", "", "", "", "", "", "")
        return
    yield from (duration_words(said.at), f"{session.parts}/1024", *_figures(said))


def _figures(said: SessionState) -> Iterator[str]:
    yield number_words(said.pages)
    yield rate_words(said.rate)
    yield from map(number_words, (said.items, said.in_flight, said.queued, said.errors))


def waiting_lines(sessions: Sequence[SessionReport]) -> list[str]:
    """Return what the requests of all sessions wait for, those of most requests first, each with its session."""
    counts: Counter[str] = Counter()
    for session in sessions:
        for count, words in () if session.saying is None else session.saying.waiting:
            counts[f"{words} (session {session.number})"] += count
    return [f"{count:>9,}  {words}" for words, count in counts.most_common(_REASONS)]


def top_command(url: str, console: Console) -> None:
    """Show the processes of a job until Ctrl-C; once, where standard output is no terminal."""
    from trawl.frontier.redis.report import inspect_job  # noqa: PLC0415 - needs coredis

    look = partial(inspect_job, has_scopes=False)

    def show(address: str) -> None:
        refuse_directory(address)
        trio.run(_show, address, console, look)

    with suppress(KeyboardInterrupt):
        with_server(url, show)


async def _show(url: str, console: Console, look: Callable[[str], JobReport]) -> None:
    report = await trio.to_thread.run_sync(look, url)
    if not can_show(console):
        console.print(_drawn(report, console.width))
        return
    away = ""
    with Live(_drawn(report, console.width), console=console, auto_refresh=False, screen=True) as live:
        while True:
            await trio.sleep(EVERY)
            try:
                report, away = await trio.to_thread.run_sync(look, url), ""
            except JobError as error:  # its server is away: what was seen last stays
                away = str(error)
            live.update(_drawn(report, console.width, away), refresh=True)


def _drawn(report: JobReport, width: int, away: str = "") -> Group:
    words = f"{report.name}: {number_words(report.pending)} pending, {number_words(report.seen)} seen, "
    words += f"{number_words(report.failed)} failed, {number_words(report.items)} items wait for the feeds"
    parts: list[Text | Table] = [Text(printable(words), style="bold")]
    if away:
        parts.append(Text(printable(away), style="red"))
    parts.append(workers_table(report.sessions, width))
    waiting = waiting_lines(report.sessions)
    if waiting:
        parts.append(Text("\n".join(["waiting for", *map(printable, waiting)]), style="yellow"))
    return Group(*parts)
