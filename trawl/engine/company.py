"""Company of other processes on a shared job: tells them how this crawl goes, and does what all are told to do.

:func:`keep_company` is one of the tasks that watch a crawl, where the job is in a server: others may look at it, and
tell its processes what to do. Nothing else knows of it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import trio

from trawl.frontier.share import SessionState
from trawl.observe import Progress, clipped, speed_between

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.engine.crawl import Crawl, Watcher
    from trawl.engine.job import OpenJob
    from trawl.frontier.share import Share

__all__ = ["company_of", "keep_company"]

logger: logging.Logger = logging.getLogger("trawl.engine")

SAY_EVERY = 1.0
"""Seconds; what is said is stored with the next renewal."""

SMOOTHING = 15.0
"""Seconds over which the rate is measured."""

IDLE_FOR = 20.0
"""The pause after a look, as a multiple of its duration, which is long with many thousand hosts."""

_REASONS = 5
_REASON_CHARACTERS = 120


def company_of(opened: OpenJob | None, wall: WallClock) -> list[Watcher]:
    """Return the watcher that speaks with those who look at a job; none where there is no job that they could reach."""
    share = None if opened is None else opened.job.share
    return [] if share is None else [partial(keep_company, share, wall)]


async def keep_company(share: Share, wall: WallClock, crawl: Crawl) -> None:
    """Say each second how the crawl goes, and pause, go on or end when the job's processes are told to."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say, share, wall, crawl)
        nursery.start_soon(_heed, share, crawl)


async def _say(share: Share, wall: WallClock, crawl: Crawl) -> None:
    since = wall.to_epoch(crawl.started_at)
    seen: deque[Progress] = deque()
    while True:
        began_at = trio.current_time()
        held = crawl.waiting(_REASONS)
        now = Progress.of(crawl.stats, at=crawl.elapsed, queued=crawl.queued, in_flight=crawl.in_flight)
        seen.append(now)
        while len(seen) > 1 and now.at - seen[1].at > SMOOTHING:
            seen.popleft()
        saying = SessionState(
            since=since,
            at=now.at,
            pages=now.pages,
            items=now.items,
            queued=now.queued,
            in_flight=now.in_flight,
            errors=now.errors,
            rate=speed_between(seen[0], now).pages,
            waiting=[(one.count, clipped(one.reason.text(began_at), _REASON_CHARACTERS)) for one in held],
        )
        share.say(saying.encode())
        await trio.sleep(max(SAY_EVERY, (trio.current_time() - began_at) * IDLE_FOR))


async def _heed(share: Share, crawl: Crawl) -> None:
    wish = ""
    while wish != "stop":
        wish = await share.other_wish(wish)
        if wish == "stop":
            logger.warning("the job is stopped: sending nothing new; `trawl job JOB --resume` lets it go on")
            crawl.shutdown("stopped")
        else:
            logger.warning("the job is %s", "paused: sending nothing new" if wish == "pause" else "resumed")
            crawl.pause(is_paused=wish == "pause")
