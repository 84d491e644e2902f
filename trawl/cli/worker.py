"""One crawl by several processes: ``trawl worker``, which joins a job in a server, and ``trawl crawl --processes N``.

The process of ``trawl crawl`` is the *leader*. It opens the job, writes the feeds and shows the crawl, but receives no
hosts. So it runs no callbacks, and a callback that ends its process can't end the command. It starts the workers after
its own crawl has started, so that an error at the start is reported only once. ``open_spider`` and ``spider_opened``
also run in the leader, but receivers of ``spider_idle`` run in the workers only::

    leader ── its own server, if the job has no address (trawl.cli.local_server)
        └── worker 1 to N: trawl worker --spider SPIDER --leader FD

A socket carries a worker's status and scopes to the leader (MessagePack, length first). When the leader's end closes,
the worker shuts down as after a first Ctrl-C: after Ctrl-C, a limit in the leader, or the leader's death. Ctrl-C
reaches only the leader, because each worker has its own process session.

Each process finds the job's end in the store. A worker that ends earlier is started again, up to :data:`MOST_STARTS`
times in a minute. After that, the other workers continue alone. If no worker remains, or if the spider ends the crawl
in one worker, the leader ends the crawl in all.

Length: the messages, the restarts and the end of the processes depend on each other.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs
import msgspec
import trio
from rich.console import Console

from trawl.cli import NO_PROCESS, USAGE
from trawl.cli.crawl_entry import CrawlEntry, reports_of_all
from trawl.cli.load import find_spider, spiders_here
from trawl.cli.local_server import open_local_server
from trawl.cli.log_entries import JSON_START
from trawl.cli.view import CrawlWith, StatusOf, Watcher
from trawl.errors import JobError, JobUnavailable, SessionEnded, SpiderNotFound, UsageError
from trawl.frontier import SCHEMES, JobSettings
from trawl.frontier.sections import JOB_INFO, JobInfo, statistics_so_far
from trawl.observe import CrawlStatus, printable, together
from trawl.settings import Layer, load
from trawl.throttling import ScopeReport, reports_together

if TYPE_CHECKING:
    from trawl.engine import Crawl
    from trawl.frontier.inspect import JobReport

__all__ = [
    "EndMessage",
    "LeaderProcess",
    "Messages",
    "WorkerPool",
    "job_of_leader",
    "lead",
    "rejoining",
    "require_address",
    "spider_of_job",
]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("trawl.worker")

JOB_VARIABLE = "_TRAWL_JOB"
"""The environment variable in which a leader names the job."""

LOOK_EVERY = 1.0
"""Seconds between two checks for a job that does not exist yet."""

REJOIN_AFTER = 1.0
"""Seconds before a process joins again after other processes have taken over its work."""

MAX_SCOPES = 1000
"""Maximum number of scopes that a worker reports at its end, busiest first."""

_LENGTH = struct.Struct(">I")

MOST_STARTS, STARTS_WITHIN = 3, 60.0
"""A worker that starts this often within these seconds is given up. Starts before an end by a page do not count."""

FIRST_PAUSE = 0.5
"""Seconds before a worker is started again. The pause doubles with each recent start."""

GRACE = 10.0
"""Seconds that a worker has to end after the leader's crawl. A slower worker is cancelled, and finally killed."""

REST = 1.0
"""Seconds to wait for the last messages of a worker after its process has ended."""

_OF_THE_END = ("finish_reason", "start_time", "finish_time")

_ENDS_OF_ONE = ("finished", "shutdown", "cancelled", "stopped", "memusage_exceeded")
"""Reasons of a worker's end that do not end other processes. Other reasons are limits or errors, and end them too."""

_ENDS_BY_SPIDER = ("shutdown", "cancelled")
"""Reasons of a worker's end that end other processes too if the status is 0. After a signal, the status is not 0."""


class StatusMessage(msgspec.Struct, frozen=True, tag="worked"):
    """The ``status`` of a worker."""

    status: CrawlStatus


class EndMessage(msgspec.Struct, frozen=True, tag="ended"):
    """The ``reason`` why a worker's crawl ended, and the reports of its ``scopes``."""

    reason: str
    scopes: list[ScopeReport]


Message: TypeAlias = "StatusMessage | EndMessage"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StatusMessage | EndMessage).decode


class Messages:
    """Decodes the messages of a worker from the bytes received so far."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, some: bytes) -> list[Message]:
        """Add received bytes, and return the messages that are now complete."""
        self._bytes += some
        found: list[Message] = []
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + int(_LENGTH.unpack_from(self._bytes)[0])
            if len(self._bytes) < end:
                break
            found.append(_decode(bytes(self._bytes[_LENGTH.size : end])))
            del self._bytes[:end]
        return found


class LeaderProcess:
    """The connection of a worker to the leader, which has started the worker. ``descriptor`` is the socket."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError as error:
            raise UsageError("--leader is for the processes that `trawl crawl SPIDER --processes N` starts") from error
        self._socket.set_inheritable(False)

    async def watch(self, crawl: Crawl) -> None:
        """Report the status of a crawl, and shut the crawl down when the leader's end closes. A watcher."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_status, crawl)
            await trio.lowlevel.wait_readable(self._socket)  # the leader sends nothing, so readable means closed
            crawl.shutdown()

    def ended(self, reason: str, scopes: Sequence[ScopeReport]) -> None:
        """Report the end of the crawl, and close the worker's end of the socket."""
        self._tell(EndMessage(reason, list(scopes[:MAX_SCOPES])))
        self._socket.close()

    async def _tell_status(self, crawl: Crawl) -> None:
        while True:
            status = crawl.status()
            if select.select((), (self._socket,), (), 0.0)[1]:  # false while a suspended leader does not read
                self._tell(StatusMessage(status))
            await crawl.status_keeper.changed()

    def _tell(self, message: Message) -> None:
        body = _encode(message)
        with suppress(OSError):  # the leader's end is closed, which watch() notices
            self._socket.sendall(_LENGTH.pack(len(body)) + body)


async def rejoining(crawl: Callable[[], Awaitable[T]]) -> T:
    """Run a crawl. If other processes of its job have taken over its work, run it again, so that it joins them.

    If the server is unreachable at that time, wait until it is reachable. The first time, JobUnavailable is raised.
    """
    has_joined = is_waiting = False
    while True:
        try:
            return await crawl()
        except SessionEnded as error:
            has_joined, is_waiting = True, False
            logger.warning("%s (this is done now)", error)
        except JobUnavailable as error:
            if not has_joined:
                raise
            if not is_waiting:
                logger.warning("%s; this process waits for it", error)
            is_waiting = True
        await trio.sleep(REJOIN_AFTER)


def job_of_leader() -> str | None:
    """Return the job from the leader's environment variable. In an argument, other users could see its password."""
    return os.environ.pop(JOB_VARIABLE, None)


def require_address(job: str) -> None:
    """Refuse a job that several processes can't share, because it is missing or in a directory."""
    if not job:
        raise UsageError("there is no job to join: give its address, redis://HOST/NAME")
    if not job.startswith(SCHEMES):
        raise UsageError(f"job {job}: it is in a directory: give the address of a job in a server, redis://HOST/NAME")


def spider_of_job(url: str) -> str:
    """Return the spider of a job as ``FILE:CLASS``. Waits until a crawl has created the job.

    The server's data only selects a spider below the working directory. It can't cause another file to be loaded.
    """
    if (facts := _info_of(url)) is None:
        logger.warning("the job does not exist yet: waiting until a crawl creates it (--spider creates it here)")
    while facts is None:
        time.sleep(LOOK_EVERY)
        facts = _info_of(url)
    of_job = f"the job is for the spider {facts.spider!r}, but"
    try:
        found = find_spider(facts.spider)
    except SpiderNotFound as error:
        raise UsageError(f"{of_job} {error} with --spider") from error
    if not found:
        raise UsageError(f"{of_job} no spider has that name here{spiders_here(facts.spider)}: use --spider")
    return found


def _info_of(url: str) -> JobInfo | None:
    from trawl.frontier.redis import client, report  # noqa: PLC0415 - needs coredis

    client.Address.parse(url)
    client.check_installed()
    with suppress(UsageError):  # raised if the job does not exist yet
        return JOB_INFO.read(report.inspect_job(url, has_scopes=False))
    return None


@attrs.define(eq=False)
class _Worker:
    """The state of a worker across restarts of its process."""

    number: int
    now: CrawlStatus = attrs.field(factory=CrawlStatus)
    before: CrawlStatus = attrs.field(factory=CrawlStatus)  # totals of the worker's earlier processes
    ended: EndMessage | None = None
    status: int = 0
    is_given_up: bool = False
    deaths: Mapping[str, bytes] = attrs.field(factory=dict)  # the job's deaths when a process of the worker last died
    starts: deque[float] = attrs.field(factory=lambda: deque(maxlen=MOST_STARTS))


class WorkerPool:
    """The workers of a crawl, each ``trawl`` with the arguments ``words``. They inherit the descriptor ``lifeline``."""

    def __init__(self, words: Sequence[str], count: int, url: str, lifeline: int | None, console: Console) -> None:
        self._words = words
        self._url, self._lifeline, self._console = url, lifeline, console
        self._workers = [_Worker(number) for number in range(1, count + 1)]
        self._leading: dict[int, socket.socket] = {}
        self._is_ending = trio.Event()
        self.scopes: list[ScopeReport] = []

    async def watch(self, crawl: Crawl) -> None:
        """Run the workers during a crawl. When cancelled, give them :data:`GRACE` seconds to end. A watcher."""
        self._is_ending = trio.Event()
        for worker in self._workers:  # after a rejoin, the crawl's numbers include the workers' earlier work
            worker.before, worker.now, worker.is_given_up = CrawlStatus(), CrawlStatus(), False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_all, crawl)
            await crawl.until_ending()
            self._is_ending.set()
            if crawl.reason != "finished":  # workers notice a finished job themselves
                for leading in self._leading.values():
                    leading.shutdown(socket.SHUT_WR)

    def status(self, crawl: Crawl) -> CrawlStatus:
        """Return the sum of the statuses of all processes."""
        theirs = [part for worker in self._workers for part in (worker.before, worker.now)]
        return together([crawl.status(), *theirs])

    async def statistics(self) -> Mapping[str, object]:
        """Return the statistics of the whole job, which are sums over all processes. A checkpoint."""
        return statistics_so_far(await self._inspect())

    async def _deaths(self) -> Mapping[str, bytes]:
        """Return the deaths that the job has counted for its pages; empty if the job can't be read. A checkpoint."""
        from trawl.frontier.sections import deaths_in  # noqa: PLC0415 - only needed after a death

        try:
            return deaths_in((await self._inspect()).kept)
        except JobError:
            return {}

    async def _inspect(self) -> JobReport:
        from trawl.frontier.redis.report import inspect_job  # noqa: PLC0415 - needs coredis

        return await trio.to_thread.run_sync(partial(inspect_job, self._url, has_scopes=False))

    async def _keep_all(self, crawl: Crawl) -> None:
        """Run all workers. If all of them end before the job is finished, end the crawl."""
        async with trio.open_nursery() as nursery:
            for worker in self._workers:
                nursery.start_soon(self._keep, worker, crawl)
        with trio.move_on_after(GRACE):
            await self._is_ending.wait()
        # After a worker has found the job's end, the leader finds it too, as soon as it can reach the store.
        is_finished = any(each.ended is not None and each.ended.reason == "finished" for each in self._workers)
        if not self._is_ending.is_set() and not is_finished:
            logger.error("all processes have ended, but the job is not finished: no process is left")
            crawl.shutdown(NO_PROCESS)

    async def _keep(self, worker: _Worker, crawl: Crawl) -> None:
        """Run a worker, and restart it as needed until no work remains for it."""
        while not self._is_ending.is_set():
            worker.starts.append(trio.current_time())
            await self._run(worker, crawl)
            if (worker.status or worker.ended is None) and (deaths := await self._deaths()) != worker.deaths:
                worker.starts.clear()  # several pages may end a process, and each page may do so three times
                worker.deaths = deaths
            if self._is_ending.is_set() or not self._is_again(worker, crawl):
                return
            recent = sum(trio.current_time() - start < STARTS_WITHIN for start in worker.starts)
            with trio.move_on_after(FIRST_PAUSE * 2.0**recent):
                await self._is_ending.wait()

    def _is_again(self, worker: _Worker, crawl: Crawl) -> bool:
        """Process the end of a worker's process. Returns whether to start the worker again."""
        ended, number = worker.ended, worker.number
        if ended is not None and ended.reason not in _ENDS_OF_ONE:
            crawl.shutdown(ended.reason)
            return False
        if ended is not None and not worker.status:  # status 0 is not enough, because os._exit(0) reports no end
            if ended.reason in _ENDS_BY_SPIDER:
                crawl.shutdown(ended.reason)
            return False
        how = f"reason {ended.reason}" if ended is not None else f"status {worker.status}"
        is_often = len(worker.starts) == MOST_STARTS and trio.current_time() - worker.starts[0] < STARTS_WITHIN
        if worker.status == USAGE or is_often:
            worker.is_given_up = True
            is_last = all(each.is_given_up for each in self._workers)
            what = "no process is left" if is_last else "the others continue without it"
            logger.error("process %d ends again and again (%s): %s", number, how, what)
            if is_last:
                crawl.shutdown(NO_PROCESS)
            return False
        logger.warning("process %d has ended (%s): restarting it", number, how)
        return True

    async def _run(self, worker: _Worker, crawl: Crawl) -> None:
        worker.ended = None
        worker.before = together([worker.before, worker.now]).totals()
        worker.now = CrawlStatus()
        ours, theirs = socket.socketpair()
        inherited = [theirs.fileno(), *([] if self._lifeline is None else [self._lifeline])]
        with ours:
            with theirs:
                process = await trio.lowlevel.open_process(
                    [sys.executable, "-P", "-m", "trawl", *self._words, "--leader", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=inherited,
                    start_new_session=True,
                    env={**os.environ, JOB_VARIABLE: self._url},
                )
            self._leading[worker.number] = ours
            heard = trio.CancelScope(shield=True)  # a cancellation must not lose the worker's last message
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, worker, process, ours, heard)
                try:
                    await process.wait()
                finally:
                    hurried = crawl.reason == "cancelled"
                    await _end(process, ours, is_hurried=hurried)  # noqa: ASYNC102 - shielded, with a timeout
                    worker.status = process.returncode or 0
                    del self._leading[worker.number]
                    # Wait only for this time, because child processes of the worker may hold the socket open.
                    heard.deadline = trio.current_time() + REST

    async def _listen(
        self, worker: _Worker, process: trio.Process, ours: socket.socket, heard: trio.CancelScope
    ) -> None:
        with heard:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, worker, ours)
                nursery.start_soon(self._relay, worker, process)

    async def _hear(self, worker: _Worker, leading: socket.socket) -> None:
        """Process the messages of a worker until the worker closes its end of the socket."""
        messages = Messages()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(leading.dup()))
        async with stream:
            with suppress(trio.BrokenResourceError):
                async for some in stream:
                    for message in messages.feed(bytes(some)):
                        if isinstance(message, EndMessage):
                            worker.ended = message
                            self.scopes += message.scopes
                        else:
                            worker.now = message.status

    async def _relay(self, worker: _Worker, process: trio.Process) -> None:
        """Print each line of a worker's standard error. A line of JSON stays JSON: it has no number before it."""
        assert process.stderr is not None
        rest = b""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for some in process.stderr:
                *lines, rest = (rest + some).split(b"\n")
                for line in lines:
                    self._print(worker, line)
        if rest:
            self._print(worker, rest)

    def _print(self, worker: _Worker, line: bytes) -> None:
        prefix = "" if line.startswith(JSON_START) else f"[{worker.number}] "
        with suppress(OSError):  # the terminal may be gone
            self._console.print(printable(f"{prefix}{line.decode('utf-8', 'replace')}"), soft_wrap=True)


async def _end(process: trio.Process, leading: socket.socket, *, is_hurried: bool) -> None:
    """End a process: ask it to shut down, then cancel it, and finally kill it. A checkpoint."""
    if process.poll() is not None:
        return
    with suppress(OSError):
        leading.shutdown(socket.SHUT_WR)
    for end, seconds in ((process.terminate, 0.0 if is_hurried else GRACE), (process.kill, GRACE)):
        with trio.move_on_after(seconds, shield=True):
            await process.wait()
            return
        end()
    with trio.CancelScope(shield=True):
        await process.wait()


async def lead(
    entry: CrawlEntry,
    count: int,
    words: Sequence[str],
    crawl_with: CrawlWith,
    shown: Callable[[StatusOf, str], Sequence[Watcher]],
    console: Console,
) -> list[ScopeReport]:
    """Run a crawl in several processes, which this process leads. A checkpoint. Returns the reports of the scopes.

    The result of ``entry`` has the statistics of all processes. ``words`` are the arguments of a worker after its job.
    ``shown`` returns the watchers that show the crawl, from a function that returns its status, and the job's address.
    """
    if os.name != "posix":
        raise UsageError("--processes needs a Unix system: on others, run `trawl crawl SPIDER --job URL` several times")
    job = entry.settings.of(JobSettings)
    url, lifeline, durability = job.job_dir, None, job.job_durability
    async with AsyncExitStack() as stack:
        if not url.startswith(SCHEMES):
            server = await stack.enter_async_context(open_local_server(Path(url) if url else None))
            durability = durability if url else "fast"  # the job is removed at the end of the command
            url, lifeline = server.url, server.lifeline
        leading = f"{url}{'&' if '?' in url else '?'}leads=1"
        entry.settings = load(*entry.layers, Layer("--processes", {"JOB_DIR": leading, "JOB_DURABILITY": durability}))
        workers = WorkerPool(["worker", "--job-durability", durability, *words], count, url, lifeline, console)
        watchers = [workers.watch, *shown(workers.status, url)]
        result = await rejoining(partial(entry.run, crawl_with, watchers, handle_signals=True))
        stats = {**await workers.statistics(), **{key: result.stats[key] for key in _OF_THE_END if key in result.stats}}
        entry.result = attrs.evolve(result, stats=stats)
    return reports_together([*reports_of_all([entry]), *workers.scopes])
