"""The Crawl-delays that robots.txt asks for, by scope.

Several origins may lead to one scope: ``http`` and ``https`` of a host do, and all hosts at an address with
``CONCURRENT_REQUESTS_PER_IP``. The longest of their wishes counts, so that none is undercut. What an origin says anew
replaces what it said before, so that a wish which is gone from its robots.txt is gone here.
"""

from __future__ import annotations

__all__ = ["CrawlDelays"]

MOST_ORIGINS = 100
"""Origins that are told apart in one scope; of more, the longest wish is all that is kept."""


class CrawlDelays:
    """What was asked for, and is obeyed. Hot when it is empty: test it first.

    Args:
        most: Scopes kept; of more, those that came first are forgotten.
    """

    __slots__ = ("_most", "_wishes")

    def __init__(self, most: int) -> None:
        self._most = most
        self._wishes: dict[str, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._wishes)

    def of(self, id: str) -> float:
        """The Crawl-delay of a scope, in seconds; 0.0 for none."""
        return max(self._wishes.get(id, {}).values(), default=0.0)

    def say(self, id: str, origin: str, delay: float) -> bool:
        """Note what an origin asks for (seconds; 0.0: nothing, or nothing any more); whether that changes its scope."""
        before = self.of(id)
        if delay > 0.0:
            wishes = self._wishes.setdefault(id, {})
            if origin not in wishes and len(wishes) >= MOST_ORIGINS:
                origin = min(wishes, key=lambda known: wishes[known])
                delay = max(delay, wishes[origin])
            wishes[origin] = delay
        elif origin in self._wishes.get(id, {}):
            del self._wishes[id][origin]
            if not self._wishes[id]:
                del self._wishes[id]
        if len(self._wishes) > self._most:
            del self._wishes[next(iter(self._wishes))]
        return self.of(id) != before
