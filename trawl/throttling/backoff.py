"""Backoff: a scope slows down after a trigger, and recovers in quiet windows (docs/explanation/throttle.md).

A *trigger* takes one step: it multiplies the delay by the factor, between a minimum and a maximum, where it reduces the
concurrency instead. One incident is one step, so requests that were in flight when the step was taken take none. Each
window without a trigger, from the first good response on, takes one step back, first in concurrency. ::

                  trigger                        trigger ...
        base ───────────────► min or base·f ───────────────► ... ───► max, then fewer slots
         ▲                        │ a quiet window after a good response   │
         └────────────────────────┴────────────────────────────────────────┘

Three incidents in a row without a good response and without a 429 are an *outage*. A 429 does not count any more after
three waits for times that servers named, without success and over at least a minute. After an outage the scope returns
to its previous rate with the first, fourth and eighth good response (the maximum filter of BBR, draft-ietf-ccwg-bbr,
and ``w_max`` of CUBIC, RFC 9438, section 4.2). A trigger before that restores the delay of the outage.

When a trigger follows a step back within its window, the scope remembers the *refused delay*, and later steps go
half-way to it, in rate. When hardly any distance remains, the next step tries to pass it, because a limit may have
changed. Otherwise a scope whose limit lies between two states would move back and forth forever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from msgspec.structs import replace

from trawl.errors import ConnectFailed, ConnectTimeout, ReadTimeout, ResponseBroken, SettingsError
from trawl.throttling.configuration import load_exception, load_object
from trawl.throttling.limits import Jitter, jitter_factors
from trawl.throttling.managers import OnFailure, call_user, call_user_number, ignore_failure

if TYPE_CHECKING:
    from trawl.throttling.settings import ThrottlingSettings

__all__ = ["CONNECTION_ERRORS", "OUTAGE", "Backoff", "BackoffState", "Base", "CustomBackoff", "backoff_of"]

_CLOSE = 1.05  # factor on the refused delay. A delay within 5 % of the refused one has reached it.

CONNECTION_ERRORS = (ConnectTimeout, ReadTimeout, ConnectFailed, ResponseBroken)
"""The errors of a connection that failed: the default of ``BACKOFF_EXCEPTIONS``."""

OUTAGE = 3  # incidents in a row, without a good response between them, that make an outage
_LONGEST_PROBE = 60.0  # maximum seconds between two probes of an outage, if rampup must resume soon after its end

_RETURN = {1: 4.0, 4: 2.0, 8: 1.0}
"""Good responses after an outage, and the multiple of the base's delay that they lead to."""

_LEAST_WINDOW = 1e-3
"""Seconds. A shorter window would end when it starts, because clocks with large values are not precise enough."""

_LEAST = 1e-3  # seconds; below this delay, a step back towards a base of 0 ends at 0, which dividing would never reach


@attrs.frozen
class Base:
    """The limits that backing off returns to."""

    delay: float  # seconds between two sends
    concurrency: float = math.inf  # requests in flight; `inf` for no limit


def _within(low: float, high: float, *, or_low: bool = False) -> Any:
    """Return a validator for numbers above ``low`` (or equal to it) and below ``high``, both finite."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and (low < value < high or (or_low and value == low))):  # type: ignore[operator]
            bounds = f"{'from' if or_low else 'above'} {low:g}" + (f" and below {high:g}" if high < math.inf else "")
            raise ValueError(f"{field.name!r} must be a number {bounds}, not {value!r}")

    return check


@attrs.frozen(kw_only=True)
class Backoff:
    """The backoff strategy of a scope. To write your own, subclass it, or write a class with some of its methods.

    Attributes:
        http_codes: Status codes that are triggers.
        exceptions: Exceptions that are triggers; the causes of a download error count too.
        delay_factor: The factor of a step on the delay; above 1.
        max_delay: The maximum delay, in seconds.
        min_delay: The minimum delay while backing off, in seconds.
        jitter: The bounds of the random factor on intervals while backing off.
        window: Quiet seconds, counted from a good response, after which the scope takes one step back.
        concurrency_factor: The factor of a step on the concurrency, at the maximum delay; below 1.

    Raises:
        ValueError: If a number is out of its range.
    """

    http_codes: frozenset[int] = frozenset((429, 502, 503, 504, 520, 521, 522, 523, 524))
    exceptions: tuple[type[BaseException], ...] = ()
    delay_factor: float = attrs.field(default=2.0, validator=_within(1.0, math.inf))
    max_delay: float = attrs.field(default=300.0, validator=_within(0.0, math.inf, or_low=True))
    min_delay: float = attrs.field(default=1.0, validator=_within(0.0, math.inf, or_low=True))
    jitter: Jitter = (0.9, 1.1)
    window: float = attrs.field(default=60.0, validator=_within(0.0, math.inf))
    concurrency_factor: float = attrs.field(default=0.5, validator=_within(0.0, 1.0))

    def is_trigger(self, status: int | None, exception: BaseException | None) -> bool:
        """Return True if the status code is a trigger, or, without a response, the exception."""
        if exception is None:
            return status in self.http_codes
        return any(isinstance(error, self.exceptions) for error in _chain(exception))

    @property
    def decides_triggers(self) -> bool:
        """True if a user's ``is_trigger`` decides. It then also judges refusals that name a time to retry."""
        return False

    @property
    def returns_at_once(self) -> bool:
        """True if good responses return a scope to the rate before an outage, without waiting for windows."""
        return True

    def slower(self, delay: float, base: float) -> float:
        """Return the delay after a trigger at ``delay``: at most ``max_delay``, but never below ``base``."""
        return max(base, min(max(delay * self.delay_factor, self.min_delay), self.max_delay))

    def faster(self, delay: float, base: float) -> float:
        """Return the delay after a quiet window at ``delay``. A result below ``min_delay`` becomes ``base``."""
        delay_after = delay / self.delay_factor
        return base if delay_after < self.min_delay or delay_after <= base else delay_after

    def fewer(self, concurrency: float) -> float:
        """Return the concurrency after a trigger at the maximum delay."""
        return max(1.0, float(math.floor(concurrency * self.concurrency_factor)))

    def more(self, concurrency: float, full: float) -> float:
        """Return the concurrency after a quiet window."""
        wanted = concurrency / self.concurrency_factor  # infinite if the factor is almost 0
        return full if wanted >= full else min(full, float(math.ceil(wanted)))


@attrs.frozen(kw_only=True)
class CustomBackoff(Backoff):
    """A user's strategy: its methods, and the defaults for methods that are missing or fail."""

    own: Any = None
    # Called when one of its methods raises, or returns a value that is not a number.
    failed: OnFailure = attrs.field(default=ignore_failure, eq=False, repr=False)

    def is_trigger(self, status: int | None, exception: BaseException | None) -> bool:
        """Call the user's method, or the default if it is missing or fails."""
        answer = call_user(self.own, "is_trigger", self.failed, status, exception)
        return super().is_trigger(status, exception) if answer is None else bool(answer)

    @property
    def decides_triggers(self) -> bool:
        """True if the user's object has its own ``is_trigger``."""
        return self._overrides("is_trigger")

    @property
    def returns_at_once(self) -> bool:
        """False if the user's object overrides ``faster`` or ``more``, which then define the way back."""
        return not self._overrides("faster", "more")

    def _overrides(self, *names: str) -> bool:
        return any(
            hasattr(self.own, name) and getattr(type(self.own), name, None) is not getattr(Backoff, name)
            for name in names
        )

    def slower(self, delay: float, base: float) -> float:
        """Call the user's method, or the default; never return less than ``base``."""
        wanted = call_user_number(self.own, "slower", self.failed, delay, base, is_finite=True)
        return super().slower(delay, base) if wanted is None else max(base, wanted)

    def faster(self, delay: float, base: float) -> float:
        """Call the user's method, or the default; never return less than ``base``."""
        wanted = call_user_number(self.own, "faster", self.failed, delay, base, is_finite=True)
        return super().faster(delay, base) if wanted is None else max(base, wanted)

    def fewer(self, concurrency: float) -> float:
        """Call the user's method, or the default; return whole slots, at least 1."""
        wanted = call_user_number(self.own, "fewer", self.failed, concurrency)
        return super().fewer(concurrency) if wanted is None else max(1.0, _whole(wanted, math.floor))

    def more(self, concurrency: float, full: float) -> float:
        """Call the user's method, or the default; return whole slots, at most ``full``."""
        wanted = call_user_number(self.own, "more", self.failed, concurrency, full)
        return super().more(concurrency, full) if wanted is None else min(full, max(1.0, _whole(wanted, math.ceil)))


def _whole(slots: float, rounded: Callable[[float], int]) -> float:
    return slots if math.isinf(slots) else float(rounded(slots))


def backoff_of(
    config: Mapping[str, Any],
    settings: ThrottlingSettings,
    path: str = "backoff",
    *,
    failed: OnFailure = ignore_failure,
) -> Backoff:
    """Create the strategy of a checked ``backoff`` mapping. Raises SettingsError if a user's can't be made."""
    if "cls" not in config:
        return Backoff(**_arguments(config, settings, path))
    cls = load_object(config["cls"], f"{path}['cls']")
    arguments = {key: value for key, value in config.items() if key != "cls"}
    usual = _arguments({}, settings, path)
    try:
        if isinstance(cls, type) and issubclass(cls, Backoff):
            known = {field.name for field in attrs.fields(cls)}
            ready = _ready({key: value for key, value in arguments.items() if key in known}, path)
            own: Any = cls(**{**usual, **arguments, **ready})
        else:
            own = cls(**arguments)
        named = {field.name: getattr(own, field.name) for field in attrs.fields(Backoff) if hasattr(own, field.name)}
        ready = named if isinstance(own, Backoff) else _ready(named, path)
        return CustomBackoff(**{**usual, **ready}, own=own, failed=failed)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{path}: {cls!r} can't be made with {arguments!r}: {error}", path) from error


def _arguments(config: Mapping[str, Any], settings: ThrottlingSettings, path: str) -> dict[str, Any]:
    names = [field.name for field in attrs.fields(Backoff)]
    return _ready({name: config.get(name, getattr(settings, f"backoff_{name}")) for name in names}, path)


def _ready(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Convert values from a user's mapping to the types of :class:`Backoff`."""
    ready = dict(given)
    if "http_codes" in ready:
        ready["http_codes"] = frozenset(ready["http_codes"])
    if "exceptions" in ready:
        ready["exceptions"] = tuple(load_exception(name, f"{path}['exceptions']") for name in ready["exceptions"])
    if "jitter" in ready:
        ready["jitter"] = jitter_factors(ready["jitter"])
    return ready


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, at most ten deep."""
    error: BaseException | None = exception
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__


class BackoffState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The backoff of a scope that had a trigger; other scopes have none. A job stores it unchanged."""

    delay: float  # seconds
    concurrency: float  # while backing off
    full: float  # the concurrency that the scope returns to
    cut_from: float = math.inf  # the slots that were in use when the first of them were taken away; `inf` if none were
    steps: int = 0  # as in "backoff step n"
    # Event loop time of the last trigger or step. The window runs from here, or from `good_at` if later.
    quiet_from: float = -math.inf
    has_good: bool = True  # True if there was a good response since the last trigger
    good_at: float = -math.inf  # event loop time of the first good response since the last trigger
    # Event loop time of the last step back; `-inf` if there was none since the last trigger.
    recovered_at: float = msgspec.field(default=-math.inf, name="eased_at")  # the name in stored jobs
    refused: float | None = None  # the delay that was refused after a step back, in seconds; None if none was
    unanswered: int = 0  # incidents since the last good response
    # True if one of them indicated a limit, or if the way back from an outage was refused before. Then they are not an
    # outage.
    is_limit: bool = False
    # The delay at the first of them, in seconds, if the scope was already backing off; otherwise 0.0.
    before: float = 0.0
    # The delay at the end of an outage, in seconds, while the scope returns from it; otherwise None.
    outage: float | None = None
    returned: int = 0  # good responses since the end of the outage; not reset by a trigger before the full return

    @classmethod
    def at(cls, base: Base) -> BackoffState:
        """Return the state of a scope at its base."""
        return cls(delay=base.delay, concurrency=base.concurrency, full=base.concurrency)

    def moved(self, clock: Callable[[float], float]) -> BackoffState:
        """Return this state with its times converted to another clock."""
        return replace(
            self, quiet_from=clock(self.quiet_from), good_at=clock(self.good_at), recovered_at=clock(self.recovered_at)
        )

    @property
    def is_cut(self) -> bool:
        """True if slots were taken away."""
        return self.concurrency < self.full

    @property
    def pace(self) -> tuple[float, float, float | None]:
        """The values that a step changes: the delay, the concurrency and the refused delay."""
        return self.delay, self.concurrency, self.refused

    def waiting_from(self, now: float) -> BackoffState:
        """Return this state with a window that starts at ``now``."""
        return replace(self, quiet_from=now)

    def is_backing_off(self, base: Base) -> bool:
        """Return True if the scope is slower than its base."""
        return self.delay > base.delay or self.is_cut

    def repeated(self, now: float) -> BackoffState:
        """Return the state after one more trigger of the same incident: no step, but the window restarts."""
        return replace(self, quiet_from=now, has_good=False, good_at=-math.inf)

    def escalated(
        self,
        strategy: Backoff,
        base: Base,
        now: float,
        *,
        in_flight: int,
        sent_at: float,
        is_limit: bool = False,
        waits: int = 0,
        is_outage: bool = False,
    ) -> BackoffState:
        """Return the state one step further, after a new incident, whose first refused request was sent at ``sent_at``.

        Slots without a limit are reduced from the number ``in_flight``, which includes this request. A 429 indicates a
        limit (``is_limit``), unless three times named by servers were waited for without success (``waits``). If rampup
        recognized an outage (``is_outage``), it is probed at least once a minute, unless a trigger indicated a limit.
        """
        # The request was sent after the last step back and refused within its window, so that step went too far.
        is_answer = self.recovered_at <= sent_at and now <= self.recovered_at + strategy.window
        delay = strategy.slower(max(self.delay, base.delay), base.delay)
        is_first = not self.unanswered and self.outage is None
        # A 429 before the last good response says nothing about a later outage.
        has_limit = (bool(self.unanswered) and self.is_limit) or self.returned > 0
        is_limit = waits < OUTAGE and (is_limit or has_limit)
        if is_outage and not is_limit:
            delay = min(delay, max(_LONGEST_PROBE, base.delay))
        after = replace(
            self.repeated(now),
            delay=delay,
            steps=self.steps + 1,
            recovered_at=-math.inf,
            refused=self.delay if is_answer else self.refused,
            unanswered=self.unanswered + 1,
            is_limit=is_limit,
            before=self.before if not is_first else self.delay if self.delay > base.delay else 0.0,
            outage=None,
        )
        if self.outage is not None:  # the outage was not over: continue from its delay
            return replace(after, delay=max(after.delay, self.outage))
        if after.delay > self.delay:
            return after
        has, full = (self.concurrency, self.full) if self.is_cut else (base.concurrency, base.concurrency)
        # A fraction of no limit is no limit, so count the slots in use.
        used = min(has, float(max(in_flight, 1))) if full == math.inf else has
        cut_from = self.cut_from if self.is_cut else used
        return replace(after, concurrency=strategy.fewer(used), full=full, cut_from=cut_from)

    def answered(self, strategy: Backoff, base: Base, now: float, *, is_probe: bool) -> BackoffState | None:
        """Return the state after a good response; None if it ends the backoff.

        After an outage, the first good response leads to a quarter of the rate before it, the fourth to half of it, the
        eighth to all of it, as long as nothing is refused. If the scope was backing off before the outage, windows
        continue from there. A user's own strategy defines its own way back. Only a request that was granted after the
        last incident (``is_probe``) shows that the incident has ended.
        """
        first = self if self.has_good else replace(self, has_good=True, good_at=now)
        if not is_probe:
            return first
        if self.unanswered:
            first = replace(first, unanswered=0)
            if self.unanswered >= OUTAGE and not self.is_limit and strategy.returns_at_once:
                first = replace(first, outage=self.delay, returned=0)
        if first.outage is None:
            return first
        known = max(base.delay, first.before) or min(strategy.min_delay or first.outage, first.outage) / 8.0
        returned = first.returned + 1
        multiple = _RETURN.get(returned)
        if multiple is None:
            return replace(first, returned=returned)
        is_last = multiple == 1.0
        if is_last and first.before <= base.delay:
            return None
        if is_last:  # slots are reduced at the maximum delay, and return with the rate
            first = replace(first, concurrency=first.full, outage=None)
        return replace(
            first,
            delay=min(first.delay, known * multiple),
            steps=max(1, first.steps - 1),
            quiet_from=now,
            recovered_at=now,
            returned=0 if is_last else returned,
        )

    def due_at(self, strategy: Backoff) -> float:
        """Return the event loop time at which the current window takes effect; ``inf`` before a good response."""
        if not self.has_good:
            return math.inf
        return max(self.quiet_from, self.good_at) + max(strategy.window, _LEAST_WINDOW)

    def recovered(self, strategy: Backoff, base: Base) -> BackoffState | None:
        """Return the state after the quiet window that ends at :meth:`due_at`; None if it ends the backoff."""
        if not self.is_backing_off(base):
            return None
        at = self.due_at(strategy)
        if self.is_cut:
            more = strategy.more(self.concurrency, self.cut_from)
            return self._back(at, base, concurrency=self.full if more >= self.cut_from else more, delay=self.delay)
        delay = self._recovered_delay(strategy, base)
        is_close = self.refused is not None and delay <= self.refused * _CLOSE
        back = self._back(at, base, concurrency=self.concurrency, delay=delay)
        return replace(back, refused=None) if is_close else back

    def _back(self, at: float, base: Base, *, delay: float, concurrency: float) -> BackoffState:
        back = replace(
            self, delay=delay, concurrency=concurrency, steps=max(1, self.steps - 1), quiet_from=at, recovered_at=at
        )
        return back if back.is_backing_off(base) else replace(back, steps=0)

    def _recovered_delay(self, strategy: Backoff, base: Base) -> float:
        if self.refused is None:
            return strategy.faster(self.delay, base.delay)
        if self.refused <= 0.0:  # without a delay there is no rate to average: divide, even below the minimum
            delay_after = self.delay / strategy.delay_factor
            return delay_after if delay_after > max(base.delay, _LEAST) else base.delay
        rate = (1.0 / self.delay + 1.0 / self.refused) / 2.0
        return max(base.delay, 1.0 / rate)
