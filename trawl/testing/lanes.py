"""Sends arranged for a picture: a lane for each scope, a row for each of its slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from trawl.testing.sends import Send

__all__ = ["Lane", "lanes_of"]

MOST_LANES = 40
UNTHROTTLED = "(no scope)"
LONGEST_LABEL = 34


@attrs.frozen
class Lane:
    """One scope of a picture.

    Attributes:
        scope: Its id; "" for what took no scope.
        row_names: The number of the slot of each row, from the top.
        bars: The row of each send, and the send.
    """

    scope: str
    row_names: Sequence[str]
    bars: Sequence[tuple[int, Send]]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.row_names)

    @property
    def label(self) -> str:
        """Its name, cut where it is long."""
        name = self.scope or UNTHROTTLED
        return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def lanes_of(sends: Sequence[Send], scopes: Iterable[str] | None = None) -> tuple[list[Lane], int]:
    """The lanes of a picture from top to bottom, and how many scopes are left out for lack of room.

    Args:
        sends: What is shown.
        scopes: Which scopes, in this order; None: the most used first, then by name, at most 40.
    """
    used = Counter(scope for send in sends for scope in send.slots)
    if scopes is None:
        names = sorted(used, key=lambda scope: (-used[scope], scope))
        kept = names[:MOST_LANES]
    else:
        names = kept = list(scopes)
    lanes = [_lane(scope, [send for send in sends if scope in send.slots]) for scope in kept]
    free = [send for send in sends if not send.slots]
    if free and scopes is None:
        lanes.append(_packed(free))
    return lanes, len(names) - len(kept)


def _lane(scope: str, sends: Sequence[Send]) -> Lane:
    last = max([send.slots[scope] for send in sends], default=1)
    bars = [(send.slots[scope] - 1, send) for send in sends]
    return Lane(scope, [f"slot {number + 1}" for number in range(last)], bars)


def _packed(sends: Sequence[Send]) -> Lane:
    """A lane of sends without slots: each in the first row that is free."""
    ends: list[float] = []
    bars: list[tuple[int, Send]] = []
    for send in sends:
        row = next((row for row, end in enumerate(ends) if end <= send.time), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = send.finished
        bars.append((row, send))
    return Lane("", [""] * len(ends), bars)
