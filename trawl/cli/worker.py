"""The command ``trawl worker``: joins a job in a server, and works on it without feeds.

The command that ``--processes`` belongs to starts workers with a socket to it, its *leader*, in the hidden option
``--leader``. A worker tells it how it goes, and at its end what it did; when the other end closes, because the leader
ends or was killed, the worker ends as after a first Ctrl-C. What is told is msgspec's MessagePack, each with its length
before it.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
import trio

from trawl.cli.list import find_spiders
from trawl.cli.view import IDLE_FOR, INTERVAL, progress_of
from trawl.errors import SessionEnded, UsageError
from trawl.frontier import SCHEMES
from trawl.frontier.sections import JOB_INFO, JobInfo
from trawl.observe import Progress
from trawl.throttling import ScopeReport

if TYPE_CHECKING:
    from pathlib import Path

    from trawl.engine import Crawl

__all__ = [
    "JOB_VARIABLE",
    "EndMessage",
    "Leader",
    "Messages",
    "ProgressMessage",
    "job_of_leader",
    "rejoining",
    "require_address",
    "spider_of_job",
]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("trawl.worker")

JOB_VARIABLE = "_TRAWL_JOB"
"""The variable of the environment in which a leader names the job."""

LOOK_EVERY = 1.0
"""Seconds between two looks for a job that is not there yet."""

REJOIN_AFTER = 1.0
"""Seconds before a process joins again, where others have gone on in its place."""

MAX_SCOPES = 1000
"""Scopes of which a worker tells at its end, the busiest first."""

_LENGTH = struct.Struct(">I")


class ProgressMessage(msgspec.Struct, frozen=True, tag="worked"):
    """The progress of a worker.

    Attributes:
        progress: Its progress.
    """

    progress: Progress


class EndMessage(msgspec.Struct, frozen=True, tag="ended"):
    """The end of a worker's crawl.

    Attributes:
        reason: As of a crawl.
        scopes: Reports of its scopes.
    """

    reason: str
    scopes: list[ScopeReport]


Message: TypeAlias = "ProgressMessage | EndMessage"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ProgressMessage | EndMessage).decode


class Messages:
    """Puts together what a worker tells, from what has come of it."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, some: bytes) -> list[Message]:
        """Return the messages that are whole with ``some`` bytes more."""
        self._bytes += some
        found: list[Message] = []
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + int(_LENGTH.unpack_from(self._bytes)[0])
            if len(self._bytes) < end:
                break
            found.append(_decode(bytes(self._bytes[_LENGTH.size : end])))
            del self._bytes[:end]
        return found


class Leader:
    """The process that has started this worker, at the other end of a socket.

    Args:
        descriptor: The socket.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError as error:
            raise UsageError("--leader is for the processes that `trawl crawl SPIDER --processes N` starts") from error
        self._socket.set_inheritable(False)

    async def watch(self, crawl: Crawl) -> None:
        """Tell the progress of a crawl, and end it when the other end closes: a watcher."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_progress, crawl)
            await trio.lowlevel.wait_readable(self._socket)  # nothing is ever sent: it is closed
            crawl.shutdown()

    def ended(self, reason: str, scopes: Sequence[ScopeReport]) -> None:
        """Tell the end of the crawl, and close this end."""
        self._tell(EndMessage(reason, list(scopes[:MAX_SCOPES])))
        self._socket.close()

    async def _tell_progress(self, crawl: Crawl) -> None:
        while True:
            began_at = trio.current_time()
            if select.select((), (self._socket,), (), 0.0)[1]:  # a leader that is stopped reads nothing
                self._tell(ProgressMessage(progress_of(crawl)))
            await trio.sleep(max(INTERVAL, (trio.current_time() - began_at) * IDLE_FOR))

    def _tell(self, message: Message) -> None:
        body = _encode(message)
        with suppress(OSError):  # it is gone, which watch() hears of
            self._socket.sendall(_LENGTH.pack(len(body)) + body)


async def rejoining(crawl: Callable[[], Awaitable[T]]) -> T:
    """Run a crawl; where other processes of its job have taken its place, run it again, so that it joins them.

    A checkpoint; cancelling ends it.
    """
    while True:
        try:
            return await crawl()
        except SessionEnded as error:
            logger.warning("%s (joining again)", error)
        await trio.sleep(REJOIN_AFTER)


def job_of_leader() -> str | None:
    """Return the job that the leader names, in a variable and not in a word that other users of a machine see."""
    return os.environ.pop(JOB_VARIABLE, None)


def require_address(job: str) -> None:
    """Refuse the job of a worker that no others can work on.

    Raises:
        UsageError: There is none, or it is in a directory.
    """
    if not job:
        raise UsageError("there is no job to join: give its address, redis://HOST/NAME")
    if not job.startswith(SCHEMES):
        raise UsageError(f"job {job}: it is in a directory: give the address of one in a server, redis://HOST/NAME")


def spider_of_job(url: str, folder: Path) -> str:
    """Return the spider of a job, as ``FILE:CLASS``; waits until somebody has made the job.

    What a server says names a spider among those below the folder, and nothing else: no file is loaded because of it.

    Args:
        url: The job's address.
        folder: Where spiders are looked for.

    Raises:
        JobError: The server does not answer, or refuses.
        UsageError: The folder has no spider of that name.
    """
    if (facts := _info_of(url)) is None:
        logger.warning("the job is not there yet: waiting until a crawl makes it (--spider makes it here)")
    while facts is None:
        time.sleep(LOOK_EVERY)
        facts = _info_of(url)
    found = [each.target for each in find_spiders(folder)[0] if each.name == facts.spider]
    if len(found) != 1:
        there = "no spider" if not found else "more than one spider"
        raise UsageError(f"the job is of the spider {facts.spider!r}, and {there} of that name is here: give --spider")
    return found[0]


def _info_of(url: str) -> JobInfo | None:
    from trawl.frontier.redis.client import Address  # noqa: PLC0415 - needs coredis
    from trawl.frontier.redis.report import inspect_job  # noqa: PLC0415

    Address.parse(url)
    with suppress(UsageError):  # there is no job of this name
        return JOB_INFO.read(inspect_job(url, has_scopes=False))
    return None
