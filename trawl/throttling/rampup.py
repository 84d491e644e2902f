r"""Rampup: finds the rate that a server allows, and stays there.

Theory of operation. The controller is CUBIC (RFC 9438), with a window of the scope instead of a round trip, the rate
instead of the congestion window, and incidents instead of losses. It works in rate: a step multiplies every interval
by one number. docs/explanation/rampup.md tells it at length. A window ends with its fortieth answer, or
with its sixtieth if one of them was refused, and after ``BACKOFF_WINDOW`` seconds at the latest: a scope that is slow
because of errors, which no rate cures, must find back. A window that the user gave ends after so many seconds.

===========  =====================================  ==========================================  ======================
Name         Event                                  Effect on the rate                          Constants
===========  =====================================  ==========================================  ======================
starting     Until the first trigger, where the     Ten good answers double it, in two rounds   ``_ROUND``,
             user gave no window (slow start;       of five and half of the 2.5 latencies at    ``_GROWTH``,
             4.10)                                  least that a doubling takes                 ``_LATENCIES``
searching    A window with fewer triggers than      What limited it goes faster by the factor   ``delay_factor``,
             wanted, while no rate was refused      0.8: the delays, or the slots, or both      ``_DELAYED``,
                                                    where both were full                        ``_FULL``
refused      More triggers in a window than wanted  Falls at once to 0.95 of the refused one,   ``_FALLS``,
             (multiplicative decrease; 4.6)         and further with each further incident of   ``_IS_LOWER``
                                                    the window; from the fourth on, half-way
                                                    is remembered as refused
\            ... with good answers between the      Falls no lower than 0.95 of their rate,     ``_MARKS``,
             latest incidents                       nor is the remembered one lowered past it;  ``_TELLING``,
                                                    where they are ten, to 1.1 of it at once    ``_OBSOLETE``
                                                    (a)
\            ... by a 429 or a hold that ends slow  Its last round is taken back, and half-way  ``_GROWTH``,
             start, within the target too           to the rate before it is remembered: the    ``_BETWEEN``
                                                    limit is between the two
\            ... in slow start with ten requests    Falls to half: all of them come back        ``_UNDONE``
             in flight                              refused, and the flood must not last for
                                                    several incidents
closing in   A window below the target, after a     Moves along a cubic (below): fast far from  ``_WINDOWS``,
             refusal (4.2, 4.4, 4.5)                the refused rate, almost flat near it, and  ``_SPARE``,
                                                    past it, because limits move: slowly, or    ``_MAX_WINDOWS``,
                                                    by 1.05 a window where the user gave none   ``_PAST``
                                                    and no hold is dear
kept below   A refusal whose header holds the       Falls to 0.9 of the refused one and         ``_DEAR``,
             scope for a quarter of a window's      returns to 0.97 of it, in so many windows   ``_OVERSHOT``,
             answers                                that the hold is a tenth of them; to 0.5    ``_HELD``
                                                    and 0.6 where it cost a window or more,
                                                    after slow start
past it      A tenth past the refused rate,         The mark is dropped: starting, or           ``_OBSOLETE``
             without being refused                  searching, again
fallen back  Three incidents in a row without a     What fell comes back, and backing off       ``OUTAGE``
             good answer, none of them a 429; or a  moves the scope until the outage is over
             whole window with triggers and no      (b)
             good answer
taken back   A refusal on the way back from an      Rampup moves the scope again, slower, and   ``take_back``
             outage                                 the falls go on: it was a limit that fell
===========  =====================================  ==========================================  ======================

The cubic is ``top - (top - bottom) * ((K - n) / K) ** 3``, in the ``n``-th of ``K`` windows since the fall.

(a) Between two refusals a token bucket is empty, so that is the rate at which it fills (the delivery rate of BBR,
draft-ietf-ccwg-bbr). A limit that dropped tenfold gives no good answers between them, and is met within one window.

(b) An outage says nothing of rates. Forty good answers after it rampup is trusted again; before that the next outage
takes twice as many incidents in a row, in which the rate falls to a third: a limit gives good answers among them. So
nothing swings between both.

Why it settles. Within the target nothing moves. Above it the rate falls below what was refused, so the mean of the
rate over a cycle of K windows or more is within some 2 % of the refused one, and a cycle has its few triggers in one
window and none in the others. The smaller the excess that is refused, the rarer the triggers; where an excess makes
just as many as wanted, the rate holds. Incidents are counted, not answers: requests that were in flight when a
trigger was counted are its. A change of rate is seen one latency later, so near the limit a window is a few latencies
long at least; far from it, it is as long as configured.

Hot counters are mutable, what the user configured is frozen.

Length: one controller, whose steps read and write the same few figures; two fifths are its theory and reasons.
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

MAX_SLOTS = 1000.0
"""The concurrency that rampup never passes where ``CONCURRENT_REQUESTS`` sets no cap (C05)."""

_FALLS = (0.95, 0.95, 0.9, 0.75, 0.5)  # of the rate, by how often it fell in this window
_IS_LOWER = 3  # a fall or two soon after the first are of a bucket that is still empty, not of a lower limit
_MARKS = 2  # incidents before this one, between which good answers are counted: one interval is too few to count on
_WINDOWS = 4  # K: windows from a fall back to the refused rate
_MAX_WINDOWS = 16  # ... where a fall cost many answers: they are spread over more windows
_SPARE = 1.5  # times the windows in which the target allows what a fall cost: the next fall may cost more
_UNDONE = 0.5  # of the rate that slow start was refused at, where ten requests were in flight: one doubling unheard
_TELLING = 10  # good answers between two incidents that tell the rate of delivery: no rate far above it is kept
_HELD = 0.1  # a hold that a header asks for costs this part of the answers at most: so many windows go before the next
_DEAR = 0.9, 0.97  # of a rate whose refusal cost a quarter of a window: where the rate falls to, and returns to
_OVERSHOT = 0.5, 0.6  # ... if it cost a window or more, and slow start had just doubled the rate
_LATENCIES = 2.5  # near the limit a window is this many answers long at least: a shorter one can't tell incidents apart
_OBSOLETE = 1.1
_PAST = 1.05  # a window of forty answers goes so far past the refused rate: two of them are refused where it holds
_DELAYED = 0.6  # delays used to this part are what limited: with jitter two of them allow less than either alone
_FULL = 0.75  # slots that were busy for this part of the window are
_ANSWERS = 40  # in a window whose length is not configured: enough to tell a rate by
_ANSWERS_REFUSED = 60  # ... if one of them was refused: with one in each window, 1.7 in a hundred are
_LEAST_WINDOW = 1.0  # seconds; a shorter one would count what a burst lets through
_ROUND = 5  # good answers in a round of slow start, and its factor: twice the rate after ten of them
_GROWTH = math.sqrt(2.0)
_BETWEEN = _GROWTH**-0.5  # of the rate that slow start was refused at: half-way to the one of its round before
_LEAST_DELAY = 1e-4  # seconds; below it a delay is none: no clock we sleep by is finer


@attrs.frozen(kw_only=True)
class RampupPolicy:
    """The configuration of a scope's rampup.

    Attributes:
        target: The least and the most triggers wanted in a window.
        delay_factor: A window below the target multiplies the intervals by this; below 1.
        min_delay: The least delay, in seconds.
        window: Seconds that a window lasts at most.
        is_counted: True if it ends with its fortieth answer, or the sixtieth where one was refused, if that is earlier.
        max_concurrency: The maximum concurrency.
        max_delay: No fall goes to a delay above this, in seconds: so few requests would find nothing out.
    """

    target: tuple[float, float] = (1.0, 1.0)
    delay_factor: float = 0.8
    min_delay: float = 0.0
    window: float = 60.0
    is_counted: bool = False
    max_concurrency: float = MAX_SLOTS
    max_delay: float = math.inf


def rampup_of(
    config: bool | Mapping[str, Any], settings: ThrottlingSettings, *, window: float, max_delay: float = math.inf
) -> RampupPolicy | None:
    """The policy that a scope's ``rampup`` makes; None where it is off (C01).

    Args:
        config: True, False, or the mapping.
        settings: For the target's default and the cap.
        window: The window of the scope's backoff: the longest one of counted answers.
        max_delay: The longest delay of the scope's backoff; a window may be longer.
    """
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


class RampupState:
    """The progress of one scope towards the server's limit.

    Args:
        policy: How it ramps up.
        delay: The delay to start with, in seconds.
        delay_per_slot: Moves with the delay.
        concurrency: The slots to start with; ``inf`` where they have no limit.

    Attributes:
        policy: How it ramps up.
        delay: The delay now.
        delay_per_slot: The delay per slot now.
        concurrency: The slots now.
        floor: The least delay that robots.txt allows, in seconds (C05).
        has_fallen_back: True if backoff moves the scope (C05): a window had triggers and no good answer, or three
            incidents, no 429 among them, came in a row without one (six soon after an outage).
        triggers: Incidents of the window that runs.
        due_at: The instant at which that ends; ``inf`` before the first answer.
        sends: Requests of the window that runs that were sent, or failed to connect.
        refused: The last refused rate, in requests a second; None where none was.
    """

    __slots__ = (
        "_busy",
        "_cost",
        "_fallen_to",
        "_falls",
        "_good",
        "_held",
        "_idle",
        "_is_starting",
        "_is_well",
        "_kept",
        "_lost",
        "_marks",
        "_outage_after",
        "_quiet",
        "_rate_before",
        "_since_return",
        "_started_at",
        "_unanswered",
        "concurrency",
        "delay",
        "delay_per_slot",
        "due_at",
        "floor",
        "has_fallen_back",
        "policy",
        "refused",
        "sends",
        "triggers",
    )

    def __init__(self, policy: RampupPolicy, *, delay: float, delay_per_slot: float, concurrency: float) -> None:
        self.policy: RampupPolicy = policy
        self.delay: float = delay
        self.delay_per_slot: float = delay_per_slot
        self.concurrency: float = concurrency
        self.floor: float = 0.0
        self.has_fallen_back: bool = False
        self.sends: int = 0
        self.refused: float | None = None
        self._fallen_to = 0.0
        self._quiet = 0
        self._falls = 0
        self.triggers: int = 0
        self._good = 0
        self._busy = 0.0
        self._cost = 0
        self._idle = 0
        self._is_well = True
        self._is_starting = policy.is_counted
        self._unanswered = 0
        self._lost = 0
        self._held = 0
        self._outage_after = OUTAGE
        self._since_return = 0
        self._rate_before = 0.0
        self._marks: tuple[tuple[float, int], ...] = ()
        self._kept: tuple[float, float, float | None, float] = (delay, delay_per_slot, None, 0.0)
        self._started_at = -math.inf
        self.due_at: float = math.inf

    @property
    def limits(self) -> dict[str, float]:
        """The limits that it moves, as they are now: delays in seconds, and slots."""
        return {"delay": self.delay, "delay_per_slot": self.delay_per_slot, "concurrency": self.concurrency}

    def move_to(self, limits: Mapping[str, float]) -> None:
        """Put ``limits``, or some of them, in the place of its own; never faster than robots.txt, nor past the cap.

        Raises:
            TypeError: They are no mapping to numbers.
            ValueError: One is unknown, negative or not finite.
        """
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
    def _length(self) -> float:
        """Seconds of the window that runs; never 0, as a window that is too short for the clock would be."""
        return max(self.due_at - self._started_at, _LEAST_DELAY)

    @property
    def rate(self) -> float:
        """Requests a second that the intervals in force allow; ``inf`` where there are none."""
        rate = 1.0 / self.delay if self.delay > 0.0 else math.inf
        if self.delay_per_slot > 0.0:
            rate = min(rate, self.concurrency / self.delay_per_slot)
        return rate

    def learned(self, configured: tuple[float, float, float]) -> RampupSnapshot:
        """Return what it learned under the limits it began with, to be stored, without the window that runs."""
        return RampupSnapshot(
            delay=self.delay,
            delay_per_slot=self.delay_per_slot,
            concurrency=self.concurrency,
            refused=self.refused,
            fallen_to=self._fallen_to,
            quiet=self._quiet,
            cost=self._cost,
            has_fallen_back=self.has_fallen_back,
            is_starting=self._is_starting,
            configured=configured,
        )

    def restore(self, learned: RampupSnapshot) -> None:
        """Go on from what was found out; a new window begins with the next answer."""
        # Never below the least delay that the settings have now.
        self.delay = max(learned.delay, min(self.delay, self.policy.min_delay))
        self.delay_per_slot = learned.delay_per_slot
        self.concurrency = max(1.0, min(learned.concurrency, max(self.policy.max_concurrency, self.concurrency)))
        self.refused = learned.refused
        self._fallen_to = learned.fallen_to
        self._quiet = learned.quiet
        self._cost = learned.cost
        self.has_fallen_back = learned.has_fallen_back
        self._is_starting = self.policy.is_counted and learned.is_starting
        self._kept = (self.delay, self.delay_per_slot, self.refused, self._fallen_to)

    def answered(self, now: float, *, busy: float, is_trigger: bool) -> None:
        """Count an answer. It may end the window, or a round of slow start: :attr:`due_at` is ``now`` then.

        Args:
            now: The instant of it.
            busy: Seconds that its slot was taken.
            is_trigger: True if it said "slow down".
        """
        self._is_well = not is_trigger
        if self._is_well:
            self._unanswered = 0
            self._since_return += 1
            if self._since_return == _ANSWERS:
                self._outage_after = OUTAGE
        if self.has_fallen_back:  # no window: how fast an outage is probed, and returned from, says nothing of rates
            return
        if self.due_at == math.inf:
            # From the grant of the first answer: from its end it would seem to have come at once.
            self._started_at = now - busy
            self.due_at = self._started_at + self.policy.window
        self.sends += 1
        self._busy += busy
        self._good += self._is_well
        if not self.policy.is_counted or now >= self.due_at:
            return
        elapsed, heard_after = now - self._started_at, _LATENCIES * self._busy / self.sends
        is_round = self._is_starting and not is_trigger and self._good >= _ROUND and elapsed >= heard_after / 2.0
        enough = _ANSWERS_REFUSED if self.triggers else _ANSWERS
        if is_round or (self.sends >= enough and elapsed >= max(heard_after, _LEAST_WINDOW)):
            self.due_at = now

    def triggered(self, now: float, *, is_limit: bool = True, waits: int = 0, hold: float = 0.0) -> bool:
        """Count an incident. Returns True if the limits moved because of it.

        Args:
            now: The instant.
            is_limit: True if the trigger speaks of a limit: a 429. Three others in a row, without a good answer between
                them, are an outage; twice as many if one has just ended.
            waits: Times that servers asked for and that were waited for in vain: each counts as one of those three.
            hold: Seconds for which a header holds the scope. A window of counted answers does not count them as time;
                and where they cost a quarter of its answers, an incident is one too many, whatever the target says.
        """
        self.triggers += 1
        self._unanswered = 0 if is_limit else max(self._unanswered + 1, waits)
        if self._unanswered >= self._outage_after:
            self._fall_back()
            return True
        was_starting, self._is_starting = self._is_starting, False
        self._marks = (*self._marks[-_MARKS:], (now, self._good))
        lost = hold * self.rate if self.policy.is_counted and self.rate < math.inf else 0.0
        is_dear, rate = lost > _ANSWERS / 4, self.rate
        is_flood = was_starting and self._busy * self.rate >= 2 * _ROUND * max(self.sends, 1)  # Little's law: in flight
        is_overshoot = was_starting and (is_limit or hold > 0.0)
        is_fall = self.triggers > self.policy.target[1] or is_dear or is_flood or is_overshoot
        if is_fall:
            self._fall(now, _UNDONE if is_flood else 1.0 / _GROWTH if is_overshoot else 1.0)
            self._held = math.ceil(lost) if is_dear else 0
        if is_overshoot and not is_flood and self.refused is not None:
            self.refused = min(self.refused, rate * _BETWEEN)
        if is_dear and self.refused is not None:
            is_far = was_starting and lost > _ANSWERS
            self._keep_below(min(rate, self.refused), *(_OVERSHOT if is_far else _DEAR))
        if lost:
            self._lost += math.ceil(lost)
            self._started_at += hold
            self.due_at += hold
        return is_fall

    def window_over(self, *, is_held: bool = False) -> None:
        """Let the window that ends at :attr:`due_at` take effect, and start the next one.

        Args:
            is_held: True if a header or a backoff held the scope: then there is no step (C08).
        """
        if self._is_starting and 0 < self._good < _ROUND:  # a round is counted in answers alone
            self.due_at += self.policy.window
            return
        if self.sends:
            self._idle = 0
            if self._falls:
                self._cost = self.sends - self._good + self._lost
            if self.triggers and not self._good:
                self._fall_back()
                return
            if self.triggers < self.policy.target[0] and not is_held:
                self._step()
        else:
            self._idle += 1
            if self._idle == 1 and not is_held and not self._is_starting:
                self._speed_up(self._factor())  # C08: several idle windows are one step
        if self._idle > 1:  # the next answer starts a window
            self.due_at = math.inf
            return
        self._begin()

    def _begin(self) -> None:
        """Begin a window where the last one ended."""
        if self.sends:
            self._rate_before = self.sends / self._length
        self._started_at = self.due_at
        latency = self._busy / self.sends if self.sends else 0.0
        is_near = self.refused is not None or self.triggers > 0
        self.due_at += max(self.policy.window, latency * _LATENCIES if is_near else 0.0)
        if self._is_well:  # else a trouble goes on, that may turn out to be an outage
            self._kept = (self.delay, self.delay_per_slot, self.refused, self._fallen_to)
        self._count_afresh()

    def _count_afresh(self) -> None:
        self.sends = self._good = self.triggers = self._falls = self._lost = 0
        self._busy = 0.0
        self._marks = ()

    def _step(self) -> None:
        """Speed up what limited the window, by the factor or by what closing in on the refused rate allows."""
        window = self._length
        slots = self.concurrency * window
        by_delay = self.sends * self.delay / window
        by_rest = self.sends * self.delay_per_slot / slots
        by_slots = self._busy / slots
        is_delayed = max(by_delay, by_rest) >= _DELAYED
        if is_delayed and (self.delay > self._least() or self.delay_per_slot > 0.0):
            self._speed_up(self._factor())
        if by_slots >= _FULL:
            wanted = min(self.concurrency / self._search_factor, self.policy.max_concurrency)
            grown = max(self.concurrency + 1.0, math.floor(wanted))
            self.concurrency = max(self.concurrency, min(grown, self.policy.max_concurrency))

    @property
    def _search_factor(self) -> float:
        """The factor that multiplies the intervals while no rate was refused."""
        return 1.0 / _GROWTH if self._is_starting else self.policy.delay_factor

    def _factor(self) -> float:
        """Return the factor that multiplies the intervals in this step."""
        if self.refused is None:
            return self._search_factor
        self._quiet += 1
        cycle = min(max(_WINDOWS, math.ceil(self._cost * _SPARE / max(self.policy.target[1], 1.0))), _MAX_WINDOWS)
        cycle = max(cycle, math.ceil(self._held / _HELD / _ANSWERS))
        away = (cycle - self._quiet) / cycle
        is_cheap = self.policy.is_counted and not self._held  # a refusal costs no hold
        if away < 0.0 and is_cheap:
            wanted = self.refused * _PAST ** (self._quiet - cycle)
        else:
            wanted = self.refused - (self.refused - self._fallen_to) * away**3
        if wanted > self.refused * _OBSOLETE:
            self.refused = None
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
        """Leave the scope to backing off; an outage says nothing of rates, so what fell in it comes back (C05)."""
        self.has_fallen_back = True
        self._unanswered = 0
        self._outage_after *= 2
        self._since_return = 0
        self.delay, self.delay_per_slot, self.refused, self._fallen_to = self._kept
        self._quiet = 0
        self.due_at = math.inf

    def take_back(self, delay: float = 0.0) -> None:
        """Move the scope again, at ``delay`` seconds at least: the outage is over, or was a limit that fell."""
        self.has_fallen_back = False
        self.delay = max(self.delay, delay)
        self._count_afresh()

    def _keep_below(self, rate: float, fall: float, mark: float) -> None:
        """Fall to a part of the refused ``rate`` at least, and return to a part of it: holds cost many answers."""
        lower = min(rate * fall, self._fallen_to)
        stretch = self._fallen_to / lower
        self.refused, self._fallen_to = rate * mark, lower
        self.delay *= stretch
        self.delay_per_slot *= stretch

    def _borne(self) -> float:
        """Good answers a second between the latest incidents of this window: what a server bears that has no spare."""
        (since, before), (now, good) = self._marks[0], self._marks[-1]
        return (good - before) / (now - since) if now > since else 0.0

    def _fall(self, now: float, most: float = 1.0) -> None:
        """Fall below the rate that was just refused, to ``most`` of it: the more often in one window, the deeper."""
        elapsed = max(now - self._started_at, 1e-3)
        measured = max(self.sends / elapsed, self._rate_before)
        # Delays below what slots or latency allow are not the rate that was refused: what was sent is.
        rate = min(self.rate, measured * _OBSOLETE) if measured > 0.0 else self.rate
        # No delay, and nothing measured yet: there is no rate to fall from.
        if rate == math.inf:
            return
        self._falls += 1
        borne = self._borne()
        least = min(rate, 1.0 / self.policy.max_delay)
        lower = max(rate * min(most, _FALLS[min(self._falls, len(_FALLS)) - 1]), min(rate, borne) * _FALLS[0], least)
        if self._marks[-1][1] - self._marks[0][1] >= _TELLING:
            lower = min(lower, max(borne * _OBSOLETE, least))
        stretch = self.rate / lower if self.rate < math.inf else 1.0
        if self._falls == 1 or self._falls >= _IS_LOWER or self.refused is None:
            # After a deep fall the limit is between the two rates: half-way is what is remembered.
            mark = rate if self._falls <= _IS_LOWER else math.sqrt(rate * lower)
            self.refused = mark if self.refused is None else max(mark, min(self.refused, borne))
        self._fallen_to = lower
        self._quiet = 0
        self.delay = max(self.delay * stretch, 1.0 / lower)
        self.delay_per_slot *= stretch
