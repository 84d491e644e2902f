"""The requests of one scope, counted: the facts that its limits read, and the draw for the next interval."""

from __future__ import annotations

from math import inf

from trawl.throttling.limits import RandomStream, Slots

__all__ = ["MAX_AHEAD", "MAX_LEAD", "MIN_LEAD", "Traffic"]

MAX_LEAD = 5.0
"""Seconds. Maximum time that a request is granted before it may be sent, and that it waits just before its send."""

MAX_PREPARATION = 30.0  # seconds; maximum time that a page is prepared before it may be granted

MIN_LEAD = 0.0001
"""Seconds. A shorter way to the send is not worth an earlier grant, because it is a thousandth of a delay of 0.1 s."""

QUICK, PATIENT = 32.0, 512.0
"""Divisors for the decrease of a lead and of a preparation. A page prepared too early holds nothing."""

MAX_AHEAD = 64  # maximum number of requests of a scope with a delay that are between grant and send


class Traffic:
    """The facts about the requests of one scope. Used for every request, so mutable and slotted."""

    __slots__ = (
        "_drawn",
        "_id",
        "_seed",
        "_stream",
        "ahead",
        "ahead_amount",
        "caution",
        "in_flight",
        "last_prepared",
        "last_sent",
        "lead",
        "planned",
        "preparation",
        "prepared",
        "reserved",
        "slots",
        "unsent",
    )

    def __init__(self, id: str, seed: int | str) -> None:
        self.in_flight: int = 0  # number of requests that hold a place
        self.unsent: int = 0  # number of requests that hold a place and are not sent yet
        # Expected amount of these requests, even without a quota, because one may be set before they are sent.
        self.reserved: float = 0.0
        self.last_sent: float = -inf  # event loop time of the latest send; `-inf` before the first
        self.planned: float = -inf  # event loop time at which the latest granted request is expected to be sent
        # Measured seconds from a request's grant to its send. With a delay, it is granted this much earlier.
        self.lead: float = 0.0
        # Measured seconds of a page's middleware before its send. It is prepared this much earlier.
        self.preparation: float = 0.0
        # Number of requests that are being prepared and not overdue, or are prepared and wait for this scope.
        self.ahead: int = 0
        self.prepared: int = 0  # number of pages among them that are prepared
        self.ahead_amount: float = 0.0  # expected amount of the requests that are ahead
        # Start of the latest preparation that may still count as a send; `-inf` if there is none.
        self.last_prepared: float = -inf
        # Number of requests that user code must still send, each after awaiting something, before it is assumed never
        # to respond; `inf` after a response of user code; -1 if no user code is known.
        self.caution: float = -1.0
        self.slots: Slots | None = None  # the slots; None until a second slot is needed, because most hosts have one
        self._id = id
        self._seed = seed
        self._stream: RandomStream | None = None
        self._drawn: float | None = None

    @property
    def drawn(self) -> float:
        """The number for the next send, from 0 to 1: drawn when first needed, and kept until that send."""
        return self.draw() if self._drawn is None else self._drawn

    def draw(self, drawn: float | None = None) -> float:
        """Draw the number for the next send, or use ``drawn``, which another scope drew for it."""
        if drawn is None:
            if self._stream is None:
                self._stream = RandomStream(self._seed, self._id)
            drawn = self._stream.draw()
        self._drawn = drawn
        return drawn

    def add_ahead(self, amount: float = 1.0) -> None:
        """Count a request as ahead, because its middleware runs or has run and it holds no place."""
        self.ahead += 1
        self.ahead_amount += amount

    def drop_ahead(self, amount: float = 1.0) -> None:
        """Stop counting such a request, because it takes the scope or has ended."""
        self.ahead -= 1
        # Exactly 0.0 without such requests, because a sum of floats keeps a rounding error.
        self.ahead_amount = self.ahead_amount - amount if self.ahead else 0.0

    def start_preparing(self, now: float) -> None:
        """Record the start of a preparation at ``now`` that may count as a send."""
        if self.ahead > 1:  # the previous one may have used the draw
            self._drawn = None
        self.last_prepared = now

    def release(self, started_at: float) -> None:
        """Record that the preparation that started at that time does not count as a send."""
        if self.last_prepared == started_at:  # the intervals after the earlier preparations have passed
            self.last_prepared = -inf

    def take(self, amount: float, now: float) -> None:
        """Count a request that gets its place at ``now``."""
        self.in_flight += 1
        self.unsent += 1
        self.reserved += amount
        self.planned = now + self.lead

    def give(self, slot: int, amount: float, *, was_sent: bool) -> None:
        """Stop counting a request that has ended."""
        self.in_flight -= 1
        if not was_sent:
            self.unsent -= 1
            self.reserved = self.reserved - amount if self.unsent else 0.0
        if self.slots is not None:
            self.slots.give(slot)

    def measure_lead(self, took: float) -> None:
        """Learn that a request needed ``took`` seconds from its grant to its send."""
        if took > MIN_LEAD or self.lead:
            self.lead = _followed(self.lead, min(took, MAX_LEAD), QUICK)

    def measure_preparation(self, took: float) -> None:
        """Learn that the middleware of a page needed ``took`` seconds."""
        if took > MIN_LEAD or self.preparation:
            self.preparation = _followed(self.preparation, min(took, MAX_PREPARATION), PATIENT)

    def sent(self, slot: int, now: float, amount: float) -> None:
        """Record the send of the request in ``slot``."""
        self.unsent -= 1
        # Exactly 0.0 without such requests, because a sum of floats keeps a rounding error.
        self.reserved = self.reserved - amount if self.unsent else 0.0
        self.last_sent = max(self.last_sent, now)
        if self.last_prepared <= now:  # otherwise a later preparation has used the draw
            self._drawn = None
            if self.last_prepared == now:
                self.last_prepared = -inf
        if self.slots is not None:
            self.slots.sent(slot, now)

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count the send of ``slot`` at ``sent_at`` from ``now``, unless another request was sent since."""
        if self.last_sent == sent_at:
            self.last_sent = now
        if self.slots is not None:
            self.slots.written(slot, sent_at, now)

    def restore(self, sent_at: float, slots: tuple[float, ...] = ()) -> None:
        """Restore the sends of an earlier run: the latest send, and the sends of resting slots, in event loop time."""
        self.last_sent = max(self.last_sent, sent_at)
        if slots and not self.in_flight:
            self.slots = Slots()
            for at in slots:
                self.slots.open(is_busy=False, sent_at=at)


def _followed(lead: float, took: float, patience: float) -> float:
    """Return the new lead after a request needed ``took`` seconds. It rises quickly and falls slowly.

    The first request counts fully. After that, the lead rises by half of the difference, so that one slow lookup does
    not bring several requests forward. It falls by ``1 / patience`` of the difference, so that if the times vary, most
    requests are ready before their send time. With an eighth, a tenth of a rate was lost.
    """
    followed = lead + (took - lead) / (2.0 if took > lead else patience) if lead else took
    if abs(took - followed) < MIN_LEAD:
        followed = took
    return 0.0 if followed < MIN_LEAD else followed
