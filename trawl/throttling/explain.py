"""Why something waits, and what became of each scope: answers as data (I11).

Each "not before" carries its scope, its limit and where that limit comes from; the API, the log, the live panel and
the table at the end read these same values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import attrs

from trawl.http import Times

__all__ = ["LimitName", "Reason", "ScopeReport", "limit_words"]

LimitName = Literal[
    "concurrency",
    "delay",
    "delay_per_slot",
    "quota",
    "pages",
    "backoff",
    "hint",
    "robots",
    "gate",
    "claim",
    "places",
    "callbacks",
    "not_before",
]
"""What can hold a request back."""

_NAMES: Mapping[str, str] = {"robots": "Crawl-delay", "gate": "robots.txt"}

_WORDS: Mapping[str, str] = {
    "concurrency": "all slots are busy",
    "delay_per_slot": "delay per slot",
    "pages": "its last pages are on their way",
    "robots": "robots.txt",
    "gate": "robots.txt is being read",
    "claim": "a request of several scopes goes first",
    "places": "CONCURRENT_REQUESTS are in flight",
    "callbacks": "CONCURRENT_CALLBACKS are running",
    "not_before": "the request's own delay",
}


def limit_words(limit: str) -> str:
    """A limit as a table names it."""
    return _NAMES.get(limit, limit.replace("_", " "))


@attrs.frozen
class Reason:
    """Why a request, or a whole scope, waits.

    Attributes:
        scope: The id of the scope that holds it; "" where no scope does.
        limit: Which limit holds it; "" where nothing does.
        until: The instant on the run's clock (seconds) when that limit lets one through; ``inf``: only a release helps.
        source: Where the limit comes from: configuration, robots.txt, the header of which response, backoff step n.
    """

    scope: str
    limit: str
    until: float = math.inf
    source: str = ""

    def text(self, now: float) -> str:
        """This reason in one line, with the seconds left at ``now``."""
        if not self.limit:
            return f"{self.scope} may go".lstrip()
        left = "" if self.until == math.inf else f" {_seconds(self.until - now)} s"
        words = _WORDS.get(self.limit, self.limit)
        source = "" if self.source in ("", words) else f" ({self.source})"
        return f"{self.scope} {words}{left}{source}".lstrip()


def _seconds(left: float) -> str:
    """Seconds for people: to the hundredth below ten, whole above, never negative, never with an exponent."""
    return f"{round(left):d}" if left >= 9.995 else f"{round(max(0.0, left), 2):g}"


@attrs.frozen(kw_only=True)
class ScopeReport:
    """What one scope did in the crawl: one row of the table at the end.

    Attributes:
        scope: Its id.
        requests: Requests charged to it that came to an end.
        sends: Times that one of them went to the wire.
        rate: Sends a second between its first and its last send; 0 with fewer than two.
        allowed: Sends a second that its limits allowed in that time, with what was drawn, asked and backed off; never
            less than ``rate``, ``inf`` where they kept nothing waiting. With fewer than two sends: what is in force.
        delay: The delay in force, in seconds.
        concurrency: The concurrency in force.
        times: Where the time of one of its requests went, on average; of those since the scope was made.
        limited: Seconds that requests waited for it, by the limit that held them; ``"gate"`` where all of them waited
            for robots.txt.
        triggers: Answers that said "slow down".
        steps: Backoff steps taken (one an incident).
        hints: Headers obeyed.
        last_hint: The header obeyed last, and of which response; "" without any.
    """

    scope: str
    requests: int = 0
    sends: int = 0
    rate: float = 0.0
    allowed: float = math.inf
    delay: float = 0.0
    concurrency: float = math.inf
    limited: Mapping[str, float] = attrs.field(factory=dict)
    times: Times = attrs.field(factory=Times)
    triggers: int = 0
    steps: int = 0
    hints: int = 0
    last_hint: str = ""
