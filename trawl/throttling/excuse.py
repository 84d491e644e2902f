"""Whether a trigger counts as one of its request's retries (B20).

Backing off loses nothing: a refusal is the scope's affair, not the request's. So an answer that says when to come
back never counts, and any other trigger counts only where the scope is healthy, that is where it gave a good answer
since this request was refused last (the first time: since anything was refused). One bad page on a healthy host ends
after its retries; an outage ends nobody. A scope that never answered and can't be connected to is no outage, it is
not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from trawl.errors import ConnectFailed, ConnectTimeout

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.sent import Sent
    from trawl.throttling.signals import Signal

__all__ = ["REFUSED_AT", "is_excused"]

REFUSED_AT = "throttling_refused_at"
"""Meta key: when this request was refused last, in epoch seconds; it goes with the request when that is sent again."""


def is_excused(
    entry: Sent,
    outcome: Outcome,
    policies: Sequence[ScopePolicy],
    signals: Iterable[Signal],
    *,
    now: float,
    utc: datetime,
) -> bool:
    """Whether the request is to be sent again without that being a retry. Notes the refusal in the request's meta.

    Args:
        entry: The request.
        outcome: What became of it.
        policies: Of the scopes for which it is a trigger, as they were before it.
        signals: What was told about its scopes.
        now: The instant.
        utc: The same in wall time.
    """
    if not policies or (outcome.error is not None and not getattr(outcome.error, "is_retryable", False)):
        return False
    refused_utc = entry.request.meta_get(REFUSED_AT)
    refused_at = None if refused_utc is None else now - max(0.0, utc.timestamp() - refused_utc)
    for request in {id(each): each for each in (entry.request, outcome.request)}.values():
        request.meta[REFUSED_AT] = utc.timestamp()
    for policy in policies:
        ask = getattr(policy.manager, "is_retry", None)
        is_retry = None if ask is None else ask(entry.request, outcome.response, outcome.error)
        if is_retry is not None:
            return not is_retry
    if outcome.response is not None and outcome.response.status == 429:
        return True
    if any(signal.delay for signal in signals if signal.is_trigger):
        return True
    if isinstance(outcome.error, ConnectFailed | ConnectTimeout) and not any(each.has_answered for each in policies):
        return False
    return not all(_was_healthy(policy, refused_at) for policy in policies)


def _was_healthy(policy: ScopePolicy, refused_at: float | None) -> bool:
    return policy.good_at > (policy.triggered_at if refused_at is None else refused_at)
