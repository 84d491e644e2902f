"""A receipt: the rate of requests to each scope, and whether robots.txt and the servers' waiting times were obeyed.

Theory of operation: :class:`Checker` receives each send and its end, in order of time. The events come from a running
crawl (:meth:`Checker.record`), from WARC files, or from the log of another program. It keeps figures of each scope, the
robots.txt of each origin, and the time until which each host asked to wait. A send that robots.txt disallows, or that
comes too early, is a violation. The checker does not use the throttle, so it does not repeat a mistake of the throttle.

Length: the values of a receipt, the checker, the readers of files and the writers of a page belong together.
"""

from __future__ import annotations

import gzip
import html
import logging
import math
import re
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from heapq import heappop, heappush
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from trawl.errors import UsageError
from trawl.http import Headers, Outcome, host_scope, join_url, normalize_url, origin_of
from trawl.observe import counted, duration_words, number_words, rate_words
from trawl.robots import MAX_PARSED_BYTES, RobotsFile, as_utf8
from trawl.testing.rates import MAX_PANELS, Panel, Rate, draw_rates
from trawl.testing.sends import REFUSALS
from trawl.testing.warc import Exchange, read_exchanges, reading_errors, warc_files

if TYPE_CHECKING:
    from trawl.scheduler import Attempt

__all__ = [
    "COLUMNS",
    "WINDOW",
    "Checker",
    "Receipt",
    "ScopeFigures",
    "Violation",
    "check_files",
    "check_receipt_name",
    "rule_words",
    "save_receipt",
    "scope_cells",
    "violation_words",
]

logger: logging.Logger = logging.getLogger("trawl.testing")

WINDOW = 60.0
"""Seconds of the window in which the most sends of a scope are counted."""

GRACE = 0.001
"""Tolerance in seconds, because times are rounded."""

MAX_VIOLATIONS = 100
"""Maximum number of violations with details. All violations are counted."""

MAX_ORIGINS = 10_000
"""Maximum number of robots.txt files and of waits in memory. The least recently used are dropped."""

MAX_REDIRECTING = 100
"""Maximum number of origins in memory that redirect to the same robots.txt."""

MAX_BARS = 200
"""Maximum number of windows in the plot of a scope. Their length doubles as the crawl gets longer."""

MAX_SCOPES = 100_000
"""Maximum number of scopes with their own figures. The figures of the longest idle scopes are combined."""

MAX_EPOCH = 253_402_300_800.0
"""End of the year 9999 in seconds since the epoch. A time in milliseconds is later."""

_RULES = ("Retry-After", "Crawl-delay", "robots.txt")


class ScopeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The sends of one scope."""

    # The scope's id. For another program's crawl, the host.
    scope: str
    sends: int
    refusals: int  # number of responses with status code 429 or 503
    seconds: float  # seconds from the first send to the last
    shortest_gap: float | None  # shortest time between two sends, in seconds; None for a single send
    most_in_flight: int  # maximum number of sends without a complete response
    most_in_window: int  # maximum number of sends in any `WINDOW`


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A send that breaks a rule."""

    rule: str  # `Retry-After`, `Crawl-delay` or `robots.txt`
    at: float  # time of the send, in seconds since the first send
    url: str
    early: float = 0.0  # number of seconds too early; 0.0 for robots.txt


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    source: str  # the crawl: the spider, or the files
    started_utc: datetime | None  # time of the first send; None if unknown
    seconds: float  # seconds from the first send to the last end
    sends: int
    # Number of sends without a scope (`dont_throttle`). The rules were checked for these sends too.
    exempt: int
    # The figures of each scope, the busiest first. If there are more than `MAX_SCOPES`, the last entry has the
    # combined figures of the others. A scope that was combined and then sent again counts as another scope.
    scopes: Sequence[ScopeFigures]
    # Number of sends that were checked, by rule. A rule applies after its robots.txt or response was read.
    checked: Mapping[str, int]
    violations: Mapping[str, int]  # number of violations, by rule
    examples: Sequence[Violation]  # the first violations
    unread: int  # number of sends to origins whose robots.txt was not read before the send
    errors: int  # number of sends and ends that were not checked, because of an error in the checker
    grace: float  # tolerance in seconds, because the times are rounded
    window: float = WINDOW  # seconds of the window of `most_in_window`
    version: int = 1  # version of this format

    @property
    def is_clean(self) -> bool:
        """True if no rule was broken."""
        return not any(self.violations.values())


class _Scope:
    """The figures of a scope so far."""

    __slots__ = ("first", "gap", "in_flight", "last", "most", "most_in_window", "refusals", "sends", "times")

    def __init__(self, now: float) -> None:
        self.sends = self.refusals = self.in_flight = self.most = self.most_in_window = 0
        self.first = self.last = now
        self.gap = math.inf
        self.times: deque[float] = deque()  # the sends of the last window

    def sent(self, now: float) -> None:
        if self.sends:
            self.gap = min(self.gap, now - self.last)
        self.sends += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        self.last = now
        self.times.append(now)
        while self.times[0] < now - WINDOW + GRACE:  # a window excludes the send at its start
            self.times.popleft()
        self.most_in_window = max(self.most_in_window, len(self.times))

    def add(self, other: _Scope) -> None:
        """Add the figures of a scope that is idle."""
        self.sends += other.sends
        self.refusals += other.refusals
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.gap, self.most = min(self.gap, other.gap), max(self.most, other.most)
        self.most_in_window = max(self.most_in_window, other.most_in_window)

    def figures(self, scope: str) -> ScopeFigures:
        return ScopeFigures(
            scope=scope,
            sends=self.sends,
            refusals=self.refusals,
            seconds=round(self.last - self.first, 6),
            shortest_gap=None if self.gap == math.inf else round(self.gap, 6),
            most_in_flight=self.most,
            most_in_window=self.most_in_window,
        )


class _Bars:
    """Counts of sends and refusals in windows that double when there are too many."""

    __slots__ = ("refused", "sent", "width")

    def __init__(self) -> None:
        self.width = 1.0
        self.sent: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()

    def add(self, at: float, *, is_refused: bool = False) -> None:
        while at >= MAX_BARS * self.width:
            self.width *= 2
            for counts in (self.sent, self.refused):
                halved: Counter[int] = Counter()
                for place, count in counts.items():
                    halved[place // 2] += count
                counts.clear()
                counts.update(halved)
        (self.refused if is_refused else self.sent)[int(at / self.width)] += 1

    def rates(self) -> list[Rate]:
        return [
            Rate(place * self.width, (place + 1) * self.width, count / self.width, self.refused[place] / self.width)
            for place, count in sorted(self.sent.items())
        ]


class _RobotsFiles:
    """The robots.txt files of origins, and the redirects to them."""

    def __init__(self, user_agent: str | None) -> None:
        self._user_agent = user_agent
        self._files: OrderedDict[str, RobotsFile] = OrderedDict()
        # By target: the origins that redirect to it.
        self._redirected: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def of(self, origin: str) -> RobotsFile | None:
        """Return the file of an origin; None if it was not read."""
        if origin in self._files:
            self._files.move_to_end(origin)
        return self._files.get(origin)

    def read(self, url: str, status: int, body: bytes, headers: Headers, user_agent: str) -> None:
        """Add a response, as :meth:`Checker.read_robots` says."""
        if status == 304:  # the known file is still valid (RFC 9110, section 15.4.5)
            return
        origins = dict.fromkeys([origin_of(url), *self._redirected.pop(url, ())])
        if 300 <= status < 400:
            with suppress(ValueError):  # the target of the redirect is malformed
                target = join_url(url, headers.get("Location") or "")
                if urlsplit(target).path == "/robots.txt":
                    known = self._redirected.get(target, OrderedDict())
                    for origin in origins:
                        _put(known, origin, None, MAX_REDIRECTING)
                    _put(self._redirected, target, known)
            return
        text = as_utf8(body[: MAX_PARSED_BYTES + 1], headers.get("Content-Type"))
        for origin in origins:
            _put(self._files, origin, RobotsFile.parse(status, text, self._user_agent or user_agent))


class Checker:
    """Checks sends and their ends, in order of time. Mutable.

    Times are rounded, so ``grace`` seconds are tolerated. The crawler's name in robots.txt is ``user_agent``; None for
    the ``User-Agent`` of the request for robots.txt.
    """

    def __init__(self, grace: float = GRACE, user_agent: str | None = None) -> None:
        self._grace = grace
        self._robots = _RobotsFiles(user_agent)
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()  # the longest idle scope is first
        self._rest = _Scope(math.inf)  # the figures of the scopes that were left out
        self._rest.last = -math.inf
        self._left_out = 0
        self._bars: dict[str, _Bars] = {}
        self._sending: set[Attempt] = set()
        self._recent: OrderedDict[str, _Scope] = OrderedDict()  # the scopes that may have sends in the last window
        self._until: OrderedDict[str, float] = OrderedDict()
        self._last: OrderedDict[str, float] = OrderedDict()
        self._checked: Counter[str] = Counter()
        self._violations: Counter[str] = Counter()
        self._examples: list[Violation] = []
        self._sends = self._exempt = self._unread = self._errors = 0
        self._first: float | None = None
        self._end = 0.0

    def sent(self, at: float, url: str, scopes: Iterable[str]) -> None:
        """Add a send to a URL in normal form, at a time in seconds. An exempt request is charged to no ``scopes``."""
        self._first = at if self._first is None else self._first
        self._sends += 1
        names = list(scopes)
        self._exempt += not names
        for name in names:
            scope = self._scopes.get(name)
            if scope is None:
                scope = self._scopes[name] = _Scope(at)
                if len(self._bars) < MAX_ORIGINS // 10:
                    self._bars[name] = _Bars()
            scope.sent(at)
            self._scopes.move_to_end(name)
            self._recent[name] = scope
            self._recent.move_to_end(name)
            if name in self._bars:
                self._bars[name].add(at - self._first)
        while self._recent and (idle := next(iter(self._recent.values()))).last < at - WINDOW:
            idle.times.clear()  # only its figures are kept
            self._recent.popitem(last=False)
        while len(self._scopes) > MAX_SCOPES and not (idle := next(iter(self._scopes.values()))).times:
            self._rest.add(idle)
            self._left_out += 1
            self._bars.pop(self._scopes.popitem(last=False)[0], None)
        self._check(at, url)
        _put(self._last, host_scope(url), at)
        self._end = max(self._end, at)

    def ended(
        self, at: float, url: str, scopes: Iterable[str], status: int | None = None, waits: float | None = None
    ) -> None:
        """Add the end of a send. Without a complete response, ``status`` is None; ``waits`` is its ``Retry-After``."""
        self._end = max(self._end, at)
        for name in scopes:
            if (scope := self._scopes.get(name)) is not None:
                scope.in_flight -= 1
                scope.refusals += status in REFUSALS
                if status in REFUSALS and name in self._bars:
                    self._bars[name].add(at - (self._first or 0.0), is_refused=True)
        if status in REFUSALS and waits:
            host = host_scope(url)
            _put(self._until, host, max(at + waits, self._until.get(host, -math.inf)))

    def read_robots(self, url: str, status: int, body: bytes, headers: Headers, user_agent: str) -> None:
        """Add a response to a request for robots.txt. A redirect is followed. A large file blocks for 0.1 s or more."""
        self._robots.read(url, status, body, headers, user_agent)

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        """Add a send or its end. This is a recorder of the engine, so an error is only logged and counted."""
        try:
            self._record(attempt, outcome, now)
        except Exception:
            if not self._errors:
                logger.exception("%r: not checked for the receipt, because of a bug in trawl", attempt.request)
            self._errors += 1

    def _record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        scopes = [] if attempt.is_exempt else [scope for scope, _ in attempt.scopes]
        if attempt not in self._sending:
            self._sending.add(attempt)
            self.sent(now, attempt.request.url, scopes)
            return
        self._sending.discard(attempt)
        if outcome is None:  # the request was cancelled
            self.ended(now, attempt.request.url, scopes)
            return
        response = outcome.response
        waits = None if response is None else _retry_after(response.headers, datetime.now(UTC))
        url = outcome.request.url
        self.ended(outcome.ended_at, url, scopes, None if response is None else response.status, waits)
        if response is not None and urlsplit(url).path == "/robots.txt":
            agent = outcome.request.headers.get("User-Agent") or ""
            self.read_robots(url, response.status, response.body, response.headers, agent)

    def receipt(self, source: str, started_utc: datetime | None = None) -> Receipt:
        """Return the receipt so far of the crawl ``source``, in words."""
        scopes = [scope.figures(name) for name, scope in self._scopes.items()]
        scopes.sort(key=lambda each: (-each.sends, each.scope))
        if self._left_out:
            scopes.append(self._rest.figures(counted(self._left_out, "other scope")))
        return Receipt(
            source=source,
            started_utc=started_utc,
            seconds=round(self._end - (self._first or 0.0), 6),
            sends=self._sends,
            exempt=self._exempt,
            scopes=scopes,
            checked={rule: self._checked[rule] for rule in _RULES},
            violations={rule: self._violations[rule] for rule in _RULES},
            examples=self._examples,
            unread=self._unread,
            errors=self._errors,
            grace=self._grace,
        )

    def plot(self, title: str) -> str:
        """Return a picture of the rates of the busiest scopes, as SVG text."""
        busiest = sorted(self._bars, key=lambda name: -self._scopes[name].sends)
        panels = [
            Panel(title=name, note=counted(self._scopes[name].sends, "send"), rates=self._bars[name].rates())
            for name in busiest[:MAX_PANELS]
        ]
        end = self._end - (self._first or 0.0)
        return draw_rates(panels, title=title, start=0.0, end=end, omitted=len(self._scopes) - len(panels))

    def _check(self, at: float, url: str) -> None:
        host, origin = host_scope(url), origin_of(url)
        until = self._until.get(host)
        if until is not None:
            self._judge("Retry-After", at, url, until - at)
        if urlsplit(url).path == "/robots.txt":
            return
        robots = self._robots.of(origin)
        if robots is None:
            self._unread += 1
            return
        self._judge("robots.txt", at, url, 0.0 if robots.allows(url) else math.inf)
        if robots.crawl_delay and host in self._last:
            self._judge("Crawl-delay", at, url, self._last[host] + robots.crawl_delay - at)

    def _judge(self, rule: str, at: float, url: str, early: float) -> None:
        self._checked[rule] += 1
        if early <= self._grace + 1e-6:  # a time since the epoch is exact to less than a microsecond
            return
        self._violations[rule] += 1
        if len(self._examples) < MAX_VIOLATIONS:
            early = 0.0 if early == math.inf else round(early, 6)
            self._examples.append(Violation(rule=rule, at=round(at - (self._first or 0.0), 6), url=url, early=early))


def _put(table: OrderedDict[str, Any], key: str, value: object, most: int | None = None) -> None:
    """Set a value, and drop the least recently used entry if there are more than ``most`` (or :data:`MAX_ORIGINS`)."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > (most or MAX_ORIGINS):
        table.popitem(last=False)


def _retry_after(headers: Headers, now_utc: datetime) -> float | None:
    """Return the seconds in ``Retry-After`` (RFC 9110, section 10.2.3). A date counts from the response's ``Date``."""
    text = (headers.get("Retry-After") or "").strip()
    if not text or (text.isascii() and text.isdigit()):
        return float(text[:9]) if text else None
    try:
        until, date = parsedate_to_datetime(text), headers.get("Date")
        since = now_utc if date is None else parsedate_to_datetime(date)
        return until.timestamp() - since.timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


# -- crawls of other programs

_LOG_LINE = re.compile(  # the combined log format of Apache and nginx, perhaps after the virtual host
    r'(?:(?P<host>\S+) )?\S+ \S+ \S+ \[(?P<at>[^\]]{1,64})\] "'
    r'[A-Z]+ (?P<target>(?:[^\s"\\]|\\\S)++)(?:[^"\\]|\\.)*+" (?P<status>\d{3}) '  # with escapes such as \" and \\
)
_LOG_TIME = re.compile(r"(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d)([.,]\d{1,9})?( [+-]\d{4})")

MAX_LINE = 1 << 20
"""Maximum number of characters in a line of a log."""

_Sent = tuple[float, float, str, Sequence[str], "Exchange | int | None"]
"""The times of a send and its end, the URL, the scopes, and the exchange, the status code or None."""


class _Line(msgspec.Struct):
    """A send in a log. Times are seconds since the epoch, or RFC 3339."""

    time: float | datetime
    url: str
    finished: float | datetime | None = None
    status: int | None = None


def check_files(paths: Sequence[str]) -> tuple[Checker, Receipt]:
    """Check the crawl in WARC files or logs, of trawl or of another program.

    A log has a line per request: in the combined log format of Apache and nginx, or a JSON object with ``time`` and
    ``url``, and perhaps ``finished`` and ``status``. It may be compressed (.gz). The time in a line of the combined
    format may have a fraction, and may be in seconds since the epoch or RFC 3339. A log has no headers and bodies, so
    only figures are checked.

    Raises:
        UsageError: If a file can't be read, has another format, or has no request.
    """
    sends, is_exact = list[_Sent](), True
    for path in paths:
        with reading_errors(path):
            found = list((_of_warc if path.endswith((".warc", ".warc.gz")) else _of_log)(Path(path)))
        if not found:
            raise UsageError(f"{path}: no request was found in it")
        is_exact = is_exact and any(at % 1 for at, *_ in found)
        sends += found
    sends.sort(key=itemgetter(0))
    checker = Checker(GRACE if is_exact else 1.0)
    _replay(checker, sends)
    return checker, checker.receipt(", ".join(paths), datetime.fromtimestamp(sends[0][0], UTC))


def _replay(checker: Checker, sends: Sequence[_Sent]) -> None:
    """Add sends and their ends in order of time. An end comes after its own send, and before other sends."""
    ends: list[tuple[float, int, int]] = []
    for number, (at, end, url, scopes, _) in enumerate(sends):
        while ends and ends[0][:2] < (at, 1):
            _end(checker, sends[heappop(ends)[2]])
        checker.sent(at, url, scopes)
        heappush(ends, (end, 0 if end > at else 2, number))
    for _, _, number in sorted(ends):
        _end(checker, sends[number])


def _end(checker: Checker, send: _Sent) -> None:
    _, end, url, scopes, result = send
    if not isinstance(result, Exchange):
        checker.ended(end, url, scopes, result)
        return
    answer = result.answer()
    if answer is None or answer.error is not None:
        checker.ended(end, url, scopes)
        return
    waits = _retry_after(answer.headers, datetime.fromtimestamp(end, UTC))
    checker.ended(end, url, scopes, answer.status, waits)
    if urlsplit(url).path == "/robots.txt":
        found = re.search(rb"(?im)^user-agent:[ \t]*(.*?)\r?$", result.request)
        agent = "" if found is None else found[1].decode("latin-1")
        checker.read_robots(url, answer.status, answer.body, answer.headers, agent)


def _of_warc(path: Path) -> Iterator[_Sent]:
    for each in read_exchanges(warc_files(path), has_bodies=False):
        if each.sent is not None:
            own = [scope for _, _, scope in each.charges] if each.is_timed else [host_scope(each.url)]
            yield each.sent, each.ended, each.url, own, each


def _of_log(path: Path) -> Iterator[_Sent]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(iter(lambda: file.readline(MAX_LINE + 1), ""), 1):
            if not text.strip() and len(text) <= MAX_LINE:
                continue
            try:
                if len(text) > MAX_LINE:
                    raise ValueError(f"it has more than {number_words(MAX_LINE)} characters")
                line, scope = _of_json(text) if text.lstrip().startswith("{") else _of_line(text, path.name)
                at = _epoch(line.time)
                end = at if line.finished is None else max(at, _epoch(line.finished))
            except (ValueError, msgspec.MsgspecError) as error:
                raise ValueError(
                    f"{path}, line {number}: {error}; a line is a request in the combined log format, or a JSON "
                    "object with time and url"
                ) from error
            yield at, end, line.url, (sys.intern(scope),), line.status


def _of_json(text: str) -> tuple[_Line, str]:
    line = msgspec.json.decode(text, type=_Line)
    line.url = normalize_url(line.url)
    return line, host_scope(line.url)


def _of_line(text: str, name: str) -> tuple[_Line, str]:
    found = _LOG_LINE.match(text)
    if found is None:
        raise ValueError("not a request")
    target, host = found["target"], found["host"]
    is_known = host is not None or "://" in target
    url = normalize_url(target if "://" in target else f"http://{host or 'log.invalid'}{target}")
    return _Line(_log_time(found["at"]), url, status=int(found["status"])), host_scope(url) if is_known else name


def _log_time(text: str) -> float | datetime:
    """Return the time of a line: ``$time_local``, perhaps with a fraction, ``$time_iso8601`` or ``$msec`` of nginx."""
    if found := _LOG_TIME.fullmatch(text):
        return datetime.strptime(found[1] + found[3], "%d/%b/%Y:%H:%M:%S %z").timestamp() + float(
            f"0.{(found[2] or '.0')[1:]}"
        )
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else datetime.fromisoformat(text)


def _epoch(at: float | datetime) -> float:
    if isinstance(at, datetime) and at.tzinfo is None:
        raise ValueError(f"the time {at.isoformat()} has no offset from UTC")
    seconds = at.timestamp() if isinstance(at, datetime) else at
    if not 0.0 <= seconds < MAX_EPOCH:
        raise ValueError(f"the time {at} is not in seconds since 1970")
    return seconds


# -- files


def check_receipt_name(path: str, option: str = "--receipt") -> None:
    """Check the file name of a receipt, given with ``option``, before the work starts. Raises UsageError."""
    if Path(path).suffix not in (".json", ".html"):
        raise UsageError(f"{option} {path}: the name must end in .json or .html")
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {Path(path).parent}; make it first")


def save_receipt(path: str, receipt: Receipt, checker: Checker) -> None:
    """Write a receipt as JSON, or as a page with plots of the rates. Raises UsageError if the file can't be written."""
    if path.endswith(".json"):
        content = msgspec.json.format(msgspec.json.encode(receipt), indent=2)
    else:
        content = _page(receipt, checker.plot("Requests per second")).encode()
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from error


def rule_words(receipt: Receipt) -> list[str]:
    """Return a sentence for each rule."""
    lines = []
    for rule in _RULES:
        checked, broken = receipt.checked[rule], receipt.violations[rule]
        if not checked:
            lines.append(f"{rule}: nothing to check")
        else:
            result = f"{counted(broken, 'violation')} in" if broken else "obeyed by"
            lines.append(f"{rule}: {result} {counted(checked, 'send')}")
    if receipt.unread:
        lines.append(f"robots.txt was not read before {counted(receipt.unread, 'send')}")
    if receipt.errors:
        lines.append(f"{counted(receipt.errors, 'event')} not checked, because of an error in trawl: see the log")
    return lines


def violation_words(violation: Violation) -> str:
    """Return a sentence about a violation."""
    early = f"{violation.early:.3f} s early" if violation.early else "not allowed"
    return f"{violation.rule} at {violation.at:.3f} s: {violation.url} was {early}"


def scope_cells(figures: ScopeFigures) -> tuple[str, ...]:
    """Return the cells of a scope's row, as in :data:`COLUMNS`."""
    gap = "" if figures.shortest_gap is None else f"{figures.shortest_gap:.3f} s"
    rate = (figures.sends - 1) / figures.seconds if figures.seconds else 0.0
    numbers = (figures.sends, figures.refusals, figures.most_in_flight, figures.most_in_window)
    sends, refusals, in_flight, in_window = map(number_words, numbers)
    return figures.scope, sends, rate_words(rate), refusals, gap, in_flight, in_window


COLUMNS = ("scope", "sends", "rate", "refused", "shortest gap", "in flight", f"in {WINDOW:g} s")
"""The columns of the table of scopes."""

MAX_ROWS = 1_000
"""Maximum number of scopes in a page."""

_STYLE = """:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.1rem .8rem;text-align:right}
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere}svg{max-width:100%;height:auto}"""


def _page(receipt: Receipt, picture: str) -> str:
    """Return a receipt as a page without scripts. All text is escaped."""
    when = "" if receipt.started_utc is None else f", from {receipt.started_utc:%Y-%m-%d %H:%M:%S} UTC"
    summary = f"{counted(receipt.sends, 'send')} in {duration_words(receipt.seconds)}{when}"
    if receipt.exempt:
        summary += f"; {counted(receipt.exempt, 'send')} without a scope"
    rows = [scope_cells(each) for each in receipt.scopes[:MAX_ROWS]]
    more = len(receipt.scopes) - len(rows)
    lines = [*rule_words(receipt), *map(violation_words, receipt.examples)]
    parts = [
        f"<h1>Receipt: {html.escape(receipt.source)}</h1><p>{html.escape(summary)}</p>",
        "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>",
        _table(COLUMNS, rows),
        f"<p>and {more:,} more</p>" if more else "",
        f"<p>Times may be off by {receipt.grace:g} s.</p>",
        picture,
    ]
    title = html.escape(f"Receipt: {receipt.source}")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
