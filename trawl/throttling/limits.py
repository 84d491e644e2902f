"""The configured limits of a scope, its draws for jitter, and its slots.

Changes by policies during the crawl are kept on the scope, never here, because these limits are the base that backing
off returns to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

if TYPE_CHECKING:
    from trawl.throttling.settings import ThrottlingSettings

__all__ = [
    "CONFIGURED",
    "EXACT",
    "TABLE",
    "UNLIMITED",
    "EffectiveLimits",
    "Jitter",
    "LimitRow",
    "Limits",
    "RandomStream",
    "Slots",
    "jitter_factors",
    "lengthening",
    "limits_of",
]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class RandomStream:
    """Random numbers of one scope, the same for the same run's seed and scope id in every process.

    SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), whose state is one integer. A
    ``random.Random`` would cost 2.5 kB for each of 50,000 hosts.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int | str, id: str) -> None:
        self._state = int.from_bytes(blake2b(f"{seed}:{id}".encode(), digest_size=8).digest(), "little")

    def draw(self) -> float:
        """Return the next number in [0.0, 1.0)."""
        self._state = z = (self._state + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        # The upper 53 bits, the precision of a float below 1.0.
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def lengthening(jitter: tuple[float, float]) -> tuple[float, float]:
    """Return the part of a jitter that lengthens intervals, because a server's delay is never shortened."""
    low, high = jitter
    return max(1.0, low), max(1.0, high)


class Slots:
    """The busy slots of a scope, numbered from 1, and the last sends of the others.

    A slot carries one request at a time, is free after the whole response, and rests for the delay per slot, counted
    from its own last send. Without this delay, the free slot with the lowest number is used next. With it, the slot
    that has rested longest is used next, and a new slot only if no slot has rested.

    Policies change ``max_slots`` (number of slots that may exist) and ``rest`` (seconds between two sends of one slot),
    so every call passes them. Slots numbered above ``max_slots`` keep their times in case it grows again.
    """

    __slots__ = ("_busy", "_free", "_is_by_age", "_max_slots", "_rested_at", "_sent_at")

    def __init__(self) -> None:
        self._sent_at: list[float] = []
        self._rested_at: list[float] = []
        self._busy: list[bool] = []
        self._free: list[tuple[float, int]] = []
        self._is_by_age = False
        self._max_slots = inf

    def open(self, *, is_busy: bool, sent_at: float) -> int:
        """Add a slot. Returns its number."""
        self._busy.append(is_busy)
        self._sent_at.append(sent_at)
        self._rested_at.append(-inf)
        if not is_busy:
            self._offer(len(self._busy))
        return len(self._busy)

    @property
    def sent_at(self) -> tuple[float, ...]:
        """The time of the last send of each slot, by its number."""
        return tuple(self._sent_at)

    def last_sent(self, number: int) -> float:
        """Return the time of the last send of a slot; ``-inf`` before its first."""
        return self._sent_at[number - 1]

    def rested_at(self, number: int) -> float:
        """Return the time at which a taken slot will have rested, as drawn when it was taken."""
        return self._rested_at[number - 1]

    def ready_at(self, max_slots: float, rest: float, ahead: int = 0) -> float:
        """Return when a slot will have rested, after ``ahead`` other requests; ``-inf``: now, ``inf``: all are busy."""
        self._arrange(max_slots, rest)
        free = self._free
        if len(self._busy) + ahead < max_slots or (len(free) > ahead and rest <= 0.0):
            return -inf
        if ahead:
            free = sorted(free)[int(ahead - max(max_slots - len(self._busy), 0)) :]
        return free[0][0] + rest if free else inf

    def take(self, now: float, max_slots: float, rest: float) -> int:
        """Take a slot that has rested at ``now``, or a new one. Returns its number."""
        self._arrange(max_slots, rest)
        free = self._free
        if free and (rest <= 0.0 or free[0][0] + rest <= now or len(self._busy) >= max_slots):
            number = heappop(free)[1]
            self._busy[number - 1] = True
            self._rested_at[number - 1] = self._sent_at[number - 1] + rest
            return number
        return self.open(is_busy=True, sent_at=-inf)

    def sent(self, number: int, now: float) -> None:
        """Record the send of a slot's request."""
        self._sent_at[number - 1] = now

    def written(self, number: int, sent_at: float, now: float) -> None:
        """Count the send of a slot at ``sent_at`` from ``now``, the end of its write."""
        if self._sent_at[number - 1] == sent_at:
            self._sent_at[number - 1] = now

    def give(self, number: int) -> None:
        """Release a slot after its whole response or a failure."""
        self._busy[number - 1] = False
        self._offer(number)

    def _offer(self, number: int) -> None:
        if number <= self._max_slots:
            heappush(self._free, (self._sent_at[number - 1] if self._is_by_age else 0.0, number))

    def _arrange(self, max_slots: float, rest: float) -> None:
        """Reorder the free slots if the rule of their order has changed. This is rare, so it may visit all slots."""
        is_by_age = rest > 0.0
        if max_slots == self._max_slots and is_by_age == self._is_by_age:
            return
        self._max_slots, self._is_by_age = max_slots, is_by_age
        self._free = [
            (sent_at if is_by_age else 0.0, number)
            for number, (sent_at, busy) in enumerate(zip(self._sent_at, self._busy, strict=True), 1)
            if not busy and number <= max_slots
        ]
        heapify(self._free)


Jitter = tuple[float, float]  # the lowest and the highest factor that an interval may be multiplied by
EXACT: Jitter = (1.0, 1.0)  # no jitter: every interval is exact

CONFIGURED = "configuration"  # the source of a limit unless a policy set it


class LimitRow(NamedTuple):
    """One row of the table of limits. Its number is a key of ``THROTTLING_SCOPES`` and a field of Limits."""

    key: str  # the key, the field, and the limit's name in explanations
    none: float  # number without the limit
    stricter: Callable[[float, float], float]  # returns the stricter of two numbers, for a scope of two crawls
    # The field of the settings with the number of all hosts; "" if hosts have no limit by default.
    host_setting: str = ""
    words: str = ""  # what a request waits for, if the key does not say it
    # What to do for a scope of several processes, which can't have this limit ("give it a 'rate'"); None if it can.
    instead: str | None = None
    # The light and the dark color of the limit in a timeline, and its words there; None if it is not drawn.
    shade: tuple[str, str, str] | None = None


TABLE: tuple[LimitRow, ...] = (
    LimitRow("concurrency", math.inf, min, "concurrent_requests_per_domain", "all slots are busy"),
    LimitRow("delay", 0.0, max, "download_delay", shade=("#dbe2ea", "#3b4759", "delay")),
    LimitRow(
        "delay_per_slot", 0.0, max, "download_delay_per_slot", "delay per slot", "give it a 'delay'",
        ("#fef3c7", "#4f4618", "delay per slot"),
    ),
    LimitRow("quota", math.inf, min, shade=("#ddd6fe", "#463b78", "quota spent")),
    LimitRow("pages", math.inf, min, "pages_per_domain", "its last pages are on their way", "give it a 'quota'"),
    LimitRow("bandwidth", math.inf, min, instead="give it a 'rate'", shade=("#bbf7d0", "#14532d", "bandwidth")),
)  # fmt: skip
"""The configurable limits of a scope. Settings, merging, refusals, explanations and timelines read this table."""

UNLIMITED: Mapping[str, float] = {row.key: row.none for row in TABLE}
"""The number of each limit without the limit."""


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one scope as configured.

    Attributes:
        concurrency: Maximum requests in flight; ``inf`` for no limit.
        delay: Seconds between any two sends, in any slot.
        delay_per_slot: Seconds between two sends in the same slot, from the earlier send.
        jitter: The bounds of the random factor on each interval; (1, 1) is exact.
        quota: Maximum amount per window, in the user's unit; ``inf`` for no quota.
        window: Seconds of a quota's window; at 0 the quota never blocks.
        sliding: True if the window slides instead of starting at its first consumption.
        pages: Maximum pages in the whole crawl; ``inf`` for no budget.
        bandwidth: Average bytes per second, as received; ``inf`` for no limit.
        is_rate: True if the delay was given as a rate: sends follow a grid, and the next send compensates for a late
            one.
    """

    concurrency: float = math.inf
    delay: float = 0.0
    delay_per_slot: float = 0.0
    jitter: Jitter = EXACT
    quota: float = math.inf
    window: float = 60.0
    sliding: bool = False
    pages: float = math.inf
    bandwidth: float = math.inf
    is_rate: bool = False


class EffectiveLimits(NamedTuple):
    """The limits of one scope as policies have changed them, and who set them. Replaced as a whole."""

    concurrency: float = math.inf  # maximum requests in flight; `inf` for no limit
    delay: float = 0.0  # seconds between two sends, before jitter
    delay_per_slot: float = 0.0  # seconds between two sends of a slot, before jitter
    jitter: Jitter = EXACT  # the bounds of the random factor on both delays
    # The part of `delay` in seconds that robots.txt requests or backing off requires, so that no interval is shorter;
    # 0.0 for none.
    floor: float = 0.0
    delay_limit: str = "delay"  # name of the delay in explanations: `"backoff"`, `"hint"` or `"robots"` if these set it
    delay_source: str = CONFIGURED  # the source of the delay
    floor_source: str = ""  # the source of the floor, if it is not that of the delay
    concurrency_source: str = CONFIGURED  # the source of the concurrency
    source: str = CONFIGURED  # the source of all other limits, such as the quota

    @property
    def longest(self) -> float:
        """The longest possible interval, in seconds."""
        return max(max(self.delay, self.delay_per_slot) * self.jitter[1], self.floor)

    @property
    def shortest(self) -> float:
        """The shortest possible interval, in seconds, without the rest of slots."""
        return max(self.delay * self.jitter[0], self.floor)

    @property
    def usual(self) -> float:
        """The mean interval, in seconds, without the rest of slots."""
        return max(self.delay * (self.jitter[0] + self.jitter[1]) / 2.0, self.floor)


def jitter_factors(value: bool | float | list[float] | tuple[float, float]) -> Jitter:
    """Return the factors: True is ±50 %, False (or 0) is exact, a number x is [1-x, 1+x], [lo, hi] is [1+lo, 1+hi].

    Raises:
        ValueError: If a factor would be negative, or the pair is in the wrong order.
    """
    if value is True:
        return (0.5, 1.5)
    if value is False:
        return EXACT
    if isinstance(value, int | float):
        low, high = -float(value), float(value)
    else:
        low, high = (float(part) for part in value)
    if not -1.0 <= low <= high < math.inf:
        raise ValueError(f"a jitter must be a number from 0 to 1, or a pair in rising order from -1 up, not {value!r}")
    return (1.0 + low, 1.0 + high)


def limits_of(config: Mapping[str, Any], settings: ThrottlingSettings, *, is_host: bool) -> Limits:
    """Return the limits of a scope. The keys of its checked entry replace the defaults of its kind.

    A host-like scope starts from the per-domain settings. Any other scope is unlimited.
    """
    numbers: dict[str, float] = {
        row.key: (getattr(settings, row.host_setting) if is_host and row.host_setting else 0) or row.none
        for row in TABLE
    }
    if (rate := config.get("rate")) is not None:  # a rate replaces all three limits
        numbers |= {"concurrency": math.inf, "delay": 1.0 / rate, "delay_per_slot": 0.0}
    numbers |= {row.key: config[row.key] or row.none for row in TABLE if row.key in config}
    is_rate = rate is not None and "delay" not in config
    jitter = config.get("jitter")
    factors = jitter_factors(settings.randomize_download_delay if jitter is None else jitter)
    if is_rate and (shift := 1.0 - (factors[0] + factors[1]) / 2.0) > 0.0:
        factors = factors[0] + shift, factors[1] + shift  # a rate is a maximum, so jitter must not raise its mean
    return Limits(
        **numbers,
        jitter=factors,
        window=float(config.get("window", settings.throttling_window)),
        sliding=bool(config.get("sliding", False)),
        is_rate=is_rate,
    )
