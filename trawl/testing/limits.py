"""The rate limit of a simulated server, as a token bucket, and the headers that announce it.

Theory of operation: a bucket holds at most ``burst`` tokens and is full when the run starts. ``rate`` tokens are added
each second. A request takes one token. If there is no whole token, the request is refused and takes nothing. Each run
creates its own buckets. The headers use the dialects that throttling parses. Times are in seconds, rounded up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import groupby
from operator import itemgetter

import attrs
from attrs import validators

from trawl.http import Headers

__all__ = ["DIALECTS", "LimitState", "RateLimit", "TokenBucket", "announced_limit", "fit_limit"]


@attrs.frozen
class LimitState:
    """The state of a limit, for the headers that announce it."""

    limit: int  # number of requests in a full bucket
    remaining: int  # number of requests that are allowed now
    window: float  # seconds in which an empty bucket fills; `inf` if it never fills
    reset: float  # seconds until the next request is allowed if `remaining` is 0, otherwise until the bucket is full
    now_utc: datetime  # the server's time


def _whole(seconds: float) -> int:
    """Round up to whole seconds, at most a year."""
    return math.ceil(min(seconds, 31_536_000.0) - 1e-9)


def _draft_03(state: LimitState) -> dict[str, str]:
    return {
        "RateLimit-Limit": f"{state.limit}, {state.limit};w={_whole(state.window)}",
        "RateLimit-Remaining": str(state.remaining),
        "RateLimit-Reset": str(_whole(state.reset)),
    }


def _draft_07(state: LimitState) -> dict[str, str]:
    return {
        "RateLimit": f"limit={state.limit}, remaining={state.remaining}, reset={_whole(state.reset)}",
        "RateLimit-Policy": f"{state.limit};w={_whole(state.window)}",
    }


def _draft_10(state: LimitState) -> dict[str, str]:
    return {
        "RateLimit-Policy": f'"default";q={state.limit};w={_whole(state.window)}',
        "RateLimit": f'"default";r={state.remaining};t={_whole(state.reset)}',
    }


def _vendor(prefix: str, state: LimitState, *, is_epoch: bool) -> dict[str, str]:
    reset = _whole(state.reset)
    if is_epoch:
        reset += math.ceil((state.now_utc - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return {
        f"{prefix}-Limit": str(state.limit),
        f"{prefix}-Remaining": str(state.remaining),
        f"{prefix}-Reset": str(reset),
    }


DIALECTS: Mapping[str, Callable[[LimitState], dict[str, str]]] = {
    "draft-03": _draft_03,
    "draft-07": _draft_07,
    "draft-10": _draft_10,
    "x-ratelimit": lambda state: _vendor("X-RateLimit", state, is_epoch=False),
    "x-ratelimit-epoch": lambda state: _vendor("X-RateLimit", state, is_epoch=True),
    "x-rate-limit": lambda state: _vendor("X-Rate-Limit", state, is_epoch=False),
}
"""The headers of each dialect: IETF drafts 00-06, 07 and 08-11 of RateLimit, and three vendor dialects."""

# 1 - NEARLY counts as a whole token, because rounding loses a little if sends are 1 / rate seconds apart.
NEARLY = 1e-9


def _as_changes(changes: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(sorted((float(at), float(rate)) for at, rate in changes))


@attrs.frozen
class RateLimit:
    """A limit of ``burst`` requests at once and ``rate`` requests per second on average. Further requests are refused.

    Attributes:
        rate: Tokens per second; 0 refuses all requests after the first ``burst``.
        burst: The size of the bucket in tokens, at least 1.
        status: The status code of a refusal.
        retry_after: The ``Retry-After`` header of a refusal (RFC 9110, section 10.2.3): a number or string is sent
            unchanged, True sends the seconds until the next token, ``"date"`` sends the same as an HTTP date, and None
            sends no header.
        headers: Headers of refusals, or the name of a dialect that all responses use (``"draft-03"``, ``"draft-07"``,
            ``"draft-10"``, ``"x-ratelimit"``, ``"x-ratelimit-epoch"``, ``"x-rate-limit"``).
        latency: Seconds that a refusal takes; None if the host's latency applies.
        body: The body of a refusal.
        changes: Changes of the rate, as pairs of seconds since the start of the crawl and the new rate.

    Raises:
        ValueError: If a number is out of range or the dialect is unknown.
    """

    rate: float = attrs.field(converter=float, validator=[validators.ge(0.0), validators.lt(math.inf)])
    burst: float = attrs.field(default=1.0, converter=float, validator=[validators.ge(1.0), validators.lt(math.inf)])
    status: int = attrs.field(default=429, validator=[validators.ge(200), validators.le(599)])
    retry_after: float | str | bool | None = None
    headers: str | Mapping[str, str] | None = attrs.field(default=None, kw_only=True)
    latency: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))
    body: str = attrs.field(default="", kw_only=True)
    changes: tuple[tuple[float, float], ...] = attrs.field(default=(), kw_only=True, converter=_as_changes)

    @headers.validator
    def _is_dialect(self, attribute: object, headers: object) -> None:
        if isinstance(headers, str) and headers not in DIALECTS:
            raise ValueError(f"{headers!r} is not a dialect of rate limit headers: use one of {', '.join(DIALECTS)}")

    @changes.validator
    def _are_rates(self, attribute: object, changes: tuple[tuple[float, float], ...]) -> None:
        if any(at < 0 or rate < 0 for at, rate in changes):
            raise ValueError(f"changes must be pairs of a time and a rate, both at least 0, not {changes!r}")

    def rate_at(self, at: float) -> float:
        """Return the rate at a time in seconds since the start of the crawl."""
        return next((rate for begun, rate in reversed(self.changes) if begun <= at), self.rate)


class TokenBucket:
    """The tokens of one limit in one run. Times are seconds since the start of the crawl and never decrease."""

    __slots__ = ("_at", "_changes", "_tokens", "limit", "rate")

    def __init__(self, limit: RateLimit) -> None:
        self.limit: RateLimit = limit
        self.rate: float = limit.rate
        self._tokens = float(limit.burst)
        self._at = 0.0
        self._changes = list(reversed(limit.changes))

    def take(self, now: float) -> bool:
        """Take a token at ``now``. Returns False if there is no whole token."""
        if not self.has_one(now):
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def has_one(self, now: float) -> bool:
        """Return True if there is a whole token at ``now``."""
        self._fill(now)
        return self._tokens >= 1.0 - NEARLY

    def wait(self, now: float) -> float:
        """Return the seconds from ``now`` until there is a whole token at the current rate; ``inf`` if never."""
        self._fill(now)
        missing = 1.0 - self._tokens
        if missing <= NEARLY:
            return 0.0
        return missing / self.rate if self.rate else math.inf

    def fields(self, now: float, now_utc: datetime, *, is_refusal: bool) -> dict[str, str]:
        """Return the headers that announce this limit in a response at ``now``."""
        limit = self.limit
        told: dict[str, str] = {}
        if isinstance(limit.headers, str):
            told.update(DIALECTS[limit.headers](self._state(now, now_utc)))
        elif limit.headers is not None and is_refusal:
            told.update(limit.headers)
        if is_refusal and limit.retry_after is not None and limit.retry_after is not False:
            told["Retry-After"] = self._retry_after(now, now_utc)
        return told

    def _retry_after(self, now: float, now_utc: datetime) -> str:
        asked = self.limit.retry_after
        if asked is not True and asked != "date":
            return str(asked)
        whole = max(1, math.ceil(min(self.wait(now), 31_536_000.0) - NEARLY))
        if asked is True:
            return str(whole)
        seconds = math.ceil(now_utc.timestamp() + whole - NEARLY)
        return format_datetime(datetime.fromtimestamp(seconds, now_utc.tzinfo), usegmt=True)

    def _state(self, now: float, now_utc: datetime) -> LimitState:
        self._fill(now)
        remaining = math.floor(self._tokens + NEARLY)
        full = (self.limit.burst - self._tokens) / self.rate if self.rate else math.inf
        window = self.limit.burst / self.rate if self.rate else math.inf
        return LimitState(int(self.limit.burst), remaining, window, full if remaining else self.wait(now), now_utc)

    def _fill(self, now: float) -> None:
        while self._changes and self._changes[-1][0] <= now:
            at, rate = self._changes.pop()
            self._pour(at)
            self.rate = rate
        self._pour(now)

    def _pour(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(float(self.limit.burst), self._tokens + (now - self._at) * self.rate)
            self._at = now


MAX_FITTED = 1_000
"""Maximum number of responses to which a limit is fitted. The latest responses are used."""

_BURSTS = (*range(1, 16), 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200)  # sizes of buckets that are tried
_RATES = [0.5 * 1.1**step for step in range(50)]  # rates that are tried first, as multiples of the mean rate


def fit_limit(sends: Sequence[tuple[float, bool]]) -> tuple[RateLimit, tuple[float, float], int]:
    """Return the token bucket that explains most responses: the smallest such bucket, with the middle of its rates.

    Also returns the lowest and the highest rate that explain as many responses (the highest is ``inf`` if no response
    bounds it), and the number of responses that differ from those of the bucket. ``sends`` has the time of each send,
    in seconds, and whether it was refused, in order.
    """
    latest = sends[-MAX_FITTED:]
    served = sum(not is_refused for _, is_refused in latest) or 1
    mean = served / ((latest[-1][0] - latest[0][0]) or 1.0)
    rates = [mean * each for each in _RATES]
    _, burst, rate = min((_misjudged(latest, rate, burst), burst, rate) for burst in _BURSTS[::3] for rate in rates)
    bursts: Iterable[int] = _BURSTS
    for zoom in (0.1, 0.02, 0.004):  # largest relative difference from the best rate so far
        tried = [rate * (1 + zoom * step / 10) for step in range(-10, 11)]
        least, burst, rate = min((_misjudged(latest, each, burst), burst, each) for burst in bursts for each in tried)
        bursts = {max(1, round(burst * (1 + step / 20))) for step in range(-5, 6)}
        rates += tried
    fits = [(each, _misjudged(latest, each, burst) == least) for each in sorted(rates)]
    runs = [[each for each, _ in run] for is_best, run in groupby(fits, itemgetter(1)) if is_best]
    low, *_, high = max(runs, key=len) * 2
    highest = math.inf if high == mean * _RATES[-1] else high
    rate = low if highest == math.inf else math.sqrt(low * high)
    return RateLimit(rate, burst), (low, highest), _misjudged(latest, rate, burst)


def _misjudged(sends: Sequence[tuple[float, bool]], rate: float, burst: float) -> int:
    """Return how many responses of a bucket would differ. After each difference, the bucket is corrected."""
    tokens, last, wrong = burst, sends[0][0], 0
    for at, is_refused in sends:
        tokens = min(burst, tokens + (at - last) * rate)
        last = at
        if is_refused == (tokens >= 1.0 - NEARLY):
            wrong += 1
            tokens = 1.0 - is_refused * 2 * NEARLY
        if not is_refused:
            tokens -= 1.0
    return wrong


_POLICY = re.compile(r"(q=)?(\d{1,15});\s*w=(\d{1,15})")


def announced_limit(responses: Iterable[Headers]) -> RateLimit | None:
    """Return the lowest limit in the last ``RateLimit`` headers of the responses; None if there is none."""
    limit: RateLimit | None = None
    for headers in responses:
        for name in ("RateLimit-Policy", "RateLimit-Limit"):
            policies = [
                (int(amount) / int(window), int(amount), bool(named))
                for named, amount, window in _POLICY.findall(headers.get(name) or "")
                if int(amount) and int(window)
            ]
            if policies:
                rate, amount, is_named = min(policies)
                dialect = "draft-03" if name == "RateLimit-Limit" else "draft-10" if is_named else "draft-07"
                limit = RateLimit(rate, amount, headers=dialect)
                break
    return limit
