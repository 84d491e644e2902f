"""The command's output: its consoles, an error as one line, and the progress of a crawl.

The progress is a panel at the bottom of the terminal, drawn every second, or lines in the log.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import trio
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trawl.cli import FAILED, USAGE
from trawl.errors import TrawlError, UsageError
from trawl.observe import (
    CrawlStatus,
    clipped,
    counted,
    duration_words,
    estimate_words,
    number_words,
    printable,
    rate_words,
    status_line,
    waiting_words,
)

if TYPE_CHECKING:
    from trawl._run import CrawlResult
    from trawl.engine import Crawl
    from trawl.panel import Panel

__all__ = [
    "CrawlWith",
    "Panels",
    "StatusOf",
    "Watcher",
    "add_rest",
    "advised",
    "can_show",
    "log_watcher",
    "open_panel",
    "panel",
    "panel_watcher",
    "plain_table",
    "print_error",
    "status_of",
    "stderr_console",
    "stdout_console",
]

_WIDTH_OF_A_FILE = 160
_FORBIDDEN = "robots forbidden"
_UNREAD = "robots.txt could not be read: answered"


_TRAILING = re.compile(r"[ \t]+(?=\n)")


class _SafeConsole(Console):
    """A console that escapes control characters in strings. In a file or pipe, it does not pad lines with spaces."""

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
    console.print(f"trawl: {whose}{printable(advised(str(error)))}", style="red", soft_wrap=True)
    return USAGE if isinstance(error, UsageError) else FAILED


def advised(words: str) -> str:
    """Return an error's message, with advice if robots.txt disallows the page."""
    own = "-s ROBOTSTXT_OBEY=false, for a site of your own"
    if words.endswith(_FORBIDDEN):
        return f"{words.removesuffix(_FORBIDDEN)}robots.txt forbids it ({own})"
    return f"{words} (--wait retries; {own})" if _UNREAD in words else words


Watcher = Callable[[Any], Awaitable[None]]
"""A task that observes a running crawl (:class:`trawl.engine.Crawl`) and is cancelled at its end."""

CrawlWith = Callable[..., Awaitable["CrawlResult"]]
"""Runs a crawl: :func:`trawl._run.crawl_with`, or a fake in tests."""


StatusOf: TypeAlias = "Callable[[Crawl], CrawlStatus]"
"""Returns the status of a crawl: of this process, or of all processes of its job."""


def status_of(crawl: Crawl) -> CrawlStatus:
    """Return the status of a crawl in this process."""
    return crawl.status()


INTERVAL = 1.0
"""Seconds between two updates."""

_NAME_CHARACTERS = 30


def can_show(console: Console) -> bool:
    """Return True for a terminal that can move its cursor, so that lines can be redrawn."""
    return console.is_terminal and not console.is_dumb_terminal


def plain_table(titles: Iterable[str] = (), texts: Container[str] = (), **options: Any) -> Table:
    """Return a table without rows. Only the columns in ``texts`` are aligned to the left."""
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="cyan")
    for title in titles:
        table.add_column(title, justify="left" if title in texts else "right", **(options or {"overflow": "fold"}))
    return table


def add_rest(table: Table, number: int) -> None:
    """Add a row with the number of rows that are not shown, if there are any."""
    if number > 0:
        table.add_row(Text(f"and {number_words(number)} more", style="dim"))


def open_panel(listen: str, token: str, option: str = "--panel") -> Panel:
    """Open the socket of the panel at ``[HOST:]PORT``, before anything is sent. Messages name ``option``."""
    try:
        from trawl.panel import Panel, parse_address  # noqa: PLC0415 - needs the extra "panel"
    except ImportError as error:
        raise UsageError(f"{option} needs {error.name}: `pip install 'trawl-crawler[panel]'`") from error
    return Panel(parse_address(listen, token, option))


def panel(now: CrawlStatus) -> Text:
    """Return the panel: a line of figures, a line about waiting requests, and a line about the estimated end."""
    text, rates = Text(overflow="fold"), now.rates
    text.append(clipped(now.spider, _NAME_CHARACTERS), style="bold cyan")
    parts = [
        (duration_words(now.at), "", ""),
        (*_apart(f"{counted(now.pages, 'page')} ({rate_words(rates.pages.ten_seconds)})"), "bold"),
        (*_apart(f"{counted(now.items, 'item')} ({rate_words(rates.items.ten_seconds)})"), "bold"),
        (number_words(now.queued), " queued", "bold"),
        (number_words(now.in_flight), " in flight", "bold"),
        (*_apart(counted(now.errors, "error")), "bold red" if now.errors else "bold"),
    ]
    for figure, words, style in parts:
        text.append(" · ", style="dim")
        text.append(figure, style=style)
        text.append(words)
    for words, style in ((waiting_words(now), "yellow"), (estimate_words(now.estimate), "dim")):
        if words:
            text.append(f"\n{printable(words)}", style=style)
    return text


def _apart(text: str) -> tuple[str, str]:
    figure, space, words = text.partition(" ")
    return figure, space + words


class Panels:
    """The panels of the running crawls, one below the other."""

    def __init__(self, console: Console, status: StatusOf = status_of) -> None:
        self._console = console
        self._status = status
        self._shown: list[Crawl] = []

    async def watch(self, crawl: Crawl) -> None:
        """Show ``crawl`` until cancelled. A watcher."""
        with self.showing(crawl):
            await trio.sleep_forever()

    @contextmanager
    def showing(self, crawl: Crawl) -> Iterator[None]:
        """Show ``crawl`` while the block runs."""
        self._shown.append(crawl)
        try:
            yield
        finally:
            self._shown.remove(crawl)

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
                    await trio.sleep(INTERVAL)
                    live.update(self._panels(), refresh=True)
        except OSError:
            # The terminal is gone. The crawls continue without this task.
            return

    def _panels(self) -> Text:
        shown = [self._status(crawl) for crawl in self._shown]
        return Text("\n", overflow="fold").join(map(panel, sorted(shown, key=attrgetter("spider"))))


def panel_watcher(console: Console, status: StatusOf = status_of) -> Watcher:
    """Return a watcher that draws the panel on ``console`` until it is cancelled, and then removes it."""

    async def watch(crawl: Crawl) -> None:
        panels = Panels(console, status)
        with panels.showing(crawl):
            await panels.draw()

    return watch


progress_logger: logging.Logger = logging.getLogger("trawl.progress")


def log_watcher(interval: float, status: StatusOf = status_of) -> Watcher:
    """Return a watcher that logs a line every ``interval`` seconds of the run clock until it is cancelled."""

    async def watch(crawl: Crawl) -> None:
        status(crawl)  # the rates of the first line need an earlier status
        while True:
            await trio.sleep(interval)
            progress_logger.info("%s", status_line(status(crawl)))

    return watch
