"""A job in one run: opens it, checks that it belongs to this spider, and stores the state of the crawl in it.

Theory of operation. Just before each transaction, the job calls :meth:`JobState.save`. Statistics and pages with a
budget are small, so every transaction stores them, and they count exactly the stored results. The knowledge of hosts
(the throttle's state, robots.txt responses, cookies) grows with the crawl, so a transaction stores it only when it is
due: after ``INTERVAL`` seconds, or later if it is large. If no transaction comes by then, the job makes one, down to
one in ``LONGEST_QUIET`` seconds while nothing else is written. A kill loses the knowledge since the last one. Each
state therefore contains the latest time of the next state, and the throttle assumes that every scope that may have sent
until then did send. Allowances of quotas are stored in advance (:mod:`trawl.throttling.allowance`), with a transaction
at once. Cookies are stored with the next transaction while they are small, because the pages behind a login must not
outlive the login.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from trawl.blocking import Blocking, InlineBlocking
from trawl.clock import WallClock
from trawl.engine.callback_deaths import CallbackDeaths, JobWorker
from trawl.engine.context import CrawlContext
from trawl.engine.host_state import HostState, WriteTimer
from trawl.engine.items import ItemSender, Processor
from trawl.engine.job_items import JobItems
from trawl.engine.limits import CrawlLimits, ItemLimit
from trawl.engine.no_job import Alone, EndlessLease, NoJob, NoJobState
from trawl.engine.watchers import contained_watcher
from trawl.errors import UsageError
from trawl.feeds import Feeds, FeedsSettings
from trawl.feeds.outbox import OutboxWriter, open_outbox
from trawl.frontier import SCHEMES, Frontier, JobSettings
from trawl.frontier.parts import part_of
from trawl.frontier.sections import (
    JOB_INFO,
    MARKS,
    START_ITEMS,
    STATISTICS,
    JobInfo,
    statistics_section,
    statistics_so_far,
)
from trawl.observe import Stats
from trawl.robots import RobotsCache
from trawl.spiders import Spider
from trawl.throttling import Throttle
from trawl.throttling.allowance import Allowances
from trawl.transport import Transport

if TYPE_CHECKING:
    from trawl.engine.admission import Admission
    from trawl.engine.crawl import Watcher
    from trawl.engine.engine import Engine
    from trawl.engine.no_job import Vet
    from trawl.engine.worker import Worker
    from trawl.frontier.job import Job
    from trawl.scheduler import Prefetcher

__all__ = ["JobState", "OpenJob", "open_job"]


logger: logging.Logger = logging.getLogger("trawl")

_LATE = 1.0  # seconds that a transaction may take after it is due


class JobState(NoJobState):
    """Stores the state of one crawl in its job."""

    def __init__(self, opened: OpenJob, context: CrawlContext, throttle: Throttle) -> None:
        super().__init__()
        self._job = opened.job
        self._info = opened.info
        self._keeps_given_up = opened.keeps_given_up
        self._deaths = opened.deaths
        jars, max_age = context.middleware_stack.jars, context.values.robots.robotstxt_max_age
        self.host_state: HostState = HostState(self._job, throttle, jars, context.wall, max_age)
        self.robots: RobotsCache = self.host_state.robots
        self._statistics = statistics_section(self._job)
        self._stats = context.stats
        self._wall = context.wall
        self._throttle = throttle
        self._timer = WriteTimer()
        self._elapsed = 0.0
        self._has_begun = False
        self._asked = trio.Event()
        self._is_raising = False
        self._allowances = Allowances(self._ask)

    def restore(self) -> None:
        """Restore the state that the last run stored. Unreadable values are skipped with a warning."""
        now = self._started_at = trio.current_time()
        self._has_begun = True
        job = self._job
        is_new = job.is_alone or not self._info.runs  # a process that joins others is part of their run
        self._note(runs=self._info.runs + is_new, reason="")
        statistics = self._earlier_statistics()
        elapsed = statistics.pop("elapsed_seconds", 0.0)
        self._elapsed = float(elapsed) if isinstance(elapsed, int | float) else 0.0
        statistics.pop("finish_reason", None)
        if is_new and self._keeps_given_up:  # requests to hosts that were given up are sent again
            statistics.pop("given_up_count", None)
        self._stats.restore(statistics)
        self._stats.set("job_run_count", self._info.runs)
        if self._deaths.counted:
            self._stats.inc("process_death_count", self._deaths.counted)
        self.host_state.restore(now, asks_given_up=is_new and self._keeps_given_up)
        self._throttle.table.spend_by(self._allowances)
        # This comes last, because an earlier transaction would store the throttle's state before it is restored.
        job.before_commit(self.save)

    def _earlier_statistics(self) -> dict[str, int | float | str | bool | None]:
        """Take over the statistics of sessions that have ended, unless other sessions still run."""
        job, own = self._job, self._statistics.name
        if not job.is_alone:
            return {}
        found = statistics_so_far(job)
        for name in [name for name in job.kept if name.startswith(STATISTICS.name) and name != own]:
            job.keep(name, None)
        return found

    @property
    def elapsed(self) -> float:
        """Seconds that all runs of the job have taken together."""
        return self._elapsed + super().elapsed

    def save(self) -> None:
        """Store the state that belongs to a transaction. Called before each transaction."""
        self._keep_statistics()
        self.host_state.keep_pages()
        now = trio.current_time()
        was_raised, self._is_raising = self._is_raising, False
        if was_raised:
            self._allowances.promise(now)
        if self._timer.is_due(now):
            self._keep_host_state(is_last=False)
        else:
            self._timer.want()
            self.host_state.keep_changed_cookies()
            if was_raised:
                self._keep_ahead()

    def has_backed_off(self) -> None:
        """Store the backoff state in the step that defers the refused request, so that a kill can't lose it."""
        self._timer.hurry(self.host_state.size_bytes)

    def begin(self, nursery: trio.Nursery) -> None:
        """Start the task that makes transactions."""
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        """Make a transaction when a write is due and no other transaction comes. Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._raise_allowances)
            while True:
                await self._timer.until_due()
                await self._job.commit()

    async def _raise_allowances(self) -> None:
        """Store larger allowances of quotas as soon as they are requested."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            self._is_raising = True  # for the next transaction, awaited here
            await self._job.commit()
            self._throttle.allowed(self._allowances.confirm(), trio.current_time())

    def _ask(self) -> None:
        self._asked.set()

    def _keep_statistics(self) -> None:
        self._stats.set("elapsed_seconds", self.elapsed)
        self._statistics.keep(self._job, self._stats.storable())

    def _keep_ahead(self) -> None:
        self.host_state.keep_ahead(self._allowances.ahead(), self._wall.to_epoch(self._allowances.promised_until))

    @property
    def is_over(self) -> bool:
        """True if ``start()`` finished in an earlier run."""
        return self._info.is_started

    async def end(self, items: Callable[[], Sequence[bytes]]) -> None:
        """Record that ``start()`` has finished, and put its items into the outbox, in one transaction. A checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()  # a later cancellation would store the end without the items
        given = items()
        if self._job.session is not None:
            self._job.session.started()
        self._note(is_started=True)
        self._job.keep(START_ITEMS.name, None)
        if given:
            await self._job.give(given)
        else:
            await self._job.commit()

    def last_word(self, reason: str) -> None:
        """Store everything as it is at the end. Closing the job writes it. A run that never started changes nothing."""
        if not self._has_begun:
            return
        self._stats.set("finish_reason", reason)
        self._keep_statistics()
        self._keep_host_state(is_last=True)
        self._job.was_killed = False
        # The closing transaction calls save() again, which must not store this state as if another one followed.
        self._timer.stop()
        self._note(reason=reason)

    def _note(self, **facts: object) -> None:
        """Store facts of the job that have changed."""
        session = self._job.session
        if session is not None and session.is_started:  # perhaps set by another process
            facts["is_started"] = True
        self._info = msgspec.structs.replace(self._info, **facts)
        JOB_INFO.keep(self._job, self._info)

    def _keep_host_state(self, *, is_last: bool) -> None:
        now = trio.current_time()
        quiet = self._timer.stored(now, self.host_state.size_bytes)
        self.host_state.keep(now, None if is_last else quiet + _LATE)
        if is_last:
            self.host_state.keep_ahead({}, 0.0)
        else:
            self._allowances.state_stored()
            self._keep_ahead()


@attrs.frozen(kw_only=True)
class OpenJob(NoJob):
    """A job that is open in this run."""

    job: Job
    info: JobInfo  # when it was opened
    frontier: Frontier
    feeds: Feeds  # open
    outbox: OutboxWriter  # copies items from the job to the feeds
    deaths: CallbackDeaths
    is_durable: bool = True
    resume_words: str = "`trawl job JOB --resume`"

    def watchers(self, *, is_simulated: bool) -> list[Watcher]:
        """Return the tasks that communicate with observers of the job; none if no observer could reach it."""
        from trawl.engine import status, steering  # noqa: PLC0415

        listen = steering.listen
        if self.session is not None:
            tasks = (status.report_status, steering.follow_store)
            return [contained_watcher(partial(each, self.session), each) for each in tasks]
        has_socket = not is_simulated and hasattr(socket, "AF_UNIX")  # nobody could reach it in virtual time
        return [contained_watcher(partial(listen, Path(self.job.name)), listen)] if has_socket else []

    def share(self, limits: CrawlLimits) -> None:
        """Let the limits of the crawl hold for all processes of the job."""
        if self.session is not None:
            limits.share(self.session)

    def other_owner(self, host: str) -> str:
        """Return the process that sends to a host; "" if it is this one."""
        part = part_of(f"//{host}")
        if self.session is None or self.session.owns(part):
            return ""
        return self.session.others.owner_of(part) or "another process"

    def step_words(self, now: float) -> str:
        """Return the durations of the job's steps in words."""
        return self.job.step_times.text(now)

    def wire(self, transport: Transport) -> Transport:
        """Return a transport that sends only while the job belongs to this process."""
        if self.job.lease is None:
            return transport
        from trawl.engine.shared_job import JobTransport  # noqa: PLC0415

        return JobTransport(transport, self.job.lease)

    def make_state(self, context: CrawlContext, throttle: Throttle) -> JobState:
        """Make the object that stores the crawl's state in the job."""
        return JobState(self, context, throttle)

    def make_items(self, context: CrawlContext, processor: Processor, limit: ItemLimit) -> JobItems:
        """Make the object that puts the items of callbacks into the outbox."""
        receivers, stats = context.output.receivers, context.stats
        # Receivers other than the job get items before the page ends, so check the limit for each item.
        unlimited = ItemLimit(math.inf, context.state)
        at_once, at_end = (limit, unlimited) if receivers else (unlimited, limit)
        sender = ItemSender(
            processor, context.spider, receivers, None, stats, at_once, is_buffered=True, events=context.events
        )
        return JobItems(sender, self.outbox, context.frontier, self.job, stats, context.output.collected, at_end)

    def worker_class(self, plain: type[Worker]) -> Callable[..., Worker]:
        """Return the class of a worker that records which callbacks run."""
        return JobWorker

    def vet(self, refusal: Vet) -> Vet:
        """Return a function that also refuses a page whose callback has ended too many processes."""
        return lambda attempt, now: self.deaths.refusal(attempt) or refusal(attempt, now)

    def make_follower(self, engine: Engine, admission: Admission, prefetcher: Prefetcher) -> Alone:
        """Make the object that follows the other processes of the job."""
        if self.session is None:
            return super().make_follower(engine, admission, prefetcher)
        from trawl.engine.shared_job import SharedJobFollower  # noqa: PLC0415

        return SharedJobFollower(self, self.session, engine, admission, prefetcher)


@asynccontextmanager
async def open_job(
    settings: JobSettings,
    spider: Spider,
    *,
    wall: WallClock,
    blocking: Blocking,
    feeds: FeedsSettings,
    depth_first: bool,
    stats: Stats,
    goes_on: bool,
    terms: Mapping[str, str],
) -> AsyncGenerator[OpenJob, None]:
    """Hold a job for one run. Leaving the block writes the state and releases the job for the next process.

    If ``goes_on``, the crawl may continue when nothing is pending, because its hook ``idle`` adds requests. The
    ``terms``, digests by name, must be equal in all processes that work on the job. Raises JobError if the job is in
    use, damaged, written by a newer release, or can't be written, and UsageError if the job belongs to another spider,
    processes with other terms work on it, the directory holds something else, or a feed can't be opened.
    """
    from trawl.frontier.job_frontier import open_frontier  # noqa: PLC0415

    async with _opened(settings, blocking, exports=bool(feeds.feeds), terms=terms) as job:
        with closing(CallbackDeaths(job)) as deaths:
            now_utc = wall.to_utc(trio.current_time())
            info = _info_of(job, spider, now_utc)
            await deaths.open(blocking)
            given_up = await job.requeue_given_up(now_utc.timestamp()) if settings.job_keep_given_up else 0
            frontier = await open_frontier(job, spider, wall, depth_first=depth_first)
            opened, outbox = await open_outbox(
                feeds, blocking, job, spider_name=spider.name, started_utc=info.begun_utc, stats=stats
            )
            pending = frontier.statistics().pending  # of this process's hosts; a leader has none
            if job.session is not None and not job.session.works:
                pending = job.session.pending + given_up
            _tell(job, info, pending, goes_on=goes_on)
            if given_up:
                logger.info("job %s: %d requests of hosts that were given up are sent again", job.name, given_up)
            async with opened:
                yield OpenJob(
                    job=job,
                    info=info,
                    frontier=frontier,
                    feeds=opened,
                    outbox=outbox,
                    keeps_given_up=settings.job_keep_given_up,
                    line=job.line,
                    session=job.session,
                    lease=job.lease or EndlessLease(),
                    deaths=deaths,
                    storing=job.storing.values(),
                    writers=(outbox,),
                )


def _info_of(job: Job, spider: Spider, now_utc: datetime) -> JobInfo:
    """Return the facts about a job. A new job is assigned to this spider.

    Raises UsageError for another spider's job, whose requests name that spider's callbacks, and JobError if the facts
    can't be read. Then nothing was changed.
    """
    name, cls = spider.name, type(spider).__qualname__
    info = JOB_INFO.read(job)
    if info is None:
        # Section.read skips unreadable values. Here that would assign the job to any spider.
        if JOB_INFO.name in job.kept:
            raise job.damaged("the facts about its spider and its runs can't be read")
        return JobInfo(spider=name, cls=cls, begun_at=now_utc.timestamp(), marks=MARKS)
    if (info.spider, info.cls) != (name, cls):
        raise UsageError(
            f"job {job.name} belongs to spider {info.spider!r} ({info.cls}), not to {name!r} ({cls}): give another job"
        )
    return info


@asynccontextmanager
async def _opened(
    settings: JobSettings, blocking: Blocking, *, exports: bool, terms: Mapping[str, str]
) -> AsyncGenerator[Job, None]:
    """Hold a job in a server or a directory. A crawl without a job imports neither coredis nor sqlite3."""
    if settings.job_dir.startswith(SCHEMES):
        from trawl.frontier.redis import Address  # noqa: PLC0415
        from trawl.frontier.redis import open_job as open_redis_job  # noqa: PLC0415

        address = Address.parse(settings.job_dir)
        durability, lease = settings.job_durability, settings.job_lease
        has_threads = not isinstance(blocking, InlineBlocking)
        async with open_redis_job(
            address, durability, lease=lease, exports=exports, terms=terms, keeps_lease=has_threads
        ) as job:
            yield job
        return
    from trawl.frontier.sqlite import open_job as open_sqlite_job  # noqa: PLC0415

    stored = await open_sqlite_job(settings.job_dir, blocking)
    try:
        yield stored
    finally:
        await stored.aclose()  # noqa: ASYNC102 - it shields itself


def _tell(job: Job, info: JobInfo, pending: int, *, goes_on: bool) -> None:
    """Log the progress of the job in one line."""
    if job.is_new:
        logger.info("job %s: new", job.name)
        return
    if not job.is_alone:
        logger.info("job %s: other processes work on it, and this one takes its share", job.name)
        return
    waiting = job.outbox_end - job.outbox_start
    is_finished = info.is_finished(pending) and not goes_on
    if is_finished and waiting:
        words = "job %s: nothing is pending, so nothing will be sent; items that wait for its feeds: %d"
        logger.info(words, job.name, waiting)
        return
    if is_finished:
        words = "job %s is finished: nothing is pending, so nothing will be sent; to crawl again, give another job"
        logger.warning(words, job.name)
        return
    how = job.last_error or info.reason or "killed"
    words = "job %s: run %d, %d requests pending; the last run ended: %s"
    logger.info(words, job.name, info.runs + 1, pending, how)
    if info.marks < MARKS:  # the earlier release distinguished some URLs that are the same in this one
        words = "job %s: an earlier release began it: pages with %%-escapes in their URLs may come once more"
        logger.info(words, job.name)
