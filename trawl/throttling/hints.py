"""Server hints: the wait that response headers request, with one parser per format.

Each parser turns header values into *windows*. It returns an empty list for a value that it does not understand, so a
malformed header counts as missing and never turns our own backoff off. Only whole seconds are read, as in RFC 9110,
section 10.2.3, and in the RateLimit drafts. Zero and times in the past request no wait. If there are several headers,
the longest wait applies. Dates and epochs are counted from the ``Date`` of the same response, because the server's
clock wrote them; without a ``Date``, from our own wall time.
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
    "BELIEVABLE",
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
    """A wait that a server requests."""

    delay: float  # seconds from now until the server accepts the next request; above 0
    header: str  # the header that requests the wait, with its value


@attrs.frozen
class ServerWindow:
    """One window of a server's limit."""

    reset: float  # seconds from now until it resets
    remaining: int | None = None  # the remaining amount; None if unknown
    policy: str | None = None  # name of its policy
    # True if the server names no reset, so that `reset` is the length of the policy's window: an upper bound.
    is_bound: bool = False

    def interval(self, others: int) -> float:
        """Return the seconds between requests that spread the remaining amount, without ``others``, until the reset.

        If nothing remains, the interval ends one second after the reset, because servers round the seconds up or down.
        The length of a policy's window is not rounded.
        """
        left = (self.remaining or 0) - others
        return self.reset / left if left > 0 else self.reset + (0.0 if self.is_bound else 1.0)


Parse = Callable[[str, str, datetime], Sequence[ServerWindow]]
"""Function of the first header's value (it names the reset), the second header's value, and wall time in UTC."""


@attrs.frozen
class HeaderFormat:
    """One format in which servers name their limits."""

    header: str  # the header that names the reset
    second: str  # the header with the remaining amount, or with the policies; "" if the format has only one header
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
BELIEVABLE = 366 * 86_400.0  # seconds; a longer wait is a mistake


def hint_of(headers: Headers, now_utc: datetime) -> Hint | None:
    """Return the longest wait that ``headers`` request; None if they request none.

    ``Retry-After`` and windows with nothing remaining come first. Windows with a remaining amount count only if there
    are no others, because they do not explain the refusal. ``now_utc`` is the wall time by our clock.
    """
    return _hint(headers, now_utc, needs_count=False)


def spent_hint_of(headers: Headers, now_utc: datetime) -> Hint | None:
    """Return the wait requested by ``Retry-After``, or by a window with nothing remaining; None without either.

    A refusal with one of them is a trigger, whatever its status code: GitHub's documentation says so for its 403, and
    RFC 9110, section 10.2.3, defines ``Retry-After`` for any response.
    """
    return _hint(headers, now_utc, needs_count=True)


def _hint(headers: Headers, now_utc: datetime, *, needs_count: bool) -> Hint | None:
    """Return the longest wait of the exhausted windows, else of the others. ``needs_count``: only of exhausted ones."""
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
    """Return the window that a good response announces, with its header; None if it announces none.

    A window counts only if its remaining amount and its reset are both given. The one with the longest interval between
    requests applies. ``others`` further requests are in flight, which the server may not have counted yet.
    """
    now_utc = _date_of(headers) or now_utc
    best: tuple[ServerWindow, str] | None = None
    longest = -1.0
    policies = _policies(", ".join(headers.getlist("RateLimit-Policy")))
    # Draft 10, `qu`: these count something other than requests.
    uncounted = {name for name, named in policies.items() if named.get("qu", "requests").strip('"') != "requests"}
    for format in HEADER_FORMATS[1:]:
        parse = _vendor if format.parse is _fields else format.parse  # GitLab's RateLimit-Reset is a point in time
        for text, second in _texts(headers, format):
            for window in parse(text, second, now_utc):
                left = window.remaining
                if (
                    left is None
                    or (window.is_bound and left)
                    or not 0.0 <= window.reset <= BELIEVABLE
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


def _texts(headers: Headers, format: HeaderFormat) -> Iterable[tuple[str, str]]:
    lines = headers.getlist(format.header)
    if not lines:
        return ()
    if format.header == "Retry-After":  # a date has a comma, so several lines are not one list
        return [(line.strip(), "") for line in lines]
    second = ", ".join(headers.getlist(format.second)) if format.second else ""
    return [(", ".join(lines), second)]


def _chosen(windows: Sequence[ServerWindow]) -> float:
    """Return the longest reset of windows with nothing remaining, else the shortest of all; 0.0 without windows."""
    spent = [window.reset for window in windows if not window.remaining]
    if spent:
        return max(spent)
    return min((window.reset for window in windows), default=0.0)


def _whole(text: str) -> int | None:
    text = text.strip(" \t")
    return int(text) if _WHOLE.fullmatch(text) else None


def _count(text: str) -> int | None:
    """Parse a remaining amount; Reddit sends a decimal fraction."""
    whole, _, fraction = text.strip(" \t").partition(".")
    return _whole(whole) if not fraction or _WHOLE.fullmatch(fraction) else None


def _retry_after(text: str, _: str, now_utc: datetime) -> Sequence[ServerWindow]:
    """Parse whole seconds or a date (RFC 9110, section 10.2.3); a date without a zone is in UTC."""
    if (seconds := _whole(text)) is not None:
        return [ServerWindow(seconds)]
    moment = _moment(text)
    return [] if moment is None else [ServerWindow((moment - now_utc).total_seconds())]


def _date_of(headers: Headers) -> datetime | None:
    """Return the time of the response by the server's clock (RFC 9110, section 6.6.1); None if it is missing."""
    lines = headers.getlist("Date")
    return _moment(lines[0].strip()) if len(lines) == 1 else None


def _moment(text: str) -> datetime | None:
    """Parse an HTTP date. Returns a time in UTC; None if the string is not a date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _lists(text: str, remaining: str) -> Iterable[tuple[int, int | None]]:
    """Yield the resets of a list of windows, each with its remaining amount."""
    lefts = [_count(part.partition(";")[0]) for part in remaining.split(",")]
    for index, part in enumerate(text.split(",")):
        reset = _whole(part.partition(";")[0])
        if reset is not None:
            yield reset, lefts[index] if index < len(lefts) else None


def _fields(text: str, remaining: str, _: datetime) -> Sequence[ServerWindow]:
    """Parse RateLimit drafts 00-06: ``RateLimit-Reset`` in seconds from now."""
    return [ServerWindow(reset, left) for reset, left in _lists(text, remaining)]


def _vendor(text: str, remaining: str, now_utc: datetime) -> Sequence[ServerWindow]:
    """Parse ``X-RateLimit-Reset``: epoch seconds if above 10^8, else seconds from now."""
    passed = (now_utc - _EPOCH) // timedelta(microseconds=1)  # exact, unlike a float
    return [
        ServerWindow((reset * 1_000_000 - passed) / 1_000_000 if reset > _EPOCH_ABOVE else reset, left)
        for reset, left in _lists(text, remaining)
    ]


def _dictionary(text: str, _: str, __: datetime) -> Sequence[ServerWindow]:
    """Parse RateLimit draft 07: ``limit=100, remaining=50, reset=30``."""
    members: dict[str, int | None] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            return []
        members[name.strip().lower()] = _whole(value.partition(";")[0])
    reset = members.get("reset")
    return [] if reset is None else [ServerWindow(reset, members.get("remaining"))]


def _structured(text: str, policies: str, __: datetime) -> Sequence[ServerWindow]:
    """Parse RateLimit drafts 08-11: ``"burst";r=50;t=30, "day";r=900;t=3000`` (structured fields, RFC 9651).

    If ``t`` is missing, the window ``w`` of the policy with the same name bounds the reset.
    """
    windows = []
    position = 0
    while position < len(text):
        item = _ITEM.match(text, position)
        if item is None or (item.end() < len(text) and text[item.end()] != ","):
            return []
        position = item.end() + 1
        name, named = item["name"].strip('"'), _parameters(item)
        reset, remaining = _whole(named.get("t", "")), _whole(named.get("r", ""))
        if reset is not None:
            windows.append(ServerWindow(reset, remaining, name))
        elif "t" not in named and remaining is not None:
            bound = _whole(_policies(policies).get(name, {}).get("w", ""))
            if bound is not None:
                windows.append(ServerWindow(bound, remaining, name, is_bound=True))
    return windows


def _policies(text: str) -> dict[str, dict[str, str]]:
    """Return the parameters of the policies in ``RateLimit-Policy``, by name."""
    return {item["name"].strip('"'): _parameters(item) for item in _ITEM.finditer(text)}


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
"""All formats that are read."""

WINDOW_HEADERS: frozenset[str] = frozenset([format.header.lower() for format in HEADER_FORMATS[1:]])
"""The headers that name the reset of a window, in lower case."""
