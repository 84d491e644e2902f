"""What a manager's answer says about each scope, in one form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from trawl.throttling.scopes import ScopeBackoff, iter_scopes, normal_id

__all__ = ["Signal", "signals_of"]

_KEYS = ("delay", "consumed", "consumed_quota", "remaining", "quota")


@attrs.frozen(kw_only=True)
class Signal:
    """What one answer says about one scope.

    Attributes:
        is_trigger: Whether it says "slow down".
        delay: Seconds to send nothing, as a header or a manager says; None: nobody says so.
        header: Where ``delay`` comes from, for explanations.
        consumed: What the request really used of the quota; None: as expected.
        remaining: What is left of the quota; None: not told.
    """

    is_trigger: bool = True
    delay: float | None = None
    header: str = ""
    consumed: float | None = None
    remaining: float | None = None


def signals_of(backoff: ScopeBackoff, header: str = "") -> dict[str, Signal]:
    """What a backoff method returned, by scope (E09, E11).

    ``{}`` (or a bare id) means exhausted; ``consumed`` or ``remaining`` without a ``delay`` correct the
    quota and nothing else.

    Raises:
        TypeError: It has none of the forms, or a figure is no number.
        ValueError: A figure is negative, not finite, or has an unknown name.
    """
    if backoff is None:
        return {}
    if not isinstance(backoff, Mapping):
        return {normal_id(id): Signal() for id in iter_scopes(backoff)}
    return {normal_id(id): _signal(id, figures, header) for id, figures in backoff.items()}


def _signal(id: str, figures: Any, header: str) -> Signal:
    if not isinstance(id, str):
        raise TypeError(f"the id of a scope is a string, not {id!r}")
    if figures is None:
        return Signal()
    if not isinstance(figures, Mapping):
        raise TypeError(f"what backs scope {id!r} off is a mapping of {', '.join(_KEYS)}, not {figures!r}")
    for name, figure in figures.items():
        if name not in _KEYS:
            raise ValueError(f"what backs scope {id!r} off has an unknown key {name!r}; known are {', '.join(_KEYS)}")
        if figure is None:
            continue
        if isinstance(figure, bool) or not isinstance(figure, int | float):
            raise TypeError(f"{name!r} of scope {id!r} is a number, not {figure!r}")
        if not 0 <= figure < math.inf:
            raise ValueError(f"{name!r} of scope {id!r} must be a number from 0 up, not {figure!r}")
    delay = figures.get("delay")
    consumed = figures.get("consumed", figures.get("consumed_quota"))
    remaining = figures.get("remaining", figures.get("quota"))
    return Signal(
        is_trigger=delay is not None or (consumed is None and remaining is None),
        delay=delay or None,
        header=header if delay else "",
        consumed=consumed,
        remaining=remaining,
    )
