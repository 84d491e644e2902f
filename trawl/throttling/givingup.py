"""Scopes that were given up: their pending requests end, a later request starts afresh (B20).

What is pending is drained by the chooser, which asks about each request before it grants it; that takes no place and
no time. A request that is admitted afterwards carries the instant in its meta, and so is known to be a later one.
Some of them may wait for a time of their own meanwhile, so a scope stays listed here: the last ten thousand do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from trawl.throttling.excuse import REFUSED_AT

if TYPE_CHECKING:
    from trawl.http import Request
    from trawl.throttling.scopes import Charges
    from trawl.throttling.sent import Sent

__all__ = ["ADMITTED_AT", "GivenUp"]

ADMITTED_AT = "throttling_admitted_at"
"""Meta key: when a request was admitted whose scope had been given up before, in epoch seconds."""

_MOST = 10_000  # scopes listed


class GivenUp:
    """The scopes of one crawl that were given up and are being drained. Hot when it is empty: test it first."""

    __slots__ = ("_at_utc",)

    def __init__(self) -> None:
        self._at_utc: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._at_utc)

    def __contains__(self, id: str) -> bool:
        return id in self._at_utc

    def add(self, id: str, utc: datetime) -> None:
        """Give a scope up now, which is ``utc`` in wall time."""
        self._at_utc.pop(id, None)
        self._at_utc[id] = utc.timestamp()
        if len(self._at_utc) > _MOST:
            del self._at_utc[next(iter(self._at_utc))]

    @property
    def at_utc(self) -> Mapping[str, float]:
        """When which scope was given up, in epoch seconds."""
        return self._at_utc

    def take_up(self, at_utc: Mapping[str, float], utc: datetime) -> None:
        """Go on refusing what was pending when these scopes were given up in an earlier run, which is before ``utc``.

        Also where the machine's clock was set back since: what is admitted now comes later all the same.
        """
        now = utc.timestamp()
        self._at_utc.update({id: min(at, now) for id, at in at_utc.items()})

    def admit(self, request: Request, charges: Charges, utc: datetime) -> None:
        """Mark a request that comes after its scope was given up; one that was refused, and is sent again, does not."""
        given_up = max([self._at_utc[id] for id, _ in charges if id in self._at_utc], default=math.inf)
        if given_up < math.inf and request.meta_get(REFUSED_AT, -math.inf) < given_up:
            request.meta[ADMITTED_AT] = utc.timestamp()

    def refuses(self, entry: Sent) -> bool:
        """Whether a request was pending when one of its scopes was given up."""
        for id, _ in entry.scopes:
            at_utc = self._at_utc.get(id)
            if at_utc is not None:
                admitted_at = entry.request.meta_get(ADMITTED_AT)
                if admitted_at is None or admitted_at < at_utc:
                    return True
        return False
