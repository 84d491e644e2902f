"""Pages whose callbacks end the process. They fail after three deaths, so that the job continues without them.

Theory of operation. While a callback runs, a file names its page (:mod:`trawl.frontier.running_callbacks`). The next
process that opens the job reads the file of the dead process and counts one death for each of these pages, in the job.
A callback that awaits something may be in the file without being the cause. So a page with a death becomes a
*suspect*: its callback runs alone, and the next death counts only for the page that caused it. When the callback of a
suspect ends, the page is no longer a suspect. After :data:`MOST_DEATHS` deaths the page is not sent any more and
becomes one of the failed requests.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
import trio

from trawl.blocking import Blocking, InlineBlocking
from trawl.frontier import Record
from trawl.frontier.job import Job
from trawl.frontier.running_callbacks import LeftFile, RunningCallback, RunningCallbacks, key_of
from trawl.frontier.sections import Section
from trawl.passwords import without_passwords
from trawl.scheduler import Attempt

__all__ = ["FATAL", "MOST_DEATHS", "CallbackDeaths", "deaths_in"]

logger: logging.Logger = logging.getLogger("trawl")

MOST_DEATHS = 3
"""Number of deaths after which a page fails."""

ALONE_SECONDS = 10.0
"""Seconds that a callback waits at most, so that it or a suspect runs alone. One callback may wait for another."""

MAX_NAMED = 5
"""Maximum number of pages that a message about a death names."""

FATAL = "fatal_callback_count"
"""Reason and statistic of a page that is not sent any more because its callback ended the process too often."""

_PREFIX = "deaths."


class PageDeaths(msgspec.Struct, frozen=True):
    """The deaths of processes during the callback of a page.

    Attributes:
        count: Number of deaths.
        url: The URL of the page, for messages.
        is_lease_lost: Whether the last one was a lost lease, and not a death.
    """

    count: int
    url: str
    is_lease_lost: bool = False


class CallbackDeaths:
    """Records which callbacks run, and knows the pages whose callbacks ended a process before.

    Args:
        job: The job. It stores the number of deaths of each page.

    Attributes:
        counted: Number of dead processes that this process has found.
    """

    def __init__(self, job: Job) -> None:
        self.counted: int = 0
        self._job = job
        self._file: RunningCallbacks | None = None
        self._folder: Path | None = None
        self._blocking: Blocking = InlineBlocking()
        self._suspects: dict[bytes, PageDeaths] = {}
        self._running = 0
        self._alone: bytes | None = None
        self._changed = trio.Event()

    async def open(self, slots: int, blocking: Blocking) -> None:
        """Count the deaths of earlier processes, and create the file of this one. A checkpoint.

        Args:
            slots: Number of callbacks that may run at the same time.
            blocking: Runs blocking calls.

        Raises:
            JobError: If the job can't be written, or other users may write to the folder of the file.
        """
        self._blocking = blocking
        try:
            self._folder = await blocking.run(self._job.callbacks_folder)
            await self._count_left()
            self._file = await blocking.run(RunningCallbacks, self._folder, slots)
        except OSError as error:
            words = "job %s: pages that end the process will not be found, because no file can be written: %s"
            logger.warning(words, self._job.name, error)

    def close(self) -> None:
        """Remove the file of this process. Does not wait."""
        if self._file is not None:
            self._file.close()

    async def refresh(self) -> None:
        """Count the deaths of processes whose hosts this process has taken over. A checkpoint.

        Raises:
            JobError: If the job can't be read or written.
        """
        await self._job.refresh()
        await self._count_left()

    async def _count_left(self) -> None:
        """Count the deaths of processes that have left a file."""
        self._suspects = self._stored()
        if self._folder is None:
            return
        left = await self._blocking.run(LeftFile.all_in, self._folder)
        try:
            for each in left:
                if each.callbacks:
                    self._count(each.callbacks)
            if any(each.callbacks for each in left):
                await self._job.commit()  # at once, because the next death may come before the next step
            for each in left:
                await self._blocking.run(each.remove)
        finally:
            for each in left:
                each.close()

    def refusal(self, attempt: Attempt) -> str | None:
        """Return :data:`FATAL` if a page must not be sent any more; otherwise None."""
        if not self._suspects or not attempt.is_page:
            return None
        deaths = self._suspects.get(key_of(attempt.lease))
        return FATAL if deaths is not None and deaths.count >= MOST_DEATHS else None

    def give_up(self, attempt: Attempt) -> str:
        """Forget the deaths of a page that fails now, and return why it fails."""
        key = key_of(attempt.lease)
        deaths = self._suspects[key]
        what = "blocked the process for longer than its lease" if deaths.is_lease_lost else "ended the process"
        words = f"its callback {what} {deaths.count} times"
        self._forget(key)
        logger.error("%r fails: %s", attempt.request, words)
        return words

    @property
    def has_suspects(self) -> bool:
        """Whether callbacks must wait for :meth:`turn` before they start."""
        return bool(self._suspects) or self._alone is not None

    async def turn(self, lease: Record) -> None:
        """Wait until a callback may start: a suspect runs alone. A checkpoint.

        Returns after :data:`ALONE_SECONDS` in any case, because a callback may wait for another one. Every call needs
        a call of :meth:`end`, even if it was cancelled.
        """
        await trio.lowlevel.checkpoint()
        key = key_of(lease)
        with trio.move_on_after(ALONE_SECONDS):
            while self._alone is not None:
                await self._changed.wait()
            if key in self._suspects:
                self._alone = key
                while self._running:
                    await self._changed.wait()

    def begin(self, lease: Record) -> int:
        """Record that a callback starts, and return its slot for :meth:`end`."""
        self._running += 1
        if self._file is None or self._job.is_lease_lost:  # if it is lost before, this callback is not the cause
            return -1
        return self._file.begin(key_of(lease), lease.request.url)

    def survived(self, lease: Record) -> None:
        """Record that a callback has ended by itself, so that its page is no longer a suspect."""
        if self._suspects and not self._job.is_lease_lost:
            self._forget(key_of(lease))

    def end(self, lease: Record, slot: int | None) -> None:
        """Record that a callback does not run any more.

        Args:
            lease: The record of its page.
            slot: The slot that :meth:`begin` returned; None if it was not called.
        """
        if slot is not None:
            self._running -= 1
            if self._file is not None:
                end = self._file.leave if self._job.is_lease_lost else self._file.end
                end(slot)
        if self._alone is not None:
            if self._alone == key_of(lease):
                self._alone = None
            self._changed.set()
            self._changed = trio.Event()

    def _stored(self) -> dict[bytes, PageDeaths]:
        """Return the deaths that the job has stored."""
        found = {}
        for name in deaths_in(self._job.kept):
            deaths = _section(name).read(self._job)
            if deaths is not None:
                found[bytes.fromhex(name.removeprefix(_PREFIX))] = deaths
        return found

    def _count(self, callbacks: list[RunningCallback]) -> None:
        """Count one death for each page whose callback ran."""
        pages = []
        for each in callbacks:
            known = self._suspects.get(each.key)
            count = 1 if known is None else known.count + 1
            deaths = PageDeaths(count, without_passwords(each.url), each.is_lease_lost)
            self._suspects[each.key] = deaths
            _section(_name(each.key)).keep(self._job, deaths)
            pages.append(f"{deaths.url} (death {deaths.count} of {MOST_DEATHS})")
        self.counted += 1
        what = "lost its lease" if callbacks[0].is_lease_lost else "died"
        more = f" and {len(pages) - MAX_NAMED} more" if len(pages) > MAX_NAMED else ""
        logger.warning(
            "job %s: a process %s in the callback of %s%s", self._job.name, what, ", ".join(pages[:MAX_NAMED]), more
        )

    def _forget(self, key: bytes) -> None:
        if self._suspects.pop(key, None) is not None:
            self._job.keep(_name(key), None)


def deaths_in(kept: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the deaths among a job's kept values. They change whenever a death is counted or a page fails."""
    return {name: blob for name, blob in kept.items() if name.startswith(_PREFIX)}


def _name(key: bytes) -> str:
    return f"{_PREFIX}{key.hex()}"


def _section(name: str) -> Section[PageDeaths]:
    return Section(name, PageDeaths)
