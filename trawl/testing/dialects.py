"""How servers tell what is left of a limit: the header dialects of the drafts and of vendors.

The inverse of what throttling reads (D14). Times that a field counts in seconds are whole seconds, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import attrs

__all__ = ["DIALECTS", "Standing"]


@attrs.frozen
class Standing:
    """Where a client stands with a limit.

    Attributes:
        limit: Requests that a full bucket holds.
        remaining: Whole requests that are left.
        window: Seconds in which an empty bucket fills; ``inf`` if it never does.
        reset: Seconds until there is a request again (none left), or until all are there again.
        now_utc: The server's time.
    """

    limit: int
    remaining: int
    window: float
    reset: float
    now_utc: datetime


def _whole(seconds: float) -> int:
    """Whole seconds, rounded up; a year for what never comes."""
    return math.ceil(min(seconds, 31_536_000.0) - 1e-9)


def _draft_03(standing: Standing) -> dict[str, str]:
    return {
        "RateLimit-Limit": f"{standing.limit}, {standing.limit};w={_whole(standing.window)}",
        "RateLimit-Remaining": str(standing.remaining),
        "RateLimit-Reset": str(_whole(standing.reset)),
    }


def _draft_07(standing: Standing) -> dict[str, str]:
    return {
        "RateLimit": f"limit={standing.limit}, remaining={standing.remaining}, reset={_whole(standing.reset)}",
        "RateLimit-Policy": f"{standing.limit};w={_whole(standing.window)}",
    }


def _draft_10(standing: Standing) -> dict[str, str]:
    return {
        "RateLimit-Policy": f'"default";q={standing.limit};w={_whole(standing.window)}',
        "RateLimit": f'"default";r={standing.remaining};t={_whole(standing.reset)}',
    }


def _vendor(prefix: str, standing: Standing, *, is_epoch: bool) -> dict[str, str]:
    reset = _whole(standing.reset)
    if is_epoch:
        reset += math.ceil((standing.now_utc - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return {
        f"{prefix}-Limit": str(standing.limit),
        f"{prefix}-Remaining": str(standing.remaining),
        f"{prefix}-Reset": str(reset),
    }


DIALECTS: Mapping[str, Callable[[Standing], dict[str, str]]] = {
    "draft-03": _draft_03,
    "draft-07": _draft_07,
    "draft-10": _draft_10,
    "x-ratelimit": lambda standing: _vendor("X-RateLimit", standing, is_epoch=False),
    "x-ratelimit-epoch": lambda standing: _vendor("X-RateLimit", standing, is_epoch=True),
    "x-rate-limit": lambda standing: _vendor("X-Rate-Limit", standing, is_epoch=False),
}
"""Name to the fields it writes: IETF drafts 00-06, 07 and 08-11 of RateLimit, and three vendors' habits."""
