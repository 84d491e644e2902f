"""The live panel: where a crawl is, four times a second, at the foot of the terminal."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable

import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from trawl.cli.view import CrawlView, progress_of
from trawl.observe import (
    Pace,
    Progress,
    clipped,
    counted,
    duration_words,
    number_words,
    pace,
    rate_words,
    waiting_words,
)

__all__ = ["can_show", "panel", "panel_watcher"]

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


def panel(name: str, now: Progress, speed: Pace) -> Text:
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
            panel(name, seen[0], Pace()),
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
                    live.update(panel(name, now, pace(seen[0], now)), refresh=True)
                    took = trio.current_time() - began_at
        except OSError:
            # The terminal is gone; the crawl is not. Its watchers may end before it does.
            return

    return watch
