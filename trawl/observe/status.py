"""The estimated end of a crawl.

The estimate is pure arithmetic: the pending requests of each scope, divided by the rate that the limits in force allow.
It counts pending requests only, so a crawl that still finds links lasts longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import inf

from msgspec import Struct

from trawl.observe.text import duration_words

__all__ = ["Estimate", "ScopeEstimate", "SendLimit", "estimate", "estimate_words"]

MAX_LAST = 5
"""Number of scopes in an estimate, the last to end first."""


class SendLimit(Struct, frozen=True, kw_only=True):
    """The rate that limits allow.

    Attributes:
        rate: Requests per second; ``inf`` without a limit, 0.0 if nothing may be sent.
        reason: The limit that sets the rate, in words; "" without a limit.
        opens_in: Seconds until the first request may be sent.
    """

    rate: float = inf
    reason: str = ""
    opens_in: float = 0.0

    def lasts(self, requests: int) -> float:
        """Return the seconds until this many requests have been sent; ``inf`` if that never happens."""
        if not requests:
            return 0.0
        # The first request is sent at once. The following requests each need an interval.
        return self.opens_in + ((requests - 1) / self.rate if self.rate > 0.0 else inf)


class ScopeEstimate(Struct, frozen=True, kw_only=True):
    """The estimated end of one scope's pending requests. Most scopes are hosts.

    Attributes:
        scope: The id of the scope.
        pending: Number of its pending requests.
        seconds: Seconds until the last of these requests is sent.
        reason: The limit that sets the rate, in words.
    """

    scope: str
    pending: int
    seconds: float
    reason: str = ""


class Estimate(Struct, frozen=True, kw_only=True):
    """The estimated end of a crawl, from its pending requests and the limits in force.

    Attributes:
        seconds: Seconds until the last pending request is sent; ``inf`` if a scope lets nothing through.
        scope: The id of the scope that ends last; "" if the limits of the whole crawl decide.
        reason: The limit that decides, in words.
        scopes: The scopes that end last, the last one first.
    """

    seconds: float
    scope: str = ""
    reason: str = ""
    scopes: Sequence[ScopeEstimate] = ()


def estimate(
    pending: Mapping[str, int],
    limits: Mapping[str, SendLimit],
    *,
    total: int | None = None,
    places: SendLimit = SendLimit(),  # noqa: B008 - frozen
    most: int = MAX_LAST,
) -> Estimate | None:
    """Return the estimated end of the pending requests; None if nothing is pending.

    The crawl ends when its last scope ends, or later if the whole crawl has too few places. A request of several scopes
    counts in each of them.

    Args:
        pending: Number of pending requests by scope (by host, if each host is one scope).
        limits: The limit of each scope. A scope without an entry has none.
        total: Number of pending requests; None: the sum of ``pending``.
        places: The limit of the whole crawl, such as ``CONCURRENT_REQUESTS`` divided by the seconds of a request.
        most: Maximum number of scopes in the result.
    """
    total = sum(pending.values()) if total is None else total
    if not total:
        return None
    unlimited = SendLimit()
    found = []
    for scope, count in pending.items():
        limit = limits.get(scope, unlimited)
        found.append(ScopeEstimate(scope=scope, pending=count, seconds=limit.lasts(count), reason=limit.reason))
    last = nlargest(most, found, key=lambda each: each.seconds)
    seconds = places.lasts(total)
    if last and last[0].seconds >= seconds:
        return Estimate(seconds=last[0].seconds, scope=last[0].scope, reason=last[0].reason, scopes=last)
    return Estimate(seconds=seconds, reason=places.reason, scopes=last)


def estimate_words(found: Estimate | None) -> str:
    """Return an estimate in words: ``pending ends in 3 h 10 min: b.example (delay 5 s), a.example in 2 min``.

    "" if nothing is pending.
    """
    if found is None:
        return ""
    words = "pending never ends" if found.seconds == inf else f"pending ends in {duration_words(found.seconds)}"
    by = found.scope if not found.reason else f"{found.scope} ({found.reason})" if found.scope else found.reason
    ends = ["never" if each.seconds == inf else f"in {duration_words(each.seconds)}" for each in found.scopes]
    others = [f"{each.scope} {end}" for each, end in zip(found.scopes, ends, strict=True) if each.scope != found.scope]
    return f"{words}: {', '.join([*([by] if by else []), *others])}" if by or others else words
