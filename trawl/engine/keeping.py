"""What a job keeps besides requests and items, and how a crawl goes on from it.

Theory of operation. Just before each transaction the job asks what is to be kept. Statistics are few, so they go with
every transaction and count what the transactions hold, no more and no less; so do pages that have a budget (C11).
What was learned of hosts (the throttle's state, answers to requests for robots.txt, cookies) grows with the crawl, so
it goes with a transaction once it is due: after :data:`INTERVAL` seconds, later where it is large. If none comes by
then, one is made, so that a backoff that stops everything is kept too. A kill loses what was learned since: the
throttle knows how long that may have been, and takes whoever may have sent meanwhile to have sent (R16).

The last word is kept when the crawl has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence

import trio

from trawl.clock import WallClock
from trawl.cookies import Cookie, Jars
from trawl.engine.note import Note
from trawl.engine.robots_gate import RobotsGates
from trawl.frontier import JobStore, Section
from trawl.frontier.facts import START_ITEMS, STATISTICS
from trawl.observe import Stats
from trawl.robots import Answers, KeptAnswer, RobotsSettings
from trawl.throttling import Throttle
from trawl.throttling.state import ThrottleState

__all__ = ["INTERVAL", "Keeping"]

logger: logging.Logger = logging.getLogger("trawl.engine")

INTERVAL = 2.0
"""Seconds between two writings of what was learned, at the least."""

_BYTES_A_SECOND = 500_000.0  # of it, on average, where it is large
_LATE = 1.0  # seconds that a transaction may take, once it is due

JarName = str | int | float | bool | None

THROTTLE: Section[ThrottleState] = Section("throttle", ThrottleState)
PAGES: Section[dict[str, int]] = Section("pages", dict[str, int])
ROBOTS: Section[dict[str, KeptAnswer]] = Section("robots", dict[str, KeptAnswer])
COOKIES: Section[list[tuple[JarName, list[Cookie]]]] = Section("cookies", list[tuple[JarName, list[Cookie]]])


class Keeping:
    """Keeps what one crawl has learned in its job.

    Args:
        job: Where it is kept.
        note: What the job says of itself.
        stats: Continued: counts go on, times add up.
        throttle: Goes on where it was.
        gates: Told of answers that still hold.
        robots: How long an answer holds at the most.
        jars: The cookies; None where the crawl has none.
        wall: For instants.
    """

    def __init__(
        self,
        job: JobStore,
        note: Note,
        *,
        stats: Stats,
        throttle: Throttle,
        gates: RobotsGates,
        robots: RobotsSettings,
        jars: Jars | None,
        wall: WallClock,
    ) -> None:
        self.note: Note = note
        self._job = job
        self._stats = stats
        self._throttle = throttle
        self._answers = Answers()
        self._longest = robots.robotstxt_max_age
        self._jars = jars
        self._wall = wall
        self._due_at = 0.0
        self._elapsed = 0.0
        self._began_at = 0.0
        self._has_begun = False
        self._wanted = trio.Event()
        gates.keep_in(self._answers)

    def restore(self) -> None:
        """Go on from what the last run kept; what can't be read is left out with a warning."""
        now = self._began_at = trio.current_time()
        self._has_begun = True
        job = self._job
        self.note.began(job)
        statistics = dict(STATISTICS.read(job) or {})
        elapsed = statistics.pop("elapsed_seconds", 0.0)
        self._elapsed = float(elapsed) if isinstance(elapsed, int | float) else 0.0
        statistics.pop("finish_reason", None)
        self._stats.take_up(statistics)
        self._stats.set("job_run_count", self.note.runs)
        state = THROTTLE.read(job)
        if state is not None:
            self._throttle.restore(state, now)
        self._throttle.pages.take_up(PAGES.read(job) or {})
        self._answers.take_up(ROBOTS.read(job) or {}, self._ahead, now + self._longest)
        for name, cookies in COOKIES.read(job) or ():
            for cookie in cookies:
                if self._jars is not None:
                    self._jars.keep(cookie, name)
        job.before_commit(self.save)

    @property
    def elapsed(self) -> float:
        """Seconds that all runs of the job have taken together."""
        return self._elapsed + trio.current_time() - self._began_at

    def save(self) -> None:
        """Called before each transaction: keep what belongs to it."""
        self._stats.set("elapsed_seconds", self.elapsed)
        STATISTICS.keep(self._job, self._stats.as_dict())
        pages = self._throttle.pages.counts()
        if pages:
            PAGES.keep(self._job, pages)
        if trio.current_time() >= self._due_at:
            self._learned(is_last=False)
        else:
            self._wanted.set()

    async def run(self) -> None:
        """Have a transaction made when what was learned is due and none comes by itself. Until it is cancelled."""
        while True:
            await self._wanted.wait()
            await trio.sleep_until(self._due_at)
            self._wanted = trio.Event()
            if trio.current_time() >= self._due_at:
                await self._job.commit()

    @property
    def is_over(self) -> bool:
        """Whether ``start()`` came to its end in an earlier run."""
        return self.note.is_started

    async def end(self, items: Callable[[], Sequence[bytes]]) -> None:
        """Note that ``start()`` has come to its end, and put its items into the outbox, in one step. A checkpoint.

        Args:
            items: Gives the items; called just before that.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # here, or its end is stored and its items are not
        given = items()
        self.note.started(self._job)
        self._job.keep(START_ITEMS.name, None)
        if given:
            await self._job.give(given)
        else:
            await self._job.commit()

    def last_word(self, reason: str) -> None:
        """Keep everything as it is at the end; the job's closing writes it. A run that never began changes nothing."""
        if not self._has_begun:
            return
        self._stats.set("finish_reason", reason)
        self._stats.set("elapsed_seconds", self.elapsed)
        STATISTICS.keep(self._job, self._stats.as_dict())
        self._learned(is_last=True)
        self._due_at = float("inf")
        self.note.ended(self._job, reason)

    def _learned(self, *, is_last: bool) -> None:
        now = trio.current_time()
        interval = max(INTERVAL, sum([len(blob) for blob in self._job.kept.values()]) / _BYTES_A_SECOND)
        self._due_at = now + interval
        THROTTLE.keep(self._job, self._throttle.state(now, None if is_last else interval + _LATE))
        robots, cookies = self._answers.state(now, self._ahead), _cookies(self._jars)
        for name, blob in ((ROBOTS.name, ROBOTS.encode(robots)), (COOKIES.name, COOKIES.encode(cookies))):
            if blob != self._job.kept.get(name):
                self._job.keep(name, blob)

    @property
    def _ahead(self) -> float:
        return self._wall.to_epoch(0.0)


def _cookies(jars: Jars | None) -> list[tuple[JarName, list[Cookie]]]:
    """The cookies by jar; a jar whose name can't be stored is left out."""
    if jars is None:
        return []
    kept: list[tuple[JarName, list[Cookie]]] = []
    for name, jar in jars.items():
        if name is None or isinstance(name, JarName):
            kept.append((name, list(jar)))
        else:
            _say_once(name)
    return kept


def _say_once(name: Hashable) -> None:
    logger.debug("the cookies of jar %r are not kept: a job keeps those of jars named by a text or a number", name)
