"""The claim: what keeps a request of several scopes from being passed for ever.

Theory of operation. A lane of several scopes goes only when all are open at once; traffic that needs only one of them
can keep that from ever happening, by places and by delays alone. A lane that is looked at, finds one of its scopes
closed, and was passed at least ``PASSES`` times since its turn asks for the claim. There is one *claimant* in the whole
core, so there is nobody to deadlock with; who asks while the seat is taken stands in line, first come, first served.

What a claim does: its scopes let no *later* lane through (one of a lower priority, or of the same and a later turn)
while that could be in the claimant's way. Earlier and better lanes are not held up, so a claim never turns the order
round, and nothing starves behind claims.

When it ends: the claimant went; it is empty; its origin's gate closed; or what it waits for is a backoff, a quota or a
hint, for holding one scope idle through another's block of 300 s would be a defect. When a better priority passes the
claimant and others are in line, it goes to the end of the line, or traffic of a high priority would keep the seat
taken.

Passes are what the scopes' grant counters say, earlier lanes included: an upper bound, which costs nothing to keep.
What goes by while a lane's own time has not come (its host's delay, say, when another scope of it is shared) is counted
as well, but leads to a claim only when the lane is looked at, that is, when the last of its times has come.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.scheduler.lanes import Lane

__all__ = ["PASSES", "Claims"]

PASSES = 8
"""A lane that was passed so often asks for the claim. With two scopes it then waits for at most twice as many; the
promise (F12) is 32."""


class Claims:
    """The one seat, and the line for it.

    Attributes:
        claimant: Who has it, or None.
    """

    __slots__ = ("_line", "claimant")

    def __init__(self) -> None:
        self.claimant: Lane | None = None
        self._line: deque[tuple[Lane, int]] = deque()

    def ask(self, lane: Lane) -> bool:
        """Seat ``lane`` if the seat is free, else put it in line once; whether it is seated."""
        if self.claimant is None:
            self.claimant = lane
            lane.is_claiming = True
            return True
        if not lane.is_starving:
            lane.is_starving = True
            self._line.append((lane, lane.turn))
        return False

    def leave(self, lane: Lane) -> None:
        """Take the claimant out of its seat."""
        lane.is_claiming = False
        self.claimant = None

    def seat_next(self) -> Lane | None:
        """Seat the first in line, if the seat is free; who it is."""
        while self._line and self.claimant is None:
            lane, turn = self._line.popleft()
            if lane.is_starving and lane.turn == turn:
                lane.is_starving = False
                lane.is_claiming = True
                self.claimant = lane
        return self.claimant

    def has_line(self) -> bool:
        """Whether somebody is in line."""
        while self._line and not (self._line[0][0].is_starving and self._line[0][0].turn == self._line[0][1]):
            self._line.popleft()
        return bool(self._line)
