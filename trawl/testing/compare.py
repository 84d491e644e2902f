"""What runs at different settings come to, side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from trawl.testing.simulation import Simulation

__all__ = ["Verdict", "groups_of", "verdict_of"]

REFUSALS = frozenset({429, 503})
_BETWEEN_PAIRS = re.compile(r"\s+(?=[A-Z][A-Z0-9_]*=)")


@attrs.frozen(kw_only=True)
class Verdict:
    """What one run comes to.

    Attributes:
        settings: What was set for it, as it was typed.
        reason: How it ended.
        elapsed: Seconds of virtual time.
        sends: How often something went to the wire.
        items: How many items it gave.
        refused: Answers that said 429 or 503.
        unanswered: Sends without a whole answer.
        rate: Sends a second over the whole run.
        most_in_flight: The most requests on the wire at once.
        limited: The limits that held requests up, with the seconds, over all scopes; the longest first.
    """

    settings: str
    reason: str
    elapsed: float
    sends: int
    items: int
    refused: int
    unanswered: int
    rate: float
    most_in_flight: int
    limited: Sequence[tuple[str, float]]


def verdict_of(simulation: Simulation, settings: str = "") -> Verdict:
    """What ``simulation`` comes to; ``settings`` tells it from others."""
    limited: Counter[str] = Counter()
    for report in simulation.report:
        for limit, seconds in report.limited.items():
            limited[limit] += seconds  # type: ignore[assignment]
    sends, elapsed = simulation.sends, simulation.elapsed
    return Verdict(
        settings=settings,
        reason=simulation.reason,
        elapsed=elapsed,
        sends=len(sends),
        items=len(simulation.items),
        refused=sum(send.status in REFUSALS for send in sends),
        unanswered=sum(send.status is None for send in sends),
        rate=len(sends) / elapsed if elapsed else 0.0,
        most_in_flight=simulation.most_in_flight(),
        limited=[(limit, seconds) for limit, seconds in limited.most_common() if seconds > 0],
    )


def groups_of(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of settings to compare, out of texts ``NAME=VALUE`` as ``--set`` takes them.

    Settings belong together until a name comes again, which begins the next group: ``A=1 B=2 A=3`` is the groups
    ``A=1 B=2`` and ``A=3``. One text with several settings, ``"A=1 B=2"``, is a group of its own. Without any text
    there is one group without settings.
    """
    groups: list[list[str]] = []
    names: set[str] = set()
    is_open = False
    for text in texts:
        pairs = _BETWEEN_PAIRS.split(text.strip())
        fresh = {pair.partition("=")[0].strip() for pair in pairs}
        if not is_open or len(pairs) > 1 or fresh & names:
            groups.append([])
            names = set()
        groups[-1] += pairs
        names |= fresh
        is_open = len(pairs) == 1
    return [tuple(group) for group in groups] or [()]
