"""Pages whose callbacks or middleware end the process. After three deaths they fail, and the job continues.

Theory of operation. While user code runs for a page, a file names the page (:mod:`trawl.frontier.running_callbacks`).
The next process that opens the job counts one death for each page in the file of the dead process. Code that awaits
something may be there without being the cause. So a page with a death becomes a *suspect*: it takes turns with other
code (:class:`Turns`), so that usually the next death counts only for the page that caused it. When its callback or the
page ends, it is no longer a suspect. After :data:`MOST_DEATHS` deaths it is not sent any more and becomes a failed
request.

Middleware is recorded except while it waits for the send. Item pipelines run during the callback. Each output of
``start()`` is recorded by its number. A death counts for it only if the code of no page ran, and after three deaths
``start()`` ends with an error, which the next run forgets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from trawl.blocking import Blocking, InlineBlocking
from trawl.engine.callbacks import Callback, CallbackOutputs
from trawl.engine.fetcher import Fetcher
from trawl.engine.no_job import NoDeaths
from trawl.engine.state import current_attempt
from trawl.engine.worker import Worker
from trawl.errors import DownloadError
from trawl.frontier.job import Job
from trawl.frontier.running_callbacks import KEY_BYTES, LeftFile, RunningCallback, RunningCallbacks, key_of
from trawl.frontier.sections import DEATHS, PageDeaths, Section, deaths_in
from trawl.http import Drop, Fetch, Outcome, Replace, Request, host_scope
from trawl.middleware import MiddlewareEntry
from trawl.passwords import without_passwords
from trawl.scheduler import Attempt

if TYPE_CHECKING:
    from trawl.engine.engine import Engine

__all__ = ["MOST_DEATHS", "CallbackDeaths", "JobWorker"]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("trawl")

MOST_DEATHS = 3
"""Number of deaths after which a page fails."""

ALONE_SECONDS = 10.0
"""Seconds that a suspect waits at most for other code to end, and that other code then waits at most for it."""

MAX_NAMED = 5
"""Maximum number of pages that a message about a death names."""

FATAL = "fatal_callback_count"
"""Reason and statistic of a page that is not sent any more because its callback ended the process too often."""

_START = b"start()"
_NONE = PageDeaths(0, "")


class Turns:
    """Lets a suspect run alone: it waits until no other code runs, and other code does not start beside it.

    A turn lasts until the attempt of the suspect ends. It and the wait before it include sends, because a wait after a
    send would count in the timeouts of middleware. One callback may wait for another, so no wait is longer than
    :data:`ALONE_SECONDS`, and code that has run for longer is not waited for.
    """

    def __init__(self, running: Mapping[object, tuple[int, float]]) -> None:
        self.owner: bytes | None = None  # the key of the suspect that has its turn now
        self._until = math.inf  # time at which the turn may be taken from the owner
        self._running = running  # the code that runs now, with its slot and the event loop time of its start
        self._lot = trio.lowlevel.ParkingLot()

    async def wait(self, key: bytes, *, is_suspect: bool) -> None:
        """Wait until the code of a page or ``start()`` may start. If it is a suspect, its turn begins."""
        while self.owner not in (None, key):
            with trio.move_on_at(self._until):
                await self._lot.park()
            if trio.current_time() >= self._until:
                self.end(self.owner)
        if not is_suspect or self.owner == key:
            return
        self.owner, self._until = key, math.inf
        try:
            latest = max((since for _, since in self._running.values()), default=-math.inf)
            with trio.move_on_at(latest + ALONE_SECONDS):
                while self._running:
                    await self._lot.park()
        except BaseException:
            self.end(key)
            raise
        self._until = trio.current_time() + ALONE_SECONDS
        self.look()

    def look(self) -> None:
        """Let waiting code look again, because other code has ended."""
        self._lot.unpark_all()

    def end(self, key: bytes | None) -> None:
        """End the turn of ``key``, if it has one."""
        if self.owner == key:
            self.owner, self._until = None, math.inf
            self.look()


class CallbackDeaths(NoDeaths):
    """Records which callbacks run, and knows the pages whose callbacks ended a process before."""

    def __init__(self, job: Job) -> None:
        self.counted: int = 0  # number of dead processes that this process has found
        self._job = job
        self._file: RunningCallbacks | None = None
        self._folder: Path | None = None
        self._blocking: Blocking = InlineBlocking()
        self._suspects: dict[bytes, PageDeaths] = {}
        self._running: dict[object, tuple[int, float]] = {}
        self._turns = Turns(self._running)
        self._started = 0

    async def open(self, blocking: Blocking) -> None:
        """Count the deaths of earlier processes, and create the file of this one. A checkpoint.

        Raises JobError if the job can't be written, or other users may write to the folder of the file.
        """
        self._blocking = blocking
        try:
            self._folder = await blocking.run(self._job.callbacks_folder)
            await self._count_left()
            self._file = await blocking.run(RunningCallbacks, self._folder)
        except OSError as error:
            words = "job %s: pages that end the process will not be found, because no file can be written: %s"
            logger.warning(words, self._job.name, error)

    def close(self) -> None:
        """Remove the file of this process. Does not wait."""
        if self._file is not None:
            self._file.close()

    async def refresh(self) -> None:
        """Count the deaths of processes whose hosts this process has taken over. A checkpoint. Raises JobError."""
        await self._job.refresh()
        await self._count_left()

    async def _count_left(self) -> None:
        """Count the deaths of processes that have left a file."""
        self._suspects = self._stored()
        if self._folder is None:
            return
        left = await self._blocking.run(LeftFile.all_in, self._folder)
        try:
            found = [each.callbacks for each in left if each.callbacks]
            for callbacks in found:
                self._count(callbacks)
            if found:
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
        return FATAL if self._suspects.get(key_of(attempt.options.lease), _NONE).count >= MOST_DEATHS else None

    def give_up(self, attempt: Attempt) -> str:
        """Forget the deaths of a page that fails now, and return why it fails."""
        key = key_of(attempt.options.lease)
        deaths = self._suspects.get(key, PageDeaths(MOST_DEATHS, ""))  # another process may have forgotten them
        words = f"its {_words_of(deaths)}"
        self._forget(key)
        logger.error("%r fails: %s", attempt.request, words)
        return words

    def dropped(self, host: str) -> None:
        """Forget the deaths of the pages of a host, because its pages were removed."""
        for key, deaths in list(self._suspects.items()):
            if deaths.place != "start()" and host_scope(deaths.url) == host:
                self._forget(key)

    async def enter(self, attempt: Attempt, place: str) -> None:
        """Record that user code of a page starts. Waits if a suspect runs.

        Call :meth:`leave` at its end, and :meth:`end_turn` at the end of its attempt. The place is ``callback`` or
        ``middleware``.
        """
        if self._suspects or self._turns.owner is not None:
            key = key_of(attempt.options.lease)
            await self._turns.wait(key, is_suspect=key in self._suspects)
        self._enter_now(attempt, place)

    def _enter_now(self, attempt: Attempt, place: str) -> None:
        self._begin(attempt, key_of(attempt.options.lease), attempt.options.lease.request.url, place)

    def leave(self, attempt: object) -> None:
        """Record that the code of a page does not run any more. A second call does nothing."""
        slot, _ = self._running.pop(attempt, (-1, 0.0))
        self._clear(slot)
        self._turns.look()

    def end_turn(self, attempt: Attempt) -> None:
        """Let other code run again, because the attempt of a suspect has ended."""
        if self._turns.owner is not None and attempt.is_page:
            self._turns.end(key_of(attempt.options.lease))

    def around(self, send: Fetch) -> Fetch:
        """Return a fetch that calls ``send``, during which the middleware around it does not run."""

        async def sent(request: Request) -> Outcome:
            attempt = current_attempt.get()
            if attempt is None or attempt not in self._running:
                return await send(request)
            slot, since = self._running[attempt]
            self._clear(slot)
            self._running[attempt] = -1, since  # a suspect waits for it, but no death counts for it
            try:
                return await send(request)
            finally:  # also after an error, because the middleware may continue, as after its own timeout
                self._enter_now(attempt, "middleware")

        return sent

    def survived(self, attempt: Attempt) -> None:
        """Record that a callback has ended by itself, so that its page is no longer a suspect."""
        if self._suspects and not self._job.is_lease_lost:
            self._forget(key_of(attempt.options.lease))

    async def next_of_start(self, started: AsyncIterator[T]) -> T:
        """Return the next output of ``start()``, and record that it runs.

        Raises RuntimeError if this output has ended three processes. The next run tries again.
        """
        key = _START + self._started.to_bytes(KEY_BYTES - len(_START), "big")
        deaths = self._suspects.get(key, _NONE)
        if deaths.count >= MOST_DEATHS:
            self._forget(key)
            raise RuntimeError(f"{_words_of(deaths)}, at output {deaths.url}")
        if self._suspects or self._turns.owner is not None:
            with trio.CancelScope(shield=True):  # against the cancel scopes of start()
                await self._turns.wait(key, is_suspect=deaths is not _NONE)
        self._begin(_START, key, str(self._started + 1), "start()")
        try:
            output = await anext(started)
        except Exception:  # also at its end
            for each in [each for each in self._suspects if each.startswith(_START)]:
                self._forget(each)
            raise
        finally:
            self.leave(_START)
            self._turns.end(key)
        self._started += 1
        self._forget(key)
        return output

    def _begin(self, code: object, key: bytes, url: str, place: str) -> None:
        slot = -1
        if self._file is not None and not self._job.is_lease_lost:  # if it is lost before, this code is not the cause
            slot = self._file.begin(key, url, place)
        self._running[code] = slot, trio.current_time()

    def _clear(self, slot: int) -> None:
        if self._file is not None:
            end = self._file.leave if self._job.is_lease_lost else self._file.end
            end(slot)

    def _stored(self) -> dict[bytes, PageDeaths]:
        """Return the deaths that the job has stored."""
        found = {}
        for name in deaths_in(self._job.kept):
            deaths = Section(name, PageDeaths).read(self._job)
            if deaths is not None:
                found[bytes.fromhex(name.removeprefix(DEATHS))] = deaths
        return found

    def _count(self, callbacks: list[RunningCallback]) -> None:
        """Count one death for each page whose callback ran."""
        pages = []
        callbacks = [each for each in callbacks if each.place != "start()"] or callbacks
        for each in callbacks:
            count = self._suspects.get(each.key, _NONE).count + 1
            deaths = PageDeaths(count, without_passwords(each.url), each.is_lease_lost, each.place)
            self._suspects[each.key] = deaths
            Section(f"{DEATHS}{each.key.hex()}", PageDeaths).keep(self._job, deaths)
            where = f"start() at output {each.url}" if each.place == "start()" else f"the {each.place} of {deaths.url}"
            pages.append(f"{where} (death {count} of {MOST_DEATHS})")
        self.counted += 1
        what = "lost its lease" if callbacks[0].is_lease_lost else "died"
        more = f" and {len(pages) - MAX_NAMED} more" if len(pages) > MAX_NAMED else ""
        logger.warning("job %s: a process %s in %s%s", self._job.name, what, ", ".join(pages[:MAX_NAMED]), more)

    def _forget(self, key: bytes) -> None:
        if self._suspects.pop(key, None) is not None:
            self._job.keep(f"{DEATHS}{key.hex()}", None)


class JobWorker(Worker):
    """The worker of a crawl with a job. It records which callbacks run."""

    def __init__(self, engine: Engine, fetch: Fetch, layers: Sequence[MiddlewareEntry], fetcher: Fetcher) -> None:
        super().__init__(engine, fetch, layers, fetcher)
        deaths = engine.context.open_job.deaths
        assert isinstance(deaths, CallbackDeaths)
        self._deaths = deaths

    def _refusal(self, attempt: Attempt, reason: str, failure: DownloadError | None) -> Outcome:
        if reason == FATAL:
            return Outcome(attempt.request, then=Drop(reason, self._deaths.give_up(attempt)))
        return super()._refusal(attempt, reason, failure)

    def _end(self, attempt: Attempt) -> None:
        super()._end(attempt)
        self._deaths.end_turn(attempt)

    async def _outcome(self, attempt: Attempt) -> Outcome:
        if not self._may_fetch or not attempt.is_page:  # without user code, nothing is recorded
            return await super()._outcome(attempt)
        await self._deaths.enter(attempt, "middleware")
        try:
            return await super()._outcome(attempt)
        finally:
            self._deaths.leave(attempt)

    async def _act(self, attempt: Attempt, outcome: Outcome) -> None:
        await super()._act(attempt, outcome)
        then = outcome.then
        if attempt.is_page and (not isinstance(then, Replace) or then.is_new_target):  # a retry is the same page
            self._deaths.survived(attempt)

    async def _run(
        self,
        attempt: Attempt,
        callback: Callback | None,
        default: str,
        argument: object,
        cb_kwargs: Mapping[str, object] | None,
        outputs: CallbackOutputs,
    ) -> None:
        await self._deaths.enter(attempt, "callback")
        try:
            await super()._run(attempt, callback, default, argument, cb_kwargs, outputs)
            self._deaths.survived(attempt)
        finally:
            self._deaths.leave(attempt)


def _words_of(deaths: PageDeaths) -> str:
    what = "blocked the process for longer than its lease" if deaths.is_lease_lost else "ended the process"
    return f"{deaths.place} {what} {deaths.count} times"
