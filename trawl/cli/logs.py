"""The command's log and its errors: safe text, tracebacks only if they help, colors only on a terminal.

:func:`run_guarded` sets the log up for each command that runs a crawl, and prints the error that ends it. A program
that calls trawl keeps its own logging.
"""

from __future__ import annotations

import copy
import logging
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TextIO

from rich.console import Console, ConsoleRenderable, Group
from rich.logging import RichHandler
from rich.padding import Padding
from rich.text import Text
from rich.traceback import Traceback

from trawl.cli import FAILED, INTERRUPTED, USAGE
from trawl.cli.log_entries import JsonFormatter, Repeats
from trawl.cli.view import advised, print_error
from trawl.errors import PartLoadError, SpiderLoadError, TrawlError, UsageError
from trawl.observe import ObserveSettings, printable
from trawl.settings import Layer, load
from trawl.shutdown import Signals
from trawl.tracebacks import user_frames, user_traceback, without_own_frames
from trawl.user_files import is_user_file

__all__ = ["Logs", "is_expected", "named_in_log", "run_guarded"]

logger: logging.Logger = logging.getLogger("trawl")

_CHATTY = ("httpx", "httpcore", "hpack")
_REFUSING = (
    "trawl.http",
    *(f"trawl.engine.{name}" for name in ("callbacks", "direct", "start_requests")),
)
"""Modules that raise ValueError or TypeError for wrong input.

In other modules, these errors are bugs and need a traceback.
"""

JSON = "json"
"""The value of LOG_FORMAT for one JSON object per line."""

_TERMINAL_FORMAT = "[%(name)s] %(message)s"
_TERMINAL_TIME = "%H:%M:%S"


_NAME: ContextVar[str] = ContextVar("trawl_log_name", default="")


@contextmanager
def named_in_log(name: str) -> Iterator[None]:
    """Put a spider's name before each log entry of the block and of the tasks that it starts."""
    token = _NAME.set(name)
    try:
        yield
    finally:
        _NAME.reset(token)


class SafeFormatter(logging.Formatter):
    """Escapes control characters and indents further lines, so that no page can forge an entry."""

    def __init__(self, fmt: str, datefmt: str, *, shows_all: bool) -> None:
        super().__init__(fmt, datefmt)
        self._shows_all = shows_all

    def format(self, record: logging.LogRecord) -> str:
        """Format an entry, with a traceback only if it helps."""
        record = copy.copy(record)
        if name := _NAME.get():
            record.msg, record.args = f"{name}: {record.getMessage()}", None
        record.exc_text = None  # another handler may have stored the traceback there without escaping it
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not self._shows_all and is_expected(error):
            record.msg, record.args = f"{record.getMessage()}: {one_line(error)}", None
            record.exc_info = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format an entry without its traceback. Further lines are indented."""
        return printable(super().formatMessage(record), keeps_lines=True).replace("\n", "\n    ")

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Format a traceback, starting at its first line of user code. Escape control characters except line ends."""
        if ei[1] is not None and not self._shows_all:
            ei = (ei[0], ei[1], without_own_frames(ei[1]))
        return printable(super().formatException(ei), keeps_lines=True)


class _TerminalHandler(RichHandler):
    """Shows time, level and message in columns. Further lines of a message use the whole width."""

    def render(
        self, *, record: logging.LogRecord, traceback: Traceback | None, message_renderable: ConsoleRenderable
    ) -> ConsoleRenderable:
        """Render an entry. A traceback is printed below the columns, because the last column is narrow."""
        if not isinstance(message_renderable, Text) or "\n" not in message_renderable.plain:
            return super().render(record=record, traceback=traceback, message_renderable=message_renderable)
        first, *below = message_renderable.split("\n")
        row = super().render(record=record, traceback=traceback, message_renderable=first)
        return Group(row, Padding(Text("\n").join(below), (0, 0, 0, 2)))


class _FileHandler(WatchedFileHandler):
    """Reopens a file that logrotate has moved. If writing fails, entries are lost and the crawl continues."""

    def __init__(self, console: Console, settings: ObserveSettings) -> None:
        assert settings.log_file is not None
        mode = "a" if settings.log_file_append else "w"
        super().__init__(settings.log_file, mode, settings.log_encoding, errors="backslashreplace")
        self._console = console
        self._has_reported = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # the file that logrotate moved can't be closed, or the new file can't be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report the first disk error in one line. Wrong calls of the logger are reported by :mod:`logging`."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._report(error)
        else:
            super().handleError(record)

    def close(self) -> None:
        """Close the file. If the disk is full, unwritten entries are lost."""
        try:
            super().close()
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._has_reported:
            self._has_reported = True
            words = f"trawl: the log file {self.baseFilename} can't be written ({error.strerror}): entries are lost"
            with suppress(OSError):
                self._console.print(printable(words), style="red", soft_wrap=True)


def is_expected(error: BaseException) -> bool:
    """Return True if one line explains the error, because trawl raised it about input, an output or the network."""
    if isinstance(error, TrawlError):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, ValueError | TypeError) and bool(frames) and _module_of(frames[-1]).startswith(_REFUSING)


def one_line(error: BaseException) -> str:
    """Return an error as one line, with the innermost line of user code in its traceback, if any."""
    text = f"{error}".strip() or type(error).__name__
    own = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _module_of(frame).partition(".")[0] not in ("trawl", "trio", "outcome")
    ]
    return f"{text} ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else text


def _module_of(frame: object) -> str:
    return str(getattr(frame, "f_globals", {}).get("__name__", ""))


class Logs:
    """The command's log; a context manager that restores logging on exit."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._handler: logging.Handler | None = None
        self._repeats: Repeats = Repeats(self._log, _NAME.get)
        self._levels: dict[str, int] = {}
        self.is_debug: bool = False
        self.is_json: bool = False
        self._showwarning = warnings.showwarning

    def __enter__(self) -> Logs:
        self._levels = {name: logging.getLogger(name).level for name in ("", *_CHATTY)}
        self._showwarning = warnings.showwarning
        warnings.showwarning = self._show
        return self

    def __exit__(self, *exc: object) -> None:
        warnings.showwarning = self._showwarning
        self._drop()
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    def apply(
        self, settings: ObserveSettings, *, is_quiet: bool = False, jobs: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Apply new settings to the log. ``is_quiet`` is for standard error only. ``jobs`` are by the spider's name."""
        level = settings.log_level
        level = level if isinstance(level, int) else logging.getLevelNamesMapping()[level]
        self.is_debug = level <= logging.DEBUG
        self.is_json = settings.log_format == JSON and settings.log_file is None
        handler = self._made(settings, jobs)
        if is_quiet and settings.log_file is None:
            level = max(level, logging.WARNING)
        self._drop()
        self._handler = handler
        handler.setLevel(level)
        if not self.is_debug:
            handler.addFilter(self._repeats)
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(level)
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)

    async def watch(self, crawl: object = None) -> None:
        """Report the number of repeated entries each minute, until cancelled. A watcher of a crawl."""
        await self._repeats.watch()

    def _log(self, record: logging.LogRecord, name: str) -> None:
        if self._handler is not None:
            with named_in_log(name):
                self._handler.acquire()
                try:
                    self._handler.emit(record)
                finally:
                    self._handler.release()

    def tell_error(self, error: Exception, name: str = "") -> int:
        """Print an error that ended a crawl, after its lines in user code. Returns the exit status."""
        if not isinstance(error, TrawlError):
            # This is a bug, for example in the user's pipelines. The traceback is needed to find it.
            shown = error.__traceback__ if self.is_debug else user_traceback(error)
            logger.critical("the crawl failed", exc_info=(type(error), error, shown))
            return FAILED
        if self.is_json:
            with named_in_log(name):
                logger.critical("%s", advised(str(error)), exc_info=(type(error), error, user_traceback(error)))
            return USAGE if isinstance(error, UsageError) else FAILED
        text = ""
        if self.is_debug:
            text = "".join(traceback.format_exception(error))
        elif isinstance(error, SpiderLoadError | PartLoadError) and not isinstance(error, UsageError):
            frames = user_frames(error.__cause__ or error)
            if len(frames) > 1:  # if there is only one frame, the message names it
                text = "".join(traceback.format_list(frames))
        self._console.print(printable(text, keeps_lines=True), end="", soft_wrap=True)
        return print_error(error, self._console, name)

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Log a missing ``await``; leave other warnings to Python."""
        if category is not RuntimeWarning or "was never awaited" not in str(message):
            self._showwarning(printable(str(message), keeps_lines=True), category, filename, lineno, file, line)
            return
        place = f"{Path(filename).name}:{lineno}: " if is_user_file(filename) else ""
        logger.warning("%s%s: write `await` before the call", place, str(message).partition("\n")[0])

    def _made(self, settings: ObserveSettings, jobs: Mapping[str, str]) -> logging.Handler:
        if not settings.log_enabled:
            return logging.NullHandler()
        shape, time_shape = settings.log_format, settings.log_dateformat
        handler: logging.Handler
        if settings.log_file is not None:
            try:
                handler = _FileHandler(self._console, settings)
            except (OSError, LookupError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise UsageError(f"can't write the log file {settings.log_file!r}: {reason}") from error
        elif self._console.is_terminal and shape == ObserveSettings().log_format:
            handler = _TerminalHandler(
                console=self._console, show_path=False, markup=False, log_time_format=_TERMINAL_TIME
            )
            shape, time_shape = _TERMINAL_FORMAT, _TERMINAL_TIME
        else:
            handler = logging.StreamHandler(self._console.file)
        if shape == JSON:
            handler.setFormatter(
                JsonFormatter(_NAME.get, jobs, shows=lambda error: self.is_debug or not is_expected(error))
            )
            return handler
        try:
            formatter = SafeFormatter(shape, time_shape, shows_all=self.is_debug)
            formatter.format(logging.makeLogRecord({"name": "trawl", "msg": "", "levelname": "INFO"}))
            handler.setFormatter(formatter)
        except (ValueError, TypeError) as error:
            handler.close()
            raise UsageError(f"LOG_FORMAT is not a valid format: {error}") from error
        return handler

    def _drop(self) -> None:
        self._repeats.report(math.inf)
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
            self._handler = None


def run_guarded(console: Console, logged: Layer, act: Callable[[Logs], int], *, is_quiet: bool = False) -> int:
    """Set up the log with ``logged``, call ``act`` and print its error, if any. Returns the exit status."""
    with Logs(console) as logs, Signals():
        try:
            logs.apply(load(logged).of(ObserveSettings), is_quiet=is_quiet)
            return act(logs)
        except BaseException as error:  # noqa: ASYNC103 - around trio.run, where no task can be cancelled
            if _is_interruption(error):
                return INTERRUPTED  # noqa: ASYNC104
            if not isinstance(error, Exception):
                raise
            return logs.tell_error(error)  # noqa: ASYNC104


def _is_interruption(error: BaseException) -> bool:
    """Return True for a Ctrl-C that the crawl's handlers did not process, even inside Trio's exception groups."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)
