"""Stretches of time in which a scope let nothing go, and why: what a picture shades."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

__all__ = ["Kind", "Stretch", "merged"]

Kind = Literal["delay", "delay_per_slot", "backoff", "hint", "quota", "robots"]
"""What closed the scope."""


@attrs.frozen
class Stretch:
    """From ``start`` to ``end`` a scope sent nothing, whatever waited.

    Attributes:
        scope: The scope's id.
        start: Seconds since the crawl began.
        end: Seconds since the crawl began.
        kind: The limit that closed it.
        source: Where that limit comes from: configuration, backoff step n, the header of which response.
        slot: The one slot that was closed, from 1; 0: the whole scope.
    """

    scope: str
    start: float
    end: float
    kind: Kind = "delay"
    source: str = ""
    slot: int = 0


def merged(stretches: Iterable[Stretch]) -> Sequence[Stretch]:
    """The same stretches, those of one scope, slot and kind that overlap made one; those of slots come first."""
    made: list[Stretch] = []
    for stretch in sorted(stretches, key=_order):
        last = made[-1] if made else None
        if last and _order(last)[:4] == _order(stretch)[:4] and stretch.start < last.end:
            made[-1] = attrs.evolve(last, end=max(last.end, stretch.end))
        else:
            made.append(stretch)
    return made


def _order(stretch: Stretch) -> tuple[str, bool, str, int, float, float]:
    return stretch.scope, not stretch.slot, stretch.kind, stretch.slot, stretch.start, stretch.end
