"""The commands ``trawl job``, which shows or changes a job, ``trawl top``, which redraws it, and ``trawl panel``.

Length: the two ways to reach the processes of a job, and everything that is printed of them, are next to each other.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import trio
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trawl.cli.local_server import refuse_directory, with_server
from trawl.cli.view import can_show, open_panel, plain_table, stdout_console
from trawl.engine.steering import (
    MAX_ITEMS,
    NO_DELAY,
    Add,
    Drop,
    Look,
    Order,
    Pause,
    Question,
    Reply,
    Resume,
    SetLimits,
    Stop,
    View,
    ask,
    limits_from,
    replies_of,
    sort_scopes,
    state_in,
    stored_form,
)
from trawl.errors import JobError, UsageError
from trawl.feeds.outbox import FEED_STATES
from trawl.frontier import SCHEMES, inspect
from trawl.frontier.inspect import Failure, JobReport, SessionReport
from trawl.frontier.sections import JOB_INFO, statistics_so_far
from trawl.observe import (
    ERROR_KEYS,
    CrawlStatus,
    ObserveSettings,
    ScopeStatus,
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
from trawl.settings import Layer, ambient, load

__all__ = [
    "DirectoryLink",
    "ServerLink",
    "job_command",
    "orders_of",
    "panel_command",
    "top_command",
    "waiting_lines",
    "workers_table",
]

REPLY_WITHIN = 6.0
"""Seconds in which the processes of a job in a server must reply.

A process alone looks for questions when it renews its lease: by default every 4 s, and later with a longer lease.
"""

MAX_OFFSET = 400
"""Maximum number of scopes before the visible ones, for which each process of a job in a server is asked."""

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


def orders_of(
    *,
    pause: bool = False,
    stop: bool = False,
    resume: bool = False,
    limits: tuple[str, str] | None = None,
    add: str | None = None,
    drop: str | None = None,
) -> list[Order]:
    """Return the orders of the command line."""
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


def job_command(
    job: str,
    *,
    requeues: bool = False,
    exports: bool = False,
    orders: Sequence[Order] = (),
    parts: Collection[str] = (),
) -> None:
    """Show a job or ``parts`` of it, queue its failed requests again, print pending requests, or give ``orders``."""

    def act(address: str) -> None:
        if orders or parts:
            _look_after(address, orders, parts)
        else:
            _show(address, requeues=requeues, exports=exports)

    with_server(job, act)


def store_of(job: str) -> Any:
    """Return the module with the functions that inspect a job, in its directory or server."""
    if not job.startswith(SCHEMES):
        return inspect
    from trawl.frontier.redis import report  # noqa: PLC0415 - not for a job in a directory

    return report


def _show(job: str, *, requeues: bool, exports: bool) -> None:
    store = store_of(job)
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


class DirectoryLink:
    """The connection to the process of a job in a directory."""

    def __init__(self, job: str) -> None:
        self.name: str = job
        self._job = Path(job)

    def sessions(self) -> list[SessionReport]:
        """Return the report of its process. Raises UsageError if no process works on the job."""
        status = ask(self._job, status=True).crawl_status()
        owner = inspect.inspect_job(self._job).owner
        return [SessionReport(number=1, name=f"{owner or ''}", parts=1024, status=status, is_other_version=not status)]

    def look(self, view: View) -> Look:
        """Return what the process says, or what the job stores if there is no process."""
        try:
            reply = ask(self._job, view=view)
        except UsageError as error:
            report = inspect.inspect_job(self._job)
            is_unheard = isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)
            if report.owner is not None and not is_unheard:  # unheard: it is starting, or could not open its socket
                raise
            return _stored_look(report, view)
        status = reply.crawl_status()
        if status is None:
            raise UsageError(f"job {self._job}: {OTHER_VERSION}")
        return Look(status=status, rows=reply.scopes(), total=reply.total, items=reply.items)

    def why(self, subject: str) -> tuple[str, Sequence[str]]:
        """Return why a URL, a scope or a host waits, and what its host has asked for."""
        reply = ask(self._job, why=subject)
        return reply.words, reply.host

    def effect_of(self, order: Order) -> str:
        """Return the effect that an order would have now."""
        return ask(self._job, preview=order).words

    def order(self, order: Order) -> str:
        """Execute an order, and return its effect."""
        return ask(self._job, order=order).words


class ServerLink:
    """The connection to the processes of a job in a server. ``name`` is the job without its password."""

    def __init__(self, job: str) -> None:
        from trawl.frontier.redis import client, report  # noqa: PLC0415 - needs coredis

        self.name: str = client.Address.parse(job).shown
        self._report = report
        self._job = job
        self._asked: dict[View, tuple[str, float]] = {}

    def sessions(self) -> list[SessionReport]:
        """Return the reports of its processes."""
        return list(self._report.inspect_job(self._job, has_scopes=False).sessions)

    def look(self, view: View) -> Look:
        """Return what the processes say, or what the job stores if there is no process."""
        # The server keeps replies longer than the processes update them, so a question that has ended gets a new id.
        now = time.monotonic()
        self._asked = {each: known for each, known in self._asked.items() if known[1] > now - self._report.ASKED}
        id = self._asked.get(view, (uuid4().hex, now))[0]
        self._asked[view] = id, now
        # Each process returns its own first scopes, because it does not know those of others.
        asked = msgspec.structs.replace(view, offset=0, count=min(view.offset, MAX_OFFSET) + view.count)
        sessions = self._ask(id, Question(view=asked), 0.0)
        if not any(each.lease_left >= 0 for each in sessions):
            return _stored_look(self._report.inspect_job(self._job), view)
        replies = [reply for session in sessions if (reply := replies_of(session, id)) is not None and not reply.error]
        # A reply is newer than the report of the last renewal.
        told = [(replies_of(session, id) or Reply()).crawl_status() or session.status for session in sessions]
        known = [status for status in told if status is not None]
        notes = [f"{each.name}: {OTHER_VERSION}" for each in sessions if each.is_other_version]
        notes += [f"{each.name} is late: its lease has ended" for each in sessions if each.lease_left < 0]
        status = together(known) if known else CrawlStatus(state="no report yet")
        return Look(
            status=status,
            rows=sort_scopes([row for reply in replies for row in reply.scopes()], view),
            total=sum([reply.total for reply in replies]),
            items=[item for reply in replies for item in reply.items][-MAX_ITEMS:],
            notes=notes,
        )

    def why(self, subject: str) -> tuple[str, Sequence[str]]:
        """Return why a URL, a scope or a host waits, and what its host has asked for."""
        answered, silence = self._replies(Question(why=subject))
        replies = [reply for _, reply in answered]
        # A process that does not send to the host says so.
        replies.sort(key=lambda reply: (" sends to it: " in reply.words, reply.words == NO_DELAY))
        host = [line for reply in replies for line in reply.host]
        return (replies[0].words if replies else silence), host

    def effect_of(self, order: Order) -> str:
        """Return the effect that an order would have now. Raises TrawlError if the order does not fit."""
        replies, silence = self._replies(Question(preview=order))
        for _, reply in replies:
            if reply.error:
                raise UsageError(reply.error)
        if not replies and isinstance(order, SetLimits):
            load(Layer("--set", {"THROTTLING_SCOPES": {order.scope: order.limits}}))
        words = Counter(reply.words for _, reply in replies)
        if len(words) < 2:
            return next(iter(words), silence)
        return "; ".join(f"{name}: {reply.words}" for name, reply in replies)

    def order(self, order: Order) -> str:
        """Add an order to the job's list, and return in words who executes it."""
        count = len([each for each in self.sessions() if each.works and each.lease_left > 0])
        self._report.order(self._job, *stored_form(order), is_heard=count > 0)
        if not count:
            return "the next process that works on it will execute it"
        words = "1 process" if count == 1 else f"{count} processes"
        return f"{words} will execute it with the next renewal of the lease"

    def _replies(self, question: Question) -> tuple[list[tuple[str, Reply]], str]:
        """Return the names of the processes with their replies, and what to say if there is none."""
        id = uuid4().hex
        sessions = self._ask(id, question, REPLY_WITHIN)
        are_there = any(each.lease_left > 0 for each in sessions)
        silence = "no process has replied yet: try again" if are_there else "no process works on it now"
        return [(each.name, reply) for each in sessions if (reply := replies_of(each, id)) is not None], silence

    def _ask(self, id: str, question: Question, patience: float) -> list[SessionReport]:
        """Return the processes that work on the job, with their replies so far."""
        sessions = self._report.ask_processes(self._job, id, msgspec.json.encode(question).decode(), patience)
        return [session for session in sessions if session.works]


def link_to(address: str) -> DirectoryLink | ServerLink:
    """Return the connection to the processes of a job."""
    return ServerLink(address) if address.startswith(SCHEMES) else DirectoryLink(address)


def _stored_look(report: JobReport, view: View) -> Look:
    """Return the scopes of a job that no process works on, with the numbers of their pending requests."""
    facts, stats = JOB_INFO.read(report), statistics_so_far(report)
    rows = [ScopeStatus(scope=scope, queued=count) for scope, count in report.scopes if view.text in scope]
    status = CrawlStatus(
        spider="" if facts is None else facts.spider,
        state=f"no process {'works on it' if report.owner is None else 'replies'}: {_state(report)}",
        pages=int(stats.get("response_count") or 0),
        items=int(stats.get("item_scraped_count") or 0),
        errors=sum([int(stats.get(key) or 0) for key in ERROR_KEYS]),
        queued=report.pending,
    )
    notes = [f"{report.failed} failed requests: `trawl job JOB --requeue-failed` queues them again"]
    return Look(status=status, rows=sort_scopes(rows, view), total=len(rows), notes=notes if report.failed else [])


def panel_command(job: str, listen: str) -> None:
    """Show a job in the browser until Ctrl-C. ``listen`` is ``[HOST:]PORT``."""
    panel = open_panel(listen, load(*ambient()).of(ObserveSettings).panel_token, "--listen")

    def act(address: str) -> None:
        link = link_to(address)
        link.look(View(count=1))  # raises an error if there is no job
        trio.run(panel.show_job, link.name, link)

    with closing(panel), suppress(KeyboardInterrupt):
        with_server(job, act)


def _look_after(job: str, orders: Sequence[Order], parts: Collection[str]) -> None:
    """Give the processes of a job orders, and show parts of their status."""
    link = link_to(job)
    for order in orders:
        typer.echo(printable(effect := link.effect_of(order)), err=True)
        if (words := link.order(order)) != effect:
            typer.echo(printable(words), err=True)
    if not parts:
        return
    sessions = link.sessions()
    # The server keeps the last report of a process that was killed.
    are_there = any(each.works and each.lease_left >= 0 for each in sessions)
    known = [session.status for session in sessions if session.status is not None]
    others = any(session.is_other_version for session in sessions)
    silence = "no process works on it now"
    if are_there and not known:
        silence = OTHER_VERSION if others else "no process has reported yet: try again"
    is_silent = not (are_there and known)
    if is_silent and ("json" in parts or (are_there and others and "why" in parts)):
        raise UsageError(f"job {link.name}: {silence}")
    if "json" in parts:
        typer.echo(msgspec.json.encode(together(known)).decode())
    if "workers" in parts and sessions:
        console = stdout_console()
        console.print(workers_table(sessions, console.width))
    if is_silent and ("why" in parts or not are_there):
        typer.echo(silence)
    elif "why" in parts:
        typer.echo(printable(status_line(together(known))))
    for line in waiting_lines(sessions) if "why" in parts else end_lines(sessions) if "workers" in parts else ():
        typer.echo(printable(line))


def _lines(report: JobReport, failures: Sequence[Failure], given_up: Sequence[Failure]) -> Iterator[str]:
    yield from _labelled("job", report.name)
    facts = JOB_INFO.read(report)
    yield from _labelled("state", _state(report))
    if facts is not None:
        yield from _labelled("spider", f"{facts.spider} ({facts.cls})")
        began = _time(datetime.fromtimestamp(facts.begun_at, UTC))
        elapsed = statistics_so_far(report).get("elapsed_seconds") or 0
        yield from _labelled("started", f"{began}, {counted(facts.runs, 'run')}, {elapsed:.0f} s in all")
    of_given_up = f", {report.given_up} of hosts that were given up" if report.given_up else ""
    yield from _labelled(
        "pending", f"{counted(report.pending, 'request')}, {report.leased} of them leased{of_given_up}"
    )
    if report.oldest_lease is not None:
        yield from _labelled("oldest", f"{report.oldest_lease.url}, leased {_time(report.oldest_lease.since_utc)}")
    failed = [f"{failure.url}: {failure.reason}" for failure in failures]
    hint = "; --requeue-failed queues them again" if failed else ""
    yield from _labelled("failed", f"{counted(report.failed, 'request')}{hint}", *failed)
    if given_up:
        listed = [f"{each.url}: {each.reason}" for each in given_up]
        more = report.given_up - len(given_up)
        said = "the next run sends these again (JOB_KEEP_GIVEN_UP)"
        yield from _labelled("given up", said, *listed, *([f"and {more} more"] if more > 0 else []))
    yield from _labelled("seen", counted(report.seen, "fingerprint"))
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
    for number, line in enumerate(lines or ("none",)):
        yield f"{'' if number else name:<8} {line}"


def _time(time_utc: datetime) -> str:
    return f"{time_utc:%Y-%m-%d %H:%M:%S} UTC"


def workers_table(sessions: Sequence[SessionReport], width: int = WIDE) -> Table:
    """Return the table of ``trawl top`` and ``trawl job --workers``: the sessions of a job, with their sum below."""
    titles = [title for title in _COLUMNS if width >= WIDE or title not in _WIDE_ONLY]
    table = plain_table(titles, ["process"], no_wrap=True)

    def add(cells: Iterable[str], style: str = "") -> None:
        shown = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*(Text(printable(shown[title]), style=style) for title in titles))

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
    if status.estimate is None:
        yield ""
    else:
        yield "never" if status.estimate.seconds == inf else duration_words(status.estimate.seconds)


def waiting_lines(sessions: Sequence[SessionReport]) -> list[str]:
    """Return a line for each reason why requests of a session wait, most frequent first, and :func:`end_lines`."""
    counts: Counter[str] = Counter()
    for session in sessions:
        if session.status is not None:
            for group in session.status.waiting:
                whose = f" (session {session.number})" if len(sessions) > 1 else ""
                counts[f"{group.words}{whose}"] += group.count
    return [*(f"{count:>9,}  {words}" for words, count in counts.most_common(_REASONS)), *end_lines(sessions)]


def end_lines(sessions: Sequence[SessionReport]) -> list[str]:
    """Return the estimated end of the pending requests and of each host, and the sessions of another version."""
    known = [session.status for session in sessions if session.status is not None]
    end = together(known).estimate if known else None
    lines = [estimate_words(msgspec.structs.replace(end, scopes=()))] if end is not None else []  # listed below
    for each in () if end is None else end.scopes:
        ends = "never ends" if each.seconds == inf else f"ends in {duration_words(each.seconds)}"
        words = f"{each.scope}: {counted(each.pending, 'pending request')}, {ends}"
        lines.append(f"{words} ({each.reason})" if each.reason else words)
    others = [each for each in sessions if each.is_other_version]
    return lines + [f"session {each.number} ({each.name}): {OTHER_VERSION}" for each in others]


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
