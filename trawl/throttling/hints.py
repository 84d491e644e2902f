"""Server hints: the wait that response headers ask for, by one parser for each format (D01-D06, D14).

Every parser turns header texts into *windows* (seconds from now until the server's window resets, and what is left of
it, if told) and returns an empty list for anything it does not understand: garbage counts as absent and never switches
our own backoff off (R1). Whole seconds only, as RFC 9110, 10.2.3 and the RateLimit drafts have them; zero and the past
ask for nothing. Of several headers, the longest wait wins (D04).

Wall time is needed for dates and epochs only. They were written by the server's clock, so they are counted from the
answer's own ``Date``: a server whose clock is an hour off means the same seconds as any other. Without one, our own
wall time counts, which comes in as a value and is used once, here (R7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from trawl.http import Headers

__all__ = [
    "HEADER_FORMATS",
    "WINDOW_HEADERS",
    "HeaderFormat",
    "Hint",
    "ServerWindow",
    "hint_of",
    "spent_hint_of",
    "told_by",
]


@attrs.frozen
class Hint:
    """A server's wish.

    Attributes:
        delay: Seconds from now until it wants to be asked again; above 0.
        header: The header that says so, with its value.
    """

    delay: float
    header: str


@attrs.frozen
class ServerWindow:
    """One window of a server's limit.

    Attributes:
        reset: Seconds from now until it resets.
        remaining: What is left of it; None where that is not told.
        policy: The name of its policy; "" where it has none.
        is_bound: True if ``reset`` is the length of the policy's window, because the server names no reset: it is not
            later than that.
    """

    reset: float
    remaining: int | None = None
    policy: str = ""
    is_bound: bool = False

    def interval(self, others: int) -> float:
        """Return the seconds between requests that use up, by the reset, what remains without ``others``.

        If nothing remains it is the seconds until the reset and one more, because servers round them up or down. The
        length of a policy's window is not rounded.
        """
        left = (self.remaining or 0) - others
        return self.reset / left if left > 0 else self.reset + (0.0 if self.is_bound else 1.0)


Parse = Callable[[str, str, datetime], Sequence[ServerWindow]]
"""The text of the header that names the reset, the text of its second header, and wall time in UTC."""


@attrs.frozen
class HeaderFormat:
    """One way in which servers tell when to come back.

    Attributes:
        header: The header that names the reset.
        second: The header that names what remains, or the policies; "" if the format has only one header.
        parse: Reads the two.
    """

    header: str
    second: str
    parse: Parse


_WHOLE = re.compile(r"[0-9]{1,15}")
_DATE = re.compile(  # RFC 9110, 5.6.7: IMF-fixdate, RFC 850, asctime; the zone may be missing
    r"[A-Za-z]{3,9},?\s+"
    r"(?:\d{1,2}[ -][A-Za-z]{3}[ -]\d{2,4}\s+\d{2}:\d{2}:\d{2}|[A-Za-z]{3}\s+\d{1,2}\s+\d{2}:\d{2}:\d{2}\s+\d{4})"
    r"(?:\s+[A-Za-z+\-0-9]{1,5})?"
)
_ITEM = re.compile(  # RFC 9651: a list member (string or token), and its parameters
    r'\s*(?P<name>"(?:[^"\\]|\\.)*"|[A-Za-z*][A-Za-z0-9_:/.*\-]*)(?P<parameters>(?:\s*;\s*[a-z*][a-z0-9_.*\-]*(?:="(?:[^"\\]|\\.)*"|=[^,;"]*)?)*)\s*'
)
_PARAMETER = re.compile(r';\s*(?P<name>[a-z*][a-z0-9_.*\-]*)=\s*(?P<value>"(?:[^"\\]|\\.)*"|[^,;\s"]*)')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ABOVE = 10**8
_BELIEVABLE = 366 * 86_400.0  # seconds


def hint_of(headers: Headers, now_utc: datetime) -> Hint | None:
    """Return the longest wait that ``headers`` ask for; None if they ask for none.

    ``Retry-After`` and windows with nothing remaining count first. Windows that have something remaining count only if
    there are no others: they do not explain the refusal.

    Args:
        headers: Of the response that said "slow down".
        now_utc: Wall time of that response, by our clock.
    """
    return _hint(headers, now_utc, needs_count=False)


def spent_hint_of(headers: Headers, now_utc: datetime) -> Hint | None:
    """Return the wait that ``headers`` ask for by ``Retry-After``, or by a window with nothing remaining; else None.

    A refusal with one of them is a trigger, whatever its status code: GitHub says so of its 403, and RFC 9110, 10.2.3
    defines ``Retry-After`` for any response.

    Args:
        headers: Of the refusal.
        now_utc: Wall time of that response, by our clock.
    """
    return _hint(headers, now_utc, needs_count=True)


def _hint(headers: Headers, now_utc: datetime, *, needs_count: bool) -> Hint | None:
    """Return the longest wait of the spent windows, else the longest of the others.

    Args:
        headers: Of the response.
        now_utc: Its wall time, by our clock.
        needs_count: Count only ``Retry-After``, and windows that say that nothing remains.
    """
    now_utc = _date_of(headers) or now_utc
    best: Hint | None = None
    best_is_spent = False
    for format in HEADER_FORMATS:
        for text, second in _texts(headers, format):
            windows = format.parse(text, second, now_utc)
            if needs_count and format.header != "Retry-After":
                windows = [window for window in windows if window.remaining == 0]
            delay = _chosen(windows)
            is_spent = any(not window.remaining for window in windows)
            if delay > 0 and (best is None or (is_spent, delay) > (best_is_spent, best.delay)):
                best, best_is_spent = Hint(delay, f"{format.header}: {_shown(text)}"), is_spent
    return None if needs_count and not best_is_spent else best


def told_by(headers: Headers, now_utc: datetime, others: int) -> tuple[ServerWindow, str] | None:
    """Return the window of requests that a good answer tells, with the header that does; None where none does.

    Only what tells both what remains and until when counts; of several, the window that asks for the longest interval.

    Args:
        headers: Of the answer.
        now_utc: Wall time of that answer, by our clock.
        others: Further requests on their way, which the server may not have counted yet.
    """
    now_utc = _date_of(headers) or now_utc
    best: tuple[ServerWindow, str] | None = None
    longest = -1.0
    uncounted = _other_units(", ".join(headers.getlist("RateLimit-Policy")))
    for format in HEADER_FORMATS[1:]:
        parse = _vendor if format.parse is _fields else format.parse  # GitLab's RateLimit-Reset is a point in time
        for text, second in _texts(headers, format):
            for window in parse(text, second, now_utc):
                left = window.remaining
                if (
                    left is None
                    or (window.is_bound and left)
                    or not 0.0 <= window.reset <= _BELIEVABLE
                    or window.policy in uncounted
                ):
                    continue
                interval = window.interval(others)
                if interval > longest:
                    longest = interval
                    has_count = format.second.endswith("Remaining")
                    said = f"{format.second}: {left}, {format.header}" if has_count else format.header
                    best = window, f"{said}: {_shown(text)}"
    return best


def _other_units(policies: str) -> set[str]:
    """Return the names of the policies that count something other than requests (draft 10, ``qu``)."""
    return {
        item["name"]
        for item in _ITEM.finditer(policies)
        if _parameters(item).get("qu", "requests").strip('"') != "requests"
    }


def _texts(headers: Headers, format: HeaderFormat) -> Iterable[tuple[str, str]]:
    lines = headers.getlist(format.header)
    if not lines:
        return ()
    if format.header == "Retry-After":  # a date has a comma: lines of it are no list
        return [(line.strip(), "") for line in lines]
    second = ", ".join(headers.getlist(format.second)) if format.second else ""
    return [(", ".join(lines), second)]


def _chosen(windows: Sequence[ServerWindow]) -> float:
    """Of several windows, the longest with nothing remaining; where all have some, the shortest (D14). 0.0 for none."""
    spent = [window.reset for window in windows if not window.remaining]
    if spent:
        return max(spent)
    return min((window.reset for window in windows), default=0.0)


def _whole(text: str) -> int | None:
    text = text.strip(" \t")
    return int(text) if _WHOLE.fullmatch(text) else None


def _count(text: str) -> int | None:
    """Parse what remains; Reddit tells a decimal fraction."""
    whole, _, fraction = text.strip(" \t").partition(".")
    return _whole(whole) if not fraction or _WHOLE.fullmatch(fraction) else None


def _retry_after(text: str, _: str, now_utc: datetime) -> Sequence[ServerWindow]:
    """RFC 9110, 10.2.3: whole seconds or a date; a date without a zone is UTC."""
    if (seconds := _whole(text)) is not None:
        return [ServerWindow(seconds)]
    moment = _moment(text)
    return [] if moment is None else [ServerWindow((moment - now_utc).total_seconds())]


def _date_of(headers: Headers) -> datetime | None:
    """Return the instant of the answer by the server's clock (RFC 9110, 6.6.1); None: it does not say."""
    lines = headers.getlist("Date")
    return _moment(lines[0].strip()) if len(lines) == 1 else None


def _moment(text: str) -> datetime | None:
    """Parse an HTTP date. Returns an instant in UTC, or None where it is not one."""
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _lists(text: str, remaining: str) -> Iterable[tuple[int, int | None]]:
    """The resets of a list of windows, each with what remains of it."""
    lefts = [_count(part.partition(";")[0]) for part in remaining.split(",")]
    for index, part in enumerate(text.split(",")):
        reset = _whole(part.partition(";")[0])
        if reset is not None:
            yield reset, lefts[index] if index < len(lefts) else None


def _fields(text: str, remaining: str, _: datetime) -> Sequence[ServerWindow]:
    """RateLimit drafts 00-06: ``RateLimit-Reset`` in seconds from now."""
    return [ServerWindow(reset, left) for reset, left in _lists(text, remaining)]


def _vendor(text: str, remaining: str, now_utc: datetime) -> Sequence[ServerWindow]:
    """``X-RateLimit-Reset``: epoch seconds when above 10^8, else seconds from now."""
    passed = (now_utc - _EPOCH) // timedelta(microseconds=1)  # exact, as a float of it is not
    return [
        ServerWindow((reset * 1_000_000 - passed) / 1_000_000 if reset > _EPOCH_ABOVE else reset, left)
        for reset, left in _lists(text, remaining)
    ]


def _dictionary(text: str, _: str, __: datetime) -> Sequence[ServerWindow]:
    """RateLimit draft 07: ``limit=100, remaining=50, reset=30``."""
    members: dict[str, int | None] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            return []
        members[name.strip().lower()] = _whole(value.partition(";")[0])
    reset = members.get("reset")
    return [] if reset is None else [ServerWindow(reset, members.get("remaining"))]


def _structured(text: str, policies: str, __: datetime) -> Sequence[ServerWindow]:
    """RateLimit drafts 08-11: ``"burst";r=50;t=30, "day";r=900;t=3000`` (structured fields, RFC 9651).

    ``t`` may be missing. Then the window ``w`` of the policy of the same name bounds the reset.
    """
    windows = []
    position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        if item is None or (item.end() < len(text) and text[item.end()] != ","):
            return []
        position = item.end() + 1
        name, named = item["name"], _parameters(item)
        reset, remaining = _whole(named.get("t", "")), _whole(named.get("r", ""))
        if reset is not None:
            windows.append(ServerWindow(reset, remaining, name))
        elif "t" not in named and remaining is not None:
            bound = _policy_windows(policies).get(name.strip('"'))
            if bound is not None:
                windows.append(ServerWindow(bound, remaining, name, is_bound=True))
    return windows


def _policy_windows(policies: str) -> dict[str, int]:
    """Return the lengths of the windows of ``RateLimit-Policy`` by the names of the policies, in seconds."""
    found = {}
    for item in _ITEM.finditer(policies):
        length = _whole(_parameters(item).get("w", ""))
        if length is not None:
            found[item["name"].strip('"')] = length
    return found


def _parameters(item: re.Match[str]) -> dict[str, str]:
    return {match["name"]: match["value"] for match in _PARAMETER.finditer(item["parameters"])}


def _shown(text: str) -> str:
    limit = 80
    return text if len(text) <= limit else text[: limit - 1] + "…"


HEADER_FORMATS: tuple[HeaderFormat, ...] = (
    HeaderFormat("Retry-After", "", _retry_after),
    HeaderFormat("RateLimit-Reset", "RateLimit-Remaining", _fields),
    HeaderFormat("RateLimit", "", _dictionary),
    HeaderFormat("RateLimit", "RateLimit-Policy", _structured),
    HeaderFormat("X-RateLimit-Reset", "X-RateLimit-Remaining", _vendor),
    HeaderFormat("X-Rate-Limit-Reset", "X-Rate-Limit-Remaining", _vendor),
)
"""Every dialect that is read."""

WINDOW_HEADERS: frozenset[str] = frozenset([format.header.lower() for format in HEADER_FORMATS[1:]])
"""The headers that name the reset of a window, in lower case."""
