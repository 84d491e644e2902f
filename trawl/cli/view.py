"""The command's output: its consoles, an error as one line, and the progress of a crawl.

The progress is a panel at the bottom of the terminal, drawn four times a second, or lines in the log.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import trio
from rich.console import Console
from rich.live import Live
from rich.text import Text

from trawl.cli import FAILED, USAGE
from trawl.engine import Pace
from trawl.errors import TrawlError, UsageError
from trawl.observe import (
    Progress,
    Speed,
    clipped,
    counted,
    duration_words,
    number_words,
    printable,
    progress_line,
    rate_words,
    speed_between,
    waiting_words,
)

if TYPE_CHECKING:
    from trawl._run import CrawlResult
    from trawl.engine import Crawl

__all__ = [
    "CrawlWith",
    "Panels",
    "ProgressSteps",
    "Watcher",
    "can_show",
    "log_watcher",
    "panel",
    "panel_watcher",
    "print_error",
    "progress_of",
    "stderr_console",
    "stdout_console",
]

_WIDTH_OF_A_FILE = 160
_FORBIDDEN = "robots forbidden"
_UNREAD = "robots.txt could not be read: answered"


_TRAILING = re.compile(r"[ \t]+(?=\n)")


class _SafeConsole(Console):
    """A console that escapes control characters in printed strings: see :func:`~trawl.observe.printable`.

    In a file or a pipe, it does not pad lines with spaces.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print strings safely, and Rich's own objects unchanged."""
        safe = [printable(each, keeps_lines=True) if isinstance(each, str) else each for each in objects]
        if self.is_terminal:
            super().print(*safe, **options)
            return
        with self.capture() as captured:
            super().print(*safe, **options)
        super().print(_TRAILING.sub("", captured.get()), end="", soft_wrap=True)


class _Console(_SafeConsole):
    """A console that stays silent after its pipe is closed. The command then ends with its usual exit status."""

    def on_broken_pipe(self) -> None:
        """Stop writing, even when Python flushes its streams at exit. Rich's own method would exit with status 1."""
        self.quiet = True
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def stderr_console() -> Console:
    """Return the console on standard error. It uses colors only on a terminal, and none with NO_COLOR."""
    return _console(_Console, sys.stderr.isatty(), stderr=True)


def stdout_console() -> Console:
    """Return the console on standard output. If this is a file or a pipe, lines are as wide as tables need."""
    return _console(_SafeConsole, sys.stdout.isatty())


def _console(kind: type[Console], is_terminal: bool, **options: Any) -> Console:
    width = None if is_terminal else _WIDTH_OF_A_FILE
    return kind(force_terminal=is_terminal, width=width, highlight=False, markup=False, emoji=False, **options)


def print_error(error: TrawlError, console: Console, name: str = "") -> int:
    """Print an error as one line, with the spider's name if there is one. Returns the exit status."""
    whose = f"{printable(name)}: " if name else ""
    console.print(f"trawl: {whose}{printable(_advised(str(error)))}", style="red", soft_wrap=True)
    return USAGE if isinstance(error, UsageError) else FAILED


def _advised(words: str) -> str:
    """Return an error's message, with advice if robots.txt disallows the page."""
    own = "-s ROBOTSTXT_OBEY=false, for a site of your own"
    if words.endswith(_FORBIDDEN):
        return f"{words.removesuffix(_FORBIDDEN)}robots.txt forbids it ({own})"
    return f"{words} (--wait retries; {own})" if _UNREAD in words else words


MAX_WAITING = 3
"""Number of reasons shown, most requests first. The other reasons are only counted."""

_REASON_CHARACTERS = 100


Watcher = Callable[[Any], Awaitable[None]]
"""A task that observes a running crawl (:class:`trawl.engine.Crawl`) and is cancelled at its end."""

CrawlWith = Callable[..., Awaitable["CrawlResult"]]
"""Runs a crawl: :func:`trawl._run.crawl_with`, or a fake in tests."""


ProgressSteps: TypeAlias = "Callable[[Crawl], Generator[None, None, Progress]]"
"""Computes the progress of a crawl in short steps. The progress is the generator's return value."""


def progress_of(crawl: Crawl) -> Generator[None, None, Progress]:
    """Compute the progress of a crawl, with the reasons why its requests wait. Yields after each step.

    Returns:
        The progress, as the generator's return value.
    """
    count, held = yield from crawl.waiting_in_steps(MAX_WAITING)
    now = trio.current_time()
    words = [clipped(waiting.reason.text(now), _REASON_CHARACTERS) for waiting in held]
    if count.groups > MAX_WAITING:
        words.append(f"and {number_words(count.groups - MAX_WAITING)} more")
    return Progress.of(
        crawl.stats,
        at=crawl.elapsed,
        queued=crawl.queued,
        in_flight=crawl.in_flight,
        held=count.requests,
        waiting=words,
    )


INTERVAL = 0.25
"""Seconds between two updates."""

SMOOTHING = 5.0
"""Seconds over which the speed is measured."""

_NAME_CHARACTERS = 30


def can_show(console: Console) -> bool:
    """Return True for a terminal that can move its cursor, so that lines can be redrawn."""
    return console.is_terminal and not console.is_dumb_terminal


def panel(name: str, now: Progress, speed: Speed) -> Text:
    """Return the panel: a line of numbers, and a line about waiting requests if there are any."""
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
    """Split a string into its leading number and the rest."""
    figure, space, words = text.partition(" ")
    return figure, space + words


class Panels:
    """The panels of the running crawls, one below the other.

    Args:
        console: The console that shows the panels.
        progress: Computes the progress of a crawl; by default, its progress in this process.
    """

    def __init__(self, console: Console, progress: ProgressSteps = progress_of) -> None:
        self._console = console
        self._progress = progress
        self._pace = Pace(INTERVAL)
        self._shown: list[tuple[Crawl, deque[Progress]]] = []

    async def watch(self, crawl: Crawl) -> None:
        """Show ``crawl`` until cancelled. A watcher."""
        async with self.showing(crawl):
            await trio.sleep_forever()

    @asynccontextmanager
    async def showing(self, crawl: Crawl) -> AsyncIterator[None]:
        """Show ``crawl`` while the block runs. Entering is a checkpoint."""
        shown = crawl, deque([await self._pace.look(self._progress(crawl))])
        self._shown.append(shown)
        try:
            yield
        finally:
            self._shown.remove(shown)

    async def draw(self) -> None:
        """Draw the panels until cancelled, and then remove them. Returns early if the terminal is gone."""
        live = Live(
            self._panels(),
            console=self._console,
            auto_refresh=False,  # Rich's own thread would draw at the same time
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output of the spider's print() is shown above the panel
            redirect_stderr=sys.stderr.isatty(),
        )
        try:
            with live:
                while True:
                    await self._pace.pause()
                    await self._pace.look(self._redraw(live))
        except OSError:
            # The crawls continue without this task.
            return

    def _redraw(self, live: Live) -> Generator[None, None, None]:
        """Update the panels and draw them. Yields after each step."""
        for crawl, seen in list(self._shown):
            now = yield from self._progress(crawl)
            while len(seen) > 1 and now.at - seen[1].at > SMOOTHING:
                seen.popleft()
            seen.append(now)
        live.update(self._panels(), refresh=True)

    def _panels(self) -> Text:
        shown = [
            panel(crawl.spider.name, seen[-1], speed_between(seen[0], seen[-1]))
            for crawl, seen in sorted(self._shown, key=lambda each: each[0].spider.name)
        ]
        return Text("\n", overflow="fold").join(shown)


def panel_watcher(console: Console, progress: ProgressSteps = progress_of) -> Watcher:
    """Return a watcher that draws the panel on ``console`` until it is cancelled, and then removes it."""

    async def watch(crawl: Crawl) -> None:
        panels = Panels(console, progress)
        async with panels.showing(crawl):
            await panels.draw()

    return watch


progress_logger: logging.Logger = logging.getLogger("trawl.progress")


def log_watcher(interval: float, progress: ProgressSteps = progress_of) -> Watcher:
    """Return a watcher that logs a line every ``interval`` seconds of the run clock until it is cancelled."""

    async def watch(crawl: Crawl) -> None:
        pace = Pace(interval)
        earlier = await pace.look(progress(crawl))
        while True:
            await pace.pause()
            now = await pace.look(progress(crawl))
            progress_logger.info("%s", progress_line(now, speed_between(earlier, now)))
            earlier = now

    return watch
