"""Rampup: find the rate that a server allows, and stay at that rate.

The controller is CUBIC (RFC 9438). Its window belongs to the scope and replaces the round trip, the rate replaces the
congestion window, and incidents replace losses. A step multiplies every interval by one number. It has slow start
(4.10), a multiplicative decrease (4.6), and then returns along ``top - (top - bottom) * ((K - n) / K) ** 3``, in the
``n``-th of ``K`` windows, to the refused rate and past it (4.2, 4.4, 4.5). docs/explanation/rampup.md describes each
step and explains why the rate settles.

Between two refusals a token bucket is empty, so the rate of good responses is the rate at which the bucket fills (the
delivery rate of BBR, draft-ietf-ccwg-bbr). An outage says nothing about rates, so the falls before it are undone, and
backoff controls the scope until it ends. A refusal on the way back shows that the cause was a limit that fell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from trawl.throttling.backoff import OUTAGE
from trawl.throttling.configuration import check_target
from trawl.throttling.snapshot import RampupSnapshot

if TYPE_CHECKING:
    from trawl.throttling.settings import ThrottlingSettings

__all__ = ["MAX_SLOTS", "RampupPolicy", "RampupState", "rampup_of"]

MAX_SLOTS = 1000.0  # the maximum concurrency of rampup if `CONCURRENT_REQUESTS` sets no cap

_FALLS = (0.95, 0.95, 0.9, 0.75, 0.5)  # factors of the rate, by the number of falls in this window
_IS_LOWER = 3  # the next one or two falls come from a bucket that is still empty, not from a lower limit
_MARKS = 2  # incidents before this one, between which good responses are counted: one interval has too few to rely on
_WINDOWS = 4  # K: windows from a fall back to the refused rate
_MAX_WINDOWS = 16  # ... if a fall cost many responses, which are spread over more windows
_SPARE = 1.5  # factor on the windows in which the target allows the cost of a fall, because the next fall may cost more
_UNDONE = 0.5  # of the rate refused in slow start with ten requests in flight: one doubling had no responses yet
_TELLING = 10  # good responses between two incidents that reveal the delivery rate: no rate far above it is kept
_HELD = 0.1  # maximum share of responses that a hold of a header may cost: determines the windows until the next one
_DEAR = 0.9, 0.97  # rates to fall to and to return to, as parts of a rate whose refusal cost a quarter of a window
_OVERSHOT = 0.5, 0.6  # ... if it cost a window or more, right after slow start doubled the rate
_LATENCIES = 2.5  # minimum length of a window near the limit, in latencies: a shorter window can't separate incidents
_OBSOLETE = 1.1  # maximum factor by which a rate exceeds the refused, measured or delivered one: beyond it, that is old
# A window of forty responses goes this far past the refused rate: if the rate still holds, two are refused.
_PAST = 1.05
_DELAYED = 0.6  # delays used to this part are the limiting ones: with jitter, two delays allow less than either alone
_FULL = 0.75  # slots that were busy for this part of the window are the limiting ones
_ANSWERS = 40  # responses in a window without a configured length: enough to measure a rate
_ANSWERS_REFUSED = 60  # ... if one of them was refused: at one per window, 1.7 in a hundred are refused
_LEAST_WINDOW = 1.0  # seconds; a shorter window would count the responses of a burst
_ROUND = 5  # good responses in a round of slow start; two rounds double the rate, by this factor each:
_GROWTH = math.sqrt(2.0)
_BETWEEN = _GROWTH**-0.5  # of the rate refused in slow start: half-way to the rate of the round before
_LEAST_DELAY = 1e-4  # seconds; a shorter delay counts as 0, because no clock that we sleep by is finer


@attrs.frozen(kw_only=True)
class RampupPolicy:
    """The configuration of a scope's rampup."""

    target: tuple[float, float] = (1.0, 1.0)  # minimum and maximum number of triggers wanted in a window
    delay_factor: float = 0.8  # a window below the target multiplies the intervals by this factor; below 1
    min_delay: float = 0.0  # minimum delay, in seconds
    window: float = 60.0  # maximum length of a window, in seconds
    # True if a window ends earlier, with its fortieth response, or its sixtieth if one was refused.
    is_counted: bool = False
    max_concurrency: float = MAX_SLOTS
    # Maximum delay after a fall, in seconds. With longer delays, too few requests would measure anything.
    max_delay: float = math.inf


def rampup_of(
    config: bool | Mapping[str, Any], settings: ThrottlingSettings, *, window: float, max_delay: float = math.inf
) -> RampupPolicy | None:
    """Return the policy for a scope's ``rampup``; None if it is off. ``window`` and ``max_delay`` are its backoff's."""
    if config is False:
        return None
    given: Mapping[str, Any] = {} if config is True else config
    target = given.get("backoff_target", settings.rampup_backoff_target)
    length = given.get("window", window)
    return RampupPolicy(
        target=check_target(target, "backoff_target"),
        delay_factor=given.get("delay_factor", 0.8),
        min_delay=given.get("min_delay", 0.0),
        window=length,
        is_counted="window" not in given,
        max_concurrency=float(settings.concurrent_requests) or MAX_SLOTS,
        max_delay=max(length, max_delay),
    )


class RampupWindow:
    """The counts of one window of a scope's rampup, which ends at ``due_at``; ``inf`` before the first response.

    Hot, so mutable and slotted.
    """

    __slots__ = ("busy", "due_at", "falls", "good", "lost", "marks", "sends", "started_at", "triggers")

    def __init__(self, started_at: float, due_at: float) -> None:
        self.started_at: float = started_at
        self.due_at: float = due_at
        self.sends: int = 0  # requests that were sent, or failed to connect
        self.good: int = 0  # responses that are not triggers
        self.busy: float = 0.0  # seconds for which slots were taken
        self.triggers: int = 0  # incidents
        self.falls: int = 0  # incidents that lowered the rate
        self.lost: int = 0  # responses that holds of headers cost
        # The latest incidents: the event loop time of each, and the good responses before it.
        self.marks: tuple[tuple[float, int], ...] = ()

    @property
    def length(self) -> float:
        """Seconds of the window; never 0, even if the window is too short for the clock."""
        return max(self.due_at - self.started_at, _LEAST_DELAY)

    def borne(self) -> float:
        """Return the good responses per second between the latest incidents: the rate that the limit allows."""
        (since, before), (now, good) = self.marks[0], self.marks[-1]
        return (good - before) / (now - since) if now > since else 0.0


class Approach:
    """The refused rate of a scope, and the way back to it along the cubic."""

    __slots__ = ("cost", "fallen_to", "held", "quiet", "refused")

    def __init__(self) -> None:
        self.refused: float | None = None  # the last refused rate, in requests per second; None if no rate was refused
        self.fallen_to: float = 0.0  # the rate after the last fall, in requests per second
        self.quiet: int = 0  # windows below the target since the last fall
        self.cost: int = 0  # responses that the windows of the last falls cost
        self.held: int = 0  # responses that the hold of the last fall cost; 0 if it was cheap


class OutageSigns:
    """The signs by which rampup recognizes an outage: incidents in a row without a good response."""

    __slots__ = ("_after", "_good", "_unanswered")

    def __init__(self) -> None:
        self._unanswered = 0
        self._after = OUTAGE
        self._good = 0

    def answered(self) -> None:
        """Count a good response. After forty of them the next outage is recognized as early as the first."""
        self._unanswered = 0
        self._good += 1
        if self._good == _ANSWERS:
            self._after = OUTAGE

    def triggered(self, *, is_limit: bool, waits: int) -> bool:
        """Count an incident as :meth:`RampupState.triggered` does. Returns True if it is an outage."""
        self._unanswered = 0 if is_limit else max(self._unanswered + 1, waits)
        return self._unanswered >= self._after

    def found(self) -> None:
        """Start again after an outage. Until forty good responses, the next one takes twice as many incidents."""
        self._unanswered = self._good = 0
        self._after *= 2


class RampupState:
    """The progress of one scope towards the server's limit, from the delays (seconds) and slots to start with."""

    __slots__ = (
        "_idle",
        "_is_starting",
        "_is_well",
        "_kept",
        "_outage",
        "_rate_before",
        "approach",
        "concurrency",
        "delay",
        "delay_per_slot",
        "floor",
        "has_fallen_back",
        "policy",
        "window",
    )

    def __init__(self, policy: RampupPolicy, *, delay: float, delay_per_slot: float, concurrency: float) -> None:
        self.policy: RampupPolicy = policy
        self.delay: float = delay
        self.delay_per_slot: float = delay_per_slot
        self.concurrency: float = concurrency
        self.floor: float = 0.0  # minimum delay that robots.txt allows, in seconds
        # True while backoff controls the scope. Either a window had triggers and no good response, or three incidents
        # without a 429 came in a row without a good response (six soon after an outage).
        self.has_fallen_back: bool = False
        self.window: RampupWindow = RampupWindow(-math.inf, math.inf)  # the counts of the current window
        self.approach: Approach = Approach()  # the refused rate, and the way back to it
        self._outage = OutageSigns()
        self._idle = 0
        self._is_well = True
        self._is_starting = policy.is_counted
        self._rate_before = 0.0
        self._kept: tuple[float, float, float | None, float] = (delay, delay_per_slot, None, 0.0)

    @property
    def limits(self) -> dict[str, float]:
        """The current limits that rampup moves: delays in seconds, and slots."""
        return {"delay": self.delay, "delay_per_slot": self.delay_per_slot, "concurrency": self.concurrency}

    def move_to(self, limits: Mapping[str, float]) -> None:
        """Replace some limits, within robots.txt and the cap. Raises TypeError or ValueError if one is invalid."""
        if not isinstance(limits, Mapping):
            raise TypeError(f"get_rampup() must return a mapping or None, not {limits!r}")
        for name, number in limits.items():
            if name not in self.limits:
                raise ValueError(f"get_rampup() returned {name!r}; known are {', '.join(self.limits)}")
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TypeError(f"get_rampup() returned {number!r} as {name!r}, which is not a number")
            if not number >= 0 or (number == math.inf and name != "concurrency"):
                raise ValueError(f"get_rampup() returned {number!r} as {name!r}: it must be a finite number from 0 up")
        self.delay = max(float(limits.get("delay", self.delay)), self.floor)
        self.delay_per_slot = float(limits.get("delay_per_slot", self.delay_per_slot))
        if "concurrency" in limits:
            self.concurrency = max(
                1.0,
                min(math.floor(min(limits["concurrency"], self.policy.max_concurrency)), self.policy.max_concurrency),
            )

    @property
    def rate(self) -> float:
        """Requests per second that the current intervals allow; ``inf`` if there are no intervals."""
        rate = 1.0 / self.delay if self.delay > 0.0 else math.inf
        if self.delay_per_slot > 0.0:
            rate = min(rate, self.concurrency / self.delay_per_slot)
        return rate

    def learned(self, configured: tuple[float, float, float]) -> RampupSnapshot:
        """Return the values to store, with the limits that rampup started from, and without the current window."""
        approach = self.approach
        return RampupSnapshot(
            delay=self.delay,
            delay_per_slot=self.delay_per_slot,
            concurrency=self.concurrency,
            refused=approach.refused,
            fallen_to=approach.fallen_to,
            quiet=approach.quiet,
            cost=approach.cost,
            has_fallen_back=self.has_fallen_back,
            is_starting=self._is_starting,
            configured=configured,
        )

    def restore(self, learned: RampupSnapshot) -> None:
        """Continue from stored values. The next response starts a new window."""
        approach = self.approach
        # The delay must be at least the current minimum of the settings.
        self.delay = max(learned.delay, min(self.delay, self.policy.min_delay))
        self.delay_per_slot = learned.delay_per_slot
        self.concurrency = max(1.0, min(learned.concurrency, max(self.policy.max_concurrency, self.concurrency)))
        approach.refused = learned.refused
        approach.fallen_to = learned.fallen_to
        approach.quiet = learned.quiet
        approach.cost = learned.cost
        self.has_fallen_back = learned.has_fallen_back
        self._is_starting = self.policy.is_counted and learned.is_starting
        self._kept = (self.delay, self.delay_per_slot, approach.refused, approach.fallen_to)

    def answered(self, now: float, *, busy: float, is_trigger: bool) -> None:
        """Count a response whose slot was taken for ``busy`` seconds. It may end a window or a round of slow start."""
        window = self.window
        self._is_well = not is_trigger
        if self._is_well:
            self._outage.answered()
        if self.has_fallen_back:  # no window: how fast an outage is probed and left says nothing about rates
            return
        if window.due_at == math.inf:
            # Start at the grant of the first response. From its end, it would seem to have arrived at once.
            window.started_at = now - busy
            window.due_at = window.started_at + self.policy.window
        window.sends += 1
        window.busy += busy
        window.good += self._is_well
        if not self.policy.is_counted or now >= window.due_at:
            return
        elapsed, heard_after = now - window.started_at, _LATENCIES * window.busy / window.sends
        is_round = self._is_starting and not is_trigger and window.good >= _ROUND and elapsed >= heard_after / 2.0
        enough = _ANSWERS_REFUSED if window.triggers else _ANSWERS
        if is_round or (window.sends >= enough and elapsed >= max(heard_after, _LEAST_WINDOW)):
            window.due_at = now

    def triggered(self, now: float, *, is_limit: bool = True, waits: int = 0, hold: float = 0.0) -> bool:
        """Count an incident. Returns True if it moved the limits.

        Unless it indicates a limit (``is_limit``), three in a row without a good response are an outage, or twice as
        many if an outage has just ended. Each named time that was waited for without success (``waits``) counts as one.
        A window of counted responses does not contain the ``hold`` seconds for which a header holds the scope. If they
        cost a quarter of its responses, the incident is one too many, whatever the target is.
        """
        window, approach = self.window, self.approach
        window.triggers += 1
        if self._outage.triggered(is_limit=is_limit, waits=waits):
            self._fall_back()
            return True
        was_starting, self._is_starting = self._is_starting, False
        window.marks = (*window.marks[-_MARKS:], (now, window.good))
        lost = hold * self.rate if self.policy.is_counted and self.rate < math.inf else 0.0
        is_dear, rate = lost > _ANSWERS / 4, self.rate
        in_flight = window.busy * self.rate / max(window.sends, 1)  # Little's law
        is_flood = was_starting and in_flight >= 2 * _ROUND
        is_overshoot = was_starting and (is_limit or hold > 0.0)
        is_fall = window.triggers > self.policy.target[1] or is_dear or is_flood or is_overshoot
        if is_fall:
            self._fall(now, _UNDONE if is_flood else 1.0 / _GROWTH if is_overshoot else 1.0)
            approach.held = math.ceil(lost) if is_dear else 0
        if is_overshoot and not is_flood and approach.refused is not None:
            approach.refused = min(approach.refused, rate * _BETWEEN)
        if is_dear and approach.refused is not None:
            is_far = was_starting and lost > _ANSWERS
            self._keep_below(min(rate, approach.refused), *(_OVERSHOT if is_far else _DEAR))
        if lost:
            window.lost += math.ceil(lost)
            window.started_at += hold
            window.due_at += hold
        return is_fall

    def window_over(self, *, is_held: bool = False) -> None:
        """Apply the window that has ended, without a step if a header or backoff held the scope. Start the next one."""
        window = self.window
        if self._is_starting and 0 < window.good < _ROUND:  # a round is counted in responses only
            window.due_at += self.policy.window
            return
        if window.sends:
            self._idle = 0
            if window.falls:
                self.approach.cost = window.sends - window.good + window.lost
            if window.triggers and not window.good:
                self._fall_back()
                return
            if window.triggers < self.policy.target[0] and not is_held:
                self._step()
        else:
            self._idle += 1
            if self._idle == 1 and not is_held and not self._is_starting:
                self._speed_up(self._factor())  # several idle windows are one step
        if self._idle > 1:  # the next response starts a window
            window.due_at = math.inf
            return
        self._begin()

    def _begin(self) -> None:
        """Start a window at the end of the last one."""
        approach = self.approach
        last = self.window
        if last.sends:
            self._rate_before = last.sends / last.length
        latency = last.busy / last.sends if last.sends else 0.0
        is_near = approach.refused is not None or last.triggers > 0
        length = max(self.policy.window, latency * _LATENCIES if is_near else 0.0)
        self.window = RampupWindow(last.due_at, last.due_at + length)
        if self._is_well:  # otherwise an incident continues that may turn out to be an outage
            self._kept = (self.delay, self.delay_per_slot, approach.refused, approach.fallen_to)

    def _step(self) -> None:
        """Speed up the limiting part of the window, by the search factor or by the cubic towards the refused rate."""
        window = self.window
        slots = self.concurrency * window.length
        by_delay = window.sends * self.delay / window.length
        by_rest = window.sends * self.delay_per_slot / slots
        by_slots = window.busy / slots
        is_delayed = max(by_delay, by_rest) >= _DELAYED
        if is_delayed and (self.delay > self._least() or self.delay_per_slot > 0.0):
            self._speed_up(self._factor())
        if by_slots >= _FULL:
            wanted = min(self.concurrency / self._search_factor, self.policy.max_concurrency)
            grown = max(self.concurrency + 1.0, math.floor(wanted))
            self.concurrency = max(self.concurrency, min(grown, self.policy.max_concurrency))

    @property
    def _search_factor(self) -> float:
        """The factor for the intervals while no rate was refused."""
        return 1.0 / _GROWTH if self._is_starting else self.policy.delay_factor

    def _factor(self) -> float:
        """Return the factor for the intervals in this step."""
        approach = self.approach
        if approach.refused is None:
            return self._search_factor
        approach.quiet += 1
        windows = math.ceil(approach.cost * _SPARE / max(self.policy.target[1], 1.0))
        cycle = min(max(_WINDOWS, windows), _MAX_WINDOWS)
        cycle = max(cycle, math.ceil(approach.held / _HELD / _ANSWERS))
        away = (cycle - approach.quiet) / cycle
        is_cheap = self.policy.is_counted and not approach.held  # a refusal does not cause a hold
        if away < 0.0 and is_cheap:
            wanted = approach.refused * _PAST ** (approach.quiet - cycle)
        else:
            wanted = approach.refused - (approach.refused - approach.fallen_to) * away**3
        if wanted > approach.refused * _OBSOLETE:
            approach.refused = None
            self._is_starting = is_cheap
            return self._search_factor
        return min(1.0, max(self.rate / wanted, self.policy.delay_factor))

    def _speed_up(self, factor: float) -> None:
        self.delay = max(self.delay * factor, min(self.delay, self._least()))
        if self.delay < _LEAST_DELAY:
            self.delay = 0.0
        self.delay_per_slot *= factor
        if self.delay_per_slot < _LEAST_DELAY:
            self.delay_per_slot = 0.0

    def _least(self) -> float:
        return max(self.policy.min_delay, self.floor)

    def _fall_back(self) -> None:
        """Leave the scope to backoff. An outage says nothing about rates, so the falls during it are undone."""
        approach = self.approach
        self.has_fallen_back = True
        self._outage.found()
        self.delay, self.delay_per_slot, approach.refused, approach.fallen_to = self._kept
        approach.quiet = 0
        self.window.due_at = math.inf

    def take_back(self, delay: float = 0.0) -> None:
        """Control the scope again, at ``delay`` seconds or more. The outage has ended, or was a limit that fell."""
        self.has_fallen_back = False
        self.delay = max(self.delay, delay)
        self.window = RampupWindow(self.window.started_at, self.window.due_at)

    def _keep_below(self, rate: float, fall: float, mark: float) -> None:
        """Fall to a part of the refused ``rate``, and return only to a part of it, because holds are expensive."""
        approach = self.approach
        lower = min(rate * fall, approach.fallen_to)
        stretch = approach.fallen_to / lower
        approach.refused, approach.fallen_to = rate * mark, lower
        self.delay *= stretch
        self.delay_per_slot *= stretch

    def _fall(self, now: float, most: float = 1.0) -> None:
        """Fall below the rate that was just refused, to at most ``most`` of it. More falls in one window are deeper."""
        window, approach = self.window, self.approach
        elapsed = max(now - window.started_at, 1e-3)
        measured = max(window.sends / elapsed, self._rate_before)
        # If slots or latency kept the rate below what the delays allow, the server refused the measured rate.
        rate = min(self.rate, measured * _OBSOLETE) if measured > 0.0 else self.rate
        # Without a delay and without a measurement, there is no rate to fall from.
        if rate == math.inf:
            return
        window.falls += 1
        borne = window.borne()
        least = min(rate, 1.0 / self.policy.max_delay)
        fall = min(most, _FALLS[min(window.falls, len(_FALLS)) - 1])
        lower = max(rate * fall, min(rate, borne) * _FALLS[0], least)
        if window.marks[-1][1] - window.marks[0][1] >= _TELLING:
            lower = min(lower, max(borne * _OBSOLETE, least))
        stretch = self.rate / lower if self.rate < math.inf else 1.0
        if window.falls == 1 or window.falls >= _IS_LOWER or approach.refused is None:
            # After a deep fall the limit is between the two rates, so remember the rate half-way.
            mark = rate if window.falls <= _IS_LOWER else math.sqrt(rate * lower)
            approach.refused = mark if approach.refused is None else max(mark, min(approach.refused, borne))
        approach.fallen_to = lower
        approach.quiet = 0
        self.delay = max(self.delay * stretch, 1.0 / lower)
        self.delay_per_slot *= stretch
