"""The commands ``trawl job``, which shows a job once, and ``trawl top``, which redraws it every second.

``trawl job`` also queues failed requests again, prints pending requests, and sends commands to the processes of a job;
``trawl job --workers`` and ``--why`` print parts of what ``trawl top`` shows.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio
import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trawl.cli.local_server import refuse_directory, with_server
from trawl.cli.view import can_show, stdout_console
from trawl.engine.steering import (
    Add,
    Drop,
    Order,
    Pause,
    Resume,
    SetLimits,
    Stop,
    ask,
    limits_from,
    state_in,
    stored_form,
)
from trawl.errors import JobError, UsageError
from trawl.feeds.outbox import FEED_STATES
from trawl.frontier import SCHEMES, inspect
from trawl.frontier.inspect import Failure, JobReport, SessionReport
from trawl.frontier.sections import JOB_INFO, statistics_so_far
from trawl.observe import (
    CrawlStatus,
    counted,
    duration_words,
    estimate_words,
    number_words,
    printable,
    rate_words,
    status_line,
    together,
)
from trawl.observe.status import OTHER_VERSION

__all__ = ["JobOptions", "job_command", "orders_of", "top_command", "waiting_lines", "workers_table"]

_SCOPES = 10
_FAILURES = 5
_GIVEN_UP = 20
_TABLES = (b"SQLite format 3\0", b"PAR1")
"""The first bytes of SQLite and Parquet files."""

EVERY = 1.0
"""Seconds between two updates of ``trawl top``."""

_FIGURES = ("pages", "rate", "items", "in flight", "queued", "errors", "ends in")
_COLUMNS = ("session", "process", "since", "hosts", *_FIGURES)
_WIDE_ONLY = ("session", "since", "in flight", "ends in")
WIDE = 100
"""Terminals with at least this many columns get the whole table."""

_REASONS = 10  # maximum number of reasons shown for waiting requests


@attrs.frozen(kw_only=True)
class JobOptions:
    """The options of ``trawl job``.

    Attributes:
        requeues: Queue the job's failed requests again.
        exports: Print its pending requests as JSON, one per line.
        orders: Make these changes to the running job, in this order.
        has_workers: Show its processes.
        has_reasons: Show why requests wait.
        has_json: Print the status of the running job as JSON.
    """

    requeues: bool = False
    exports: bool = False
    orders: Sequence[Order] = ()
    has_workers: bool = False
    has_reasons: bool = False
    has_json: bool = False


def orders_of(
    *,
    pause: bool = False,
    stop: bool = False,
    resume: bool = False,
    limits: tuple[str, str] | None = None,
    add: str | None = None,
    drop: str | None = None,
) -> list[Order]:
    """Return the orders of the command line.

    Raises:
        UsageError: If two of pause, stop and resume are given, or a limit is not KEY=VALUE.
    """
    if pause + stop + resume > 1:
        raise UsageError("give only one of --pause, --stop and --resume")
    orders: list[Order] = []
    if limits is not None:
        orders.append(SetLimits(limits[0], limits_from(limits[1].split())))
    if add is not None:
        lines = sys.stdin if add == "-" else [add]
        orders.append(Add([line.strip() for line in lines if line.strip()]))
    if drop is not None:
        orders.append(Drop(drop))
    orders += [Pause()] if pause else [Stop()] if stop else [Resume()] if resume else []
    return orders


_SHOW = JobOptions()


def job_command(job: str, options: JobOptions = _SHOW) -> None:
    """Show a job, queue its failed requests again, export its requests, or change it while it runs.

    Args:
        job: The job's directory, or its address in a server.
        options: What to do.
    """

    def act(address: str) -> None:
        if not (options.orders or options.has_workers or options.has_reasons or options.has_json):
            _show(address, requeues=options.requeues, exports=options.exports)
        elif address.startswith(SCHEMES):
            _look_after(address, options)
        else:
            _look_after_directory(Path(address), options)

    with_server(job, act)


def _show(job: str, *, requeues: bool, exports: bool) -> None:
    store: Any = inspect
    if job.startswith(SCHEMES):
        from trawl.frontier.redis import report  # noqa: PLC0415 - not for a job in a directory

        store = report
    if requeues:
        count = store.requeue_failed(job, datetime.now(UTC))
        typer.echo(f"{counted(count, 'failed request')} queued again", err=exports)
    if exports:
        for request in store.export_pending(job):
            text = request.decode()
            print(printable(text, is_content=True) if sys.stdout.isatty() else text)
    elif not requeues:
        found = store.inspect_job(job)
        given_up = store.failures(job, _GIVEN_UP, are_given_up=True) if found.given_up else []
        for line in _lines(found, store.failures(job, _FAILURES), given_up):
            typer.echo(printable(line))


def _look_after(job: str, options: JobOptions) -> None:
    """Show the processes of a job in a server, or give them orders."""
    from trawl.frontier.redis import report  # noqa: PLC0415

    if options.orders:
        sessions = [each for each in report.inspect_job(job, has_scopes=False).sessions if each.works]
        for order in options.orders:
            if isinstance(order, Add | Drop) and not sessions:
                raise UsageError(f"job {job}: no process works on it now, so start its crawl first")
            report.order(job, *stored_form(order))
            words = f"{counted(len(sessions), 'process')}" if len(sessions) == 1 else f"{len(sessions)} processes"
            typer.echo(f"{words} will execute it with the next renewal of the lease", err=True)
    if not (options.has_workers or options.has_reasons or options.has_json):
        return
    found = report.inspect_job(job, has_scopes=False)
    if options.has_json:
        known = [session.status for session in found.sessions if session.status is not None]
        if not known:
            raise UsageError(f"job {job}: no process that this version of trawl can read works on it")
        typer.echo(msgspec.json.encode(together(known)).decode())
    if options.has_workers:
        console = stdout_console()
        console.print(workers_table(found.sessions, console.width) if found.sessions else "no process works on it")
    for line in waiting_lines(found.sessions) if options.has_reasons else ():
        typer.echo(printable(line))


def _look_after_directory(job: Path, options: JobOptions) -> None:
    """Show the crawl of a job in a directory, or give it orders."""
    for order in options.orders:
        typer.echo(printable(ask(job, preview=order).words), err=True)
        ask(job, order=order)
    if not (options.has_workers or options.has_reasons or options.has_json):
        return
    reply = ask(job, status=True)
    if options.has_json:
        typer.echo(bytes(reply.status).decode())
        return
    status = reply.crawl_status()
    if status is None:
        raise UsageError(f"job {job}: {OTHER_VERSION}")
    typer.echo(printable(status_line(status)))
    for group in status.waiting if options.has_reasons else ():
        typer.echo(printable(f"{group.count:>9,}  {group.words}"))
    for each in status.estimate.scopes if options.has_reasons and status.estimate is not None else ():
        words = f"{each.scope}: {counted(each.pending, 'pending request')}, ends in {duration_words(each.seconds)}"
        typer.echo(printable(f"{words} ({each.reason})" if each.reason else words))


def _lines(report: JobReport, failures: Sequence[Failure], given_up: Sequence[Failure]) -> Iterator[str]:
    yield from _labelled("job", report.name)
    facts = JOB_INFO.read(report)
    yield from _labelled("state", _state(report))
    if facts is not None:
        yield from _labelled("spider", f"{facts.spider} ({facts.cls})")
        began = _time(datetime.fromtimestamp(facts.begun_at, UTC))
        elapsed = statistics_so_far(report).get("elapsed_seconds") or 0
        yield from _labelled("started", f"{began}, {facts.runs} {_plural(facts.runs, 'run')}, {elapsed:.0f} s in all")
    requests = _plural(report.pending, "request")
    of_given_up = f", {report.given_up} of hosts that were given up" if report.given_up else ""
    yield from _labelled("pending", f"{report.pending} {requests}, {report.leased} of them leased{of_given_up}")
    if report.oldest_lease is not None:
        yield from _labelled("oldest", f"{report.oldest_lease.url}, leased {_time(report.oldest_lease.since_utc)}")
    failed = [f"{failure.url}: {failure.reason}" for failure in failures]
    hint = "; --requeue-failed queues them again" if failed else ""
    yield from _labelled("failed", f"{report.failed} {_plural(report.failed, 'request')}{hint}", *failed)
    if given_up:
        listed = [f"{each.url}: {each.reason}" for each in given_up]
        more = report.given_up - len(given_up)
        said = "the next run sends these again (JOB_KEEP_GIVEN_UP)"
        yield from _labelled("given up", said, *listed, *([f"and {more} more"] if more > 0 else []))
    yield from _labelled("seen", f"{report.seen} {_plural(report.seen, 'fingerprint')}")
    yield from _labelled("items", f"{report.items} not yet in the feeds")
    scopes = [f"{count:>9,}  {scope}" for scope, count in report.scopes[:_SCOPES]]
    more = len(report.scopes) - _SCOPES
    yield from _labelled("scopes", *scopes, *([f"and {more} more"] if more > 0 else []))
    feeds = [f"{mark.position:>9,} {_unit(place)}  {place}" for place, mark in (FEED_STATES.read(report) or {}).items()]
    yield from _labelled("feeds", *feeds)


def _unit(place: str) -> str:
    """Return the unit of a feed's position: rows for a table, otherwise bytes."""
    with suppress(OSError, ValueError):  # the path may be a pipe, and opening it would wait for a writer
        if Path(place).is_file():
            with open(place, "rb") as file:
                return "rows " if file.read(16).startswith(_TABLES) else "bytes"
    return "rows " if place.endswith((".sqlite", ".parquet")) else "bytes"


def _state(report: JobReport) -> str:
    """Describe the state of the job in a few words."""
    facts = JOB_INFO.read(report)
    told = state_in(report.orders)
    if told and (report.owner is not None or facts is None or not facts.is_finished(report.pending)):
        who = f"; processes: {report.owner}" if report.owner else ""
        return f"{told}: `trawl job JOB --resume` continues it{who}"
    if report.owner is not None:
        return f"running, process {report.owner}" if report.owner else "running"
    if facts is None or not facts.runs:
        return "new"
    if facts.is_finished(report.pending):
        if not report.items:
            return "finished"
        waiting = "1 item is" if report.items == 1 else f"{report.items} items are"
        return f"nothing is pending, but {waiting} not in the feeds yet: run it again"
    if report.last_error:
        return f"stopped: {report.last_error}"
    if facts.is_finished(report.pending - report.given_up):
        return "only requests of hosts that were given up are pending: run it again"
    return f"stopped: {facts.reason}" if facts.reason else "killed, or the machine went down"


def _labelled(name: str, *lines: str) -> Iterator[str]:
    """Yield lines below one label."""
    for number, line in enumerate(lines or ("none",)):
        yield f"{'' if number else name:<8} {line}"


def _time(time_utc: datetime) -> str:
    return f"{time_utc:%Y-%m-%d %H:%M:%S} UTC"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


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
    known = [session.status for session in sessions if session.status is not None]
    if len(known) > 1:
        add(("", "all", "", "", *_figures(together(known))), "bold")
    return table


def _cells(session: SessionReport) -> Iterator[str]:
    yield str(session.number)
    yield f"{session.name}{' (late)' if session.lease_left < 0 else ''}{'' if session.works else ' (export)'}"
    status = session.status
    if status is None:
        yield from ("", f"{session.parts}/1024", *("" for _ in _FIGURES))
        return
    yield from (duration_words(status.at), f"{session.parts}/1024", *_figures(status))


def _figures(status: CrawlStatus) -> Iterator[str]:
    yield number_words(status.pages)
    yield rate_words(status.rates.pages.minute)
    yield from map(number_words, (status.items, status.in_flight, status.queued, status.errors))
    yield "" if status.estimate is None else duration_words(status.estimate.seconds)


def waiting_lines(sessions: Sequence[SessionReport]) -> list[str]:
    """Return a line for each reason why requests of a session wait, most frequent first, and the estimated ends."""
    counts: Counter[str] = Counter()
    ends = []
    for session in sessions:
        if session.is_other_version:
            ends.append(f"session {session.number} ({session.name}): {OTHER_VERSION}")
        if session.status is not None:
            for group in session.status.waiting:
                counts[f"{group.words} (session {session.number})"] += group.count
            if words := estimate_words(session.status.estimate):
                ends.append(f"session {session.number}: {words}")
    return [*(f"{count:>9,}  {words}" for words, count in counts.most_common(_REASONS)), *ends]


def top_command(url: str, console: Console) -> None:
    """Show the processes of a job until Ctrl-C, or once if standard output is not a terminal."""
    from trawl.frontier.redis.report import inspect_job  # noqa: PLC0415 - needs coredis

    look = partial(inspect_job, has_scopes=False)

    def show(address: str) -> None:
        refuse_directory(address)
        trio.run(_show_top, address, console, look)

    with suppress(KeyboardInterrupt):
        with_server(url, show)


async def _show_top(url: str, console: Console, look: Callable[[str], JobReport]) -> None:
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
            except JobError as error:  # the server is unreachable: keep showing the last report
                away = str(error)
            live.update(_drawn(report, console.width, away), refresh=True)


def _drawn(report: JobReport, width: int, away: str = "") -> Group:
    words = f"{report.name}: {number_words(report.pending)} pending, {number_words(report.seen)} seen, "
    words += f"{number_words(report.failed)} failed or given up, {number_words(report.items)} items wait for the feeds"
    parts: list[Text | Table] = [Text(printable(words), style="bold")]
    if away:
        parts.append(Text(printable(away), style="red"))
    parts.append(workers_table(report.sessions, width))
    waiting = waiting_lines(report.sessions)
    if waiting:
        parts.append(Text("\n".join(["waiting for", *map(printable, waiting)]), style="yellow"))
    return Group(*parts)
