"""What the command sees of a running crawl and of its end, and how it starts one.

The live panel: where a crawl is, four times a second, at the foot of the terminal.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from trawl.observe import (
    Progress,
    Speed,
    Stats,
    clipped,
    counted,
    duration_words,
    number_words,
    rate_words,
    speed_between,
    waiting_words,
)
from trawl.settings import Settings
from trawl.spiders import Spider
from trawl.throttling import Reason, ScopeReport

__all__ = [
    "CrawlResult",
    "CrawlView",
    "CrawlWith",
    "Waiting",
    "Watcher",
    "can_show",
    "panel",
    "panel_watcher",
    "progress_of",
]

MAX_WAITING = 3
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
    words = [clipped(waiting.reason.text(now), _REASON_CHARACTERS) for waiting in held[:MAX_WAITING]]
    if len(held) > MAX_WAITING:
        words.append(f"and {number_words(len(held) - MAX_WAITING)} more")
    return Progress.of(
        crawl.stats,
        at=crawl.elapsed,
        queued=crawl.queued,
        in_flight=crawl.in_flight,
        held=sum(waiting.count for waiting in held),
        waiting=words,
    )


INTERVAL = 0.25
"""Seconds between two pictures."""

IDLE_FOR = 20.0
"""After a picture nothing is drawn for so many times as long as it took: with many thousand hosts that is long."""

SMOOTHING = 5.0
"""The speed shown is that of the last so many seconds."""

_NAME_CHARACTERS = 30


def can_show(console: Console) -> bool:
    """Whether lines can be redrawn there: a terminal that knows how to move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


def panel(name: str, now: Progress, speed: Speed) -> Text:
    """The picture: one line of figures, and one of what is waited for, if anything is."""
    text = Text(overflow="fold")
    text.append(clipped(name, _NAME_CHARACTERS), style="bold cyan")
    parts = [
        (duration_words(now.at), "", ""),
        (*_apart(f"{counted(now.pages, 'page')} ({rate_words(speed.pages)})"), "bold"),
        (*_apart(f"{counted(now.items, 'item')} ({rate_words(speed.items)})"), "bold"),
        (number_words(now.queued), " queued", "bold"),
        (number_words(now.in_flight), " in flight", "bold"),
        (*_apart(counted(now.errors, "error")), "bold red" if now.errors else "bold"),
    ]
    for figure, words, style in parts:
        text.append(" · ", style="dim")
        text.append(figure, style=style)
        text.append(words)
    if now.waiting:
        text.append(f"\n{waiting_words(now)}", style="yellow")
    return text


def _apart(text: str) -> tuple[str, str]:
    """The figure that a text begins with, and its words."""
    figure, space, words = text.partition(" ")
    return figure, space + words


def panel_watcher(console: Console) -> Callable[[CrawlView], Awaitable[None]]:
    """A watcher that draws the panel on ``console`` until it is cancelled; then the panel is gone."""

    async def watch(crawl: CrawlView) -> None:
        seen = deque([progress_of(crawl)])
        name = crawl.spider.name
        live = Live(
            panel(name, seen[0], Speed()),
            console=console,
            auto_refresh=False,  # its thread would draw beside Trio's
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # what the spider prints goes above the panel
            redirect_stderr=sys.stderr.isatty(),
        )
        try:
            with live:
                took = 0.0
                while True:
                    await trio.sleep(max(INTERVAL, took * IDLE_FOR))
                    began_at = trio.current_time()
                    now = progress_of(crawl)
                    while len(seen) > 1 and now.at - seen[1].at > SMOOTHING:
                        seen.popleft()
                    seen.append(now)
                    live.update(panel(name, now, speed_between(seen[0], now)), refresh=True)
                    took = trio.current_time() - began_at
        except OSError:
            # The terminal is gone; the crawl is not. Its watchers may end before it does.
            return

    return watch
