"""Repeated log entries, which are counted, and entries as JSON.

The first entry of a kind is logged in full. Further entries of that kind within a minute are only counted, and then one
line reports their number, with the last entry as an example. Entries of one kind have the same message text apart from
its arguments, and the same exception and line if they have a traceback.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import time
from types import TracebackType

import attrs
import trio

from trawl.observe import printable
from trawl.passwords import without_passwords

__all__ = ["JSON_START", "WINDOW", "JsonFormatter", "Repeats"]

WINDOW = 60.0
"""Seconds within which entries of one kind are counted."""

_PER_REQUEST = frozenset(
    f"trawl.{name}" for name in ("admission", "engine", "items", "middleware", "robots", "throttling")
)
"""Loggers with entries below WARNING that may come once per request, host or item."""


@attrs.define
class _Kind:
    """Entries of one kind, until a wall time. ``count`` of them were not logged."""

    until: float
    count: int = 0
    last: logging.LogRecord | None = None


class Repeats(logging.Filter):
    """Passes the first entry of a kind and spider, and counts the further entries. ``log`` logs their number."""

    def __init__(self, log: Callable[[logging.LogRecord, str], None], name_of: Callable[[], str]) -> None:
        super().__init__()
        self._log = log
        self._name_of = name_of
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._next_end = 0.0
        self._lock = threading.RLock()  # threads of feeds and jobs log too

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the entry is logged."""
        with self._lock:
            if record.created >= self._next_end:
                self.report(record.created)
            if not _can_repeat(record):
                return True
            key = (self._name_of(), *_kind_of(record))
            kind = self._kinds.get(key)
            if kind is None:
                self._kinds[key] = _Kind(record.created + WINDOW)
                self._next_end = min(kind.until for kind in self._kinds.values())
                return True
            kind.count += 1
            kind.last = record
            return False

    def report(self, now: float) -> None:
        """Report the kinds whose window has ended at ``now``, a wall time; ``inf`` reports all."""
        with self._lock:
            ended = {key: kind for key, kind in self._kinds.items() if kind.until <= now}
            for key in ended:
                del self._kinds[key]
            self._next_end = min((kind.until for kind in self._kinds.values()), default=0.0)
        for key, kind in ended.items():
            if kind.last is not None:
                self._log(_summary(kind.last, kind.count), str(key[0]))

    async def watch(self) -> None:
        """Report each window soon after its end, until cancelled."""
        while True:
            await trio.sleep(WINDOW)
            self.report(time())


def _can_repeat(record: logging.LogRecord) -> bool:
    if record.name != "trawl" and not record.name.startswith("trawl."):
        return False  # entries of user code are never left out
    return record.levelno >= logging.WARNING or record.name in _PER_REQUEST


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    error = record.exc_info[1] if record.exc_info else None
    text: object = record.msg
    if text == "%s":  # the caller has formatted the message
        argument = record.args[0] if isinstance(record.args, tuple) and record.args else record.args
        text = type(argument) if isinstance(argument, BaseException) else record.getMessage()
    return (record.name, record.levelno, text, type(error), None if error is None else _line_of(error.__traceback__))


def _line_of(found: TracebackType | None) -> tuple[str, int] | None:
    frames = list(traceback.walk_tb(found))
    return (frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else None


def _summary(last: logging.LogRecord, count: int) -> logging.LogRecord:
    """Return an entry that reports ``count`` entries and contains the last entry."""
    record = copy.copy(last)
    error = record.exc_info[1] if record.exc_info else None
    text = record.getMessage() if error is None else f"{record.getMessage()}: {described(error)}"
    record.exc_info = None
    others = "" if count == 1 else f" (and {count - 1:,} more like this within {WINDOW:.0f} s)"
    record.msg, record.args = f"{text}{others}", None
    return record


def described(error: BaseException) -> str:
    """Return an error as one line: its type and its text."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


JSON_START = b'{"time": '
"""How each line of a log as JSON starts."""


class JsonFormatter(logging.Formatter):
    """Formats an entry as one line of JSON; docs/reference/log.md lists the fields. ``shows`` selects tracebacks."""

    def __init__(
        self, name_of: Callable[[], str], jobs: Mapping[str, str], *, shows: Callable[[BaseException], bool]
    ) -> None:
        super().__init__()
        self._name_of = name_of
        self._jobs = jobs
        self._shows = shows

    def format(self, record: logging.LogRecord) -> str:
        """Format an entry. Fields without a value are left out."""
        name = self._name_of()
        arguments = record.args if isinstance(record.args, tuple) else ()
        error = record.exc_info[1] if record.exc_info else None
        cause = error or next((each for each in arguments if isinstance(each, BaseException)), None)
        about = arguments[0] if arguments and str(record.msg).startswith("%s: ") else ""
        urls = (getattr(record, "url", ""), about if record.name == "trawl.robots" else "", *map(_url_of, arguments))
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": printable(record.getMessage(), keeps_lines=True),
            "spider": name,
            "job": self._jobs.get(name, ""),
            "process": os.getpid(),
            "scope": getattr(record, "scope", about if record.name == "trawl.throttling" else ""),
            "url": without_passwords(next(filter(None, urls), "")),
            "error": "" if cause is None else printable(described(cause), keeps_lines=True),
            "traceback": "",
        }
        if record.exc_info and error is not None and self._shows(error):
            fields["traceback"] = printable("".join(traceback.format_exception(*record.exc_info)), keeps_lines=True)
        return json.dumps({name: value for name, value in fields.items() if value != ""}, ensure_ascii=False)


def _url_of(argument: object) -> str:
    url = getattr(argument, "url", None)
    return url if isinstance(url, str) else ""
