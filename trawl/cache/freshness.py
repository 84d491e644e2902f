"""How old a stored response is, and how old it may get (RFC 9111, 4.2). Pure: the time is handed in.

hishel, whose rules the rest of the policy is, reads the machine's clock where it counts ages; a simulated crawl has
another one. So this part is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trawl.cache.stored import Stored
from trawl.http import parse_date

__all__ = ["HEURISTIC_SHARE", "age_of", "directives_of", "is_fresh", "lifetime_of"]

HEURISTIC_SHARE = 0.1
"""A response that says nothing of its age is fresh for this part of the time since it was changed (RFC 9111, 4.2.2)."""

MOST_HEURISTIC = 7 * 86_400.0
"""Seconds. No guess goes further than a week."""

_HEURISTIC_STATUSES = frozenset({200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501})  # RFC 9110, 15.1


def directives_of(values: Iterable[str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """The directives of ``Cache-Control`` by name in lower case; the value of one that has none is "" (RFC 9111, 5.2).

    Args:
        values: The field's values.
        ignored: Names that are left out.
    """
    found: dict[str, str] = {}
    for part in ",".join(values).split(","):  # a comma inside quotes cuts a list of field names, of which only the
        name, _, value = part.partition("=")  # first then counts as the directive's: it is the directive that matters
        if name.strip():
            found.setdefault(name.strip().lower(), value.strip().strip('"'))
    for name in ignored:
        found.pop(name.lower(), None)
    return found


def lifetime_of(stored: Stored, directives: Mapping[str, str]) -> float:
    """For how many seconds a response is fresh, from when it was made; a private cache obeys no ``s-maxage``."""
    headers = stored.headers
    if (seconds := _seconds(directives.get("max-age"))) is not None:
        return seconds
    made = _moment(headers.get("Date"))
    made = stored.came_at if made is None else made
    expires = headers.getlist("Expires")
    if expires:
        until = _moment(expires[0])
        return 0.0 if until is None else until - made
    changed = _moment(headers.get("Last-Modified"))
    if changed is None or (stored.status not in _HEURISTIC_STATUSES and "public" not in directives):
        return 0.0
    return min(MOST_HEURISTIC, max(0.0, made - changed) * HEURISTIC_SHARE)


def age_of(stored: Stored, now: float) -> float:
    """How many seconds old a response is at ``now`` (epoch seconds), its way through other caches included (4.2.3)."""
    headers = stored.headers
    made = _moment(headers.get("Date"))
    apparent = 0.0 if made is None else max(0.0, stored.came_at - made)
    told = (_seconds(headers.get("Age")) or 0.0) + (stored.came_at - stored.asked_at)
    return max(apparent, told) + max(0.0, now - stored.came_at)


def is_fresh(stored: Stored, directives: Mapping[str, str], wishes: Mapping[str, str], now: float) -> bool:
    """Whether a response may be given without asking its server (RFC 9111, 4.2 and 5.2).

    Args:
        stored: The response.
        directives: What it says in ``Cache-Control``.
        wishes: What the request says there.
        now: Epoch seconds.
    """
    if "no-cache" in directives or "no-cache" in wishes:
        return False
    age, lifetime = age_of(stored, now), lifetime_of(stored, directives)
    oldest = _seconds(wishes.get("max-age"))
    if oldest is not None and age > oldest:
        return False
    if age + (_seconds(wishes.get("min-fresh")) or 0.0) < lifetime:
        return True
    if "max-stale" not in wishes or "must-revalidate" in directives:
        return False
    most = _seconds(wishes["max-stale"])
    return age - lifetime <= (math.inf if most is None else most)


def _seconds(text: str | None) -> float | None:
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return float(text[:12])


def _moment(text: str | None) -> float | None:
    moment = None if text is None else parse_date(text)
    return None if moment is None else moment.timestamp()
