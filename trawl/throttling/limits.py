"""What one throttling scope is allowed: the configured limits, as a frozen value.

Defaults and overrides meet here (A13-A16, E20, I06, I10): a host-like scope starts from the per-domain settings, any
other from "unlimited"; what the scope's own configuration names replaces it, key by key. What policies move while the
crawl runs lives on the scope, never here: this is the base that backing off returns to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from trawl.throttling.settings import ThrottlingSettings

__all__ = ["EXACT", "Jitter", "Limits", "jitter_factors", "limits_of"]

Jitter = tuple[float, float]
"""The lowest and the highest factor that an interval may be multiplied by."""

EXACT: Jitter = (1.0, 1.0)
"""No jitter: every interval is what it says."""

HALF = 0.5


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one scope as configured.

    Attributes:
        concurrency: Requests in flight at once; ``inf`` for no limit.
        delay: Seconds between any two sends, whatever the slot (A05).
        delay_per_slot: Seconds between two sends in the same slot, from the earlier send (A06).
        jitter: The factors between which each interval is drawn; (1, 1) is exact (A17-A19).
        quota: What may be spent in a window, in the user's unit; ``inf`` for no quota (F01).
        window: Seconds that a quota lasts; at 0 it never blocks (F06).
        sliding: Whether the window slides in place of being anchored at its first consumption (F02).
        pages: Pages in the whole crawl; ``inf`` for no budget (C11).
    """

    concurrency: float = math.inf
    delay: float = 0.0
    delay_per_slot: float = 0.0
    jitter: Jitter = EXACT
    quota: float = math.inf
    window: float = 60.0
    sliding: bool = False
    pages: float = math.inf


def jitter_factors(value: bool | float | list[float] | tuple[float, float]) -> Jitter:
    """The factors that a jitter setting stands for (A17-A19).

    Args:
        value: True is ±50 %, False (or 0) is exact, a number x is [1-x, 1+x], a pair [lo, hi] is [1+lo, 1+hi].

    Raises:
        ValueError: A factor would be negative, or the pair is the wrong way round.
    """
    if value is True:
        return (1.0 - HALF, 1.0 + HALF)
    if value is False:
        return EXACT
    if isinstance(value, int | float):
        low, high = -float(value), float(value)
    else:
        low, high = (float(part) for part in value)
    if not -1.0 <= low <= high < math.inf:
        raise ValueError(f"a jitter is a number from 0 to 1 or a pair from -1 up in rising order, not {value!r}")
    return (1.0 + low, 1.0 + high)


def limits_of(config: Mapping[str, Any], settings: ThrottlingSettings, *, is_host: bool) -> Limits:
    """The limits of a scope: its own keys over the defaults of its kind.

    Args:
        config: The scope's entry in ``THROTTLING_SCOPES``, checked; empty for a scope that has none (I10).
        settings: The defaults.
        is_host: Whether the scope is host-like and so inherits the per-domain settings (E20).
    """
    concurrency: float = settings.concurrent_requests_per_domain if is_host else math.inf
    delay = settings.download_delay if is_host else 0.0
    delay_per_slot = settings.download_delay_per_slot if is_host else 0.0
    if (rate := config.get("rate")) is not None:  # I06: a rate says it all
        concurrency, delay, delay_per_slot = math.inf, 1.0 / rate, 0.0
    jitter = config.get("jitter")
    return Limits(
        concurrency=config.get("concurrency", concurrency),
        delay=float(config.get("delay", delay)),
        delay_per_slot=float(config.get("delay_per_slot", delay_per_slot)),
        jitter=jitter_factors(settings.randomize_download_delay if jitter is None else jitter),
        quota=float(config.get("quota", math.inf)),
        window=float(config.get("window", settings.throttling_window)),
        sliding=bool(config.get("sliding", False)),
        pages=config.get("pages") or (settings.pages_per_domain if is_host else 0) or math.inf,
    )
