"""What the command sees of a running crawl and of its end, and how it starts one."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import trio

from trawl.observe import Progress, Stats, clipped, number_words
from trawl.settings import Settings
from trawl.spiders import Spider
from trawl.throttling import Reason, ScopeReport

__all__ = ["CrawlResult", "CrawlView", "CrawlWith", "Waiting", "Watcher", "progress_of"]

MOST_WAITING = 3
"""So many reasons are named, those that hold up most requests; the others are counted."""

_REASON_CHARACTERS = 100


class Waiting(Protocol):
    """Requests that wait for the same thing."""

    @property
    def count(self) -> int:
        """How many."""
        ...

    @property
    def reason(self) -> Reason:
        """On what, until when, and where that comes from."""
        ...


class CrawlView(Protocol):
    """A running crawl, for who watches it."""

    @property
    def stats(self) -> Stats:
        """Its statistics."""
        ...

    @property
    def spider(self) -> Spider:
        """Its spider."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        ...

    @property
    def queued(self) -> int:
        """Requests that wait."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests on the wire."""
        ...

    def waiting(self, most: int) -> Sequence[Waiting]:
        """What holds up most requests, the largest first."""
        ...

    def report(self) -> Sequence[ScopeReport]:
        """What each scope did, the busiest first."""
        ...


class CrawlResult(Protocol):
    """How a crawl ended."""

    @property
    def reason(self) -> str:
        """Why."""
        ...

    @property
    def stats(self) -> Mapping[str, Any]:
        """Its statistics."""
        ...

    @property
    def elapsed(self) -> float:
        """How long it took, in seconds."""
        ...


Watcher = Callable[[Any], Awaitable[None]]
"""A task that looks at a running crawl (a :class:`CrawlView`); cancelled at its end."""


class CrawlWith(Protocol):
    """Runs a crawl: ``trawl._run.crawl_with``."""

    async def __call__(
        self,
        spider_cls: type[Spider],
        settings: Settings,
        *,
        spider_args: Mapping[str, str],
        watchers: Sequence[Watcher] = (),
        handle_signals: bool = False,
    ) -> CrawlResult:
        """Run it to its end."""
        ...


def progress_of(crawl: CrawlView) -> Progress:
    """Where a crawl is now, with what holds it up in words."""
    held = crawl.waiting(sys.maxsize)
    now = trio.current_time()
    words = [clipped(waiting.reason.text(now), _REASON_CHARACTERS) for waiting in held[:MOST_WAITING]]
    if len(held) > MOST_WAITING:
        words.append(f"and {number_words(len(held) - MOST_WAITING)} more")
    return Progress.of(
        crawl.stats,
        at=crawl.elapsed,
        queued=crawl.queued,
        in_flight=crawl.in_flight,
        held=sum(waiting.count for waiting in held),
        waiting=words,
    )
