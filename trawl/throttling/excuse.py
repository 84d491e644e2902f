"""Whether a request that was refused is sent again, and whether that is one of its retries (B20).

Backing off loses nothing: a refusal is the scope's affair, not the request's, so a trigger is sent again, whatever
its status; only a page that came (2xx, 3xx) is kept, even where a manager takes it for a trigger. An answer that says
when to come back never counts as a retry. Any other trigger counts only where the scope is healthy, that is where it
gave a good answer since this request was refused last. The first refusal may be the first sign of an outage, so it is
counted with the second one, when that shows that it was not. One bad page on a healthy host so ends after its
retries; an outage ends nobody. A scope that never answered and can't be connected to is no outage, it is not there.

A page that was shown so to fail on a healthy host may be all that is left to send, and then nothing can give a good
answer any more. Its further refusals count as long as it is only such pages that the scope refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from trawl.errors import ConnectFailed, ConnectTimeout
from trawl.throttling.said import said

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.sent import Sent
    from trawl.throttling.signals import Signal

__all__ = ["BAD_PAGE", "REFUSED_AT", "UNCOUNTED", "judge", "passed_by"]

REFUSED_AT = "throttling_refused_at"
"""Meta key: when this request was refused last, in epoch seconds; it goes with the request when that is sent again."""

BAD_PAGE = "throttling_bad_page"
"""Meta key: it was refused on a scope that answered others well before and since."""

UNCOUNTED = "throttling_uncounted"
"""Meta key: it failed before, not with an excuse of its own, and that was not counted for want of a good answer."""

TOO_MANY_REQUESTS = 429
_KEPT = range(200, 400)


def judge(
    entry: Sent,
    outcome: Outcome,
    policies: Sequence[ScopePolicy],
    signals: Iterable[Signal],
    *,
    now: float,
    utc: datetime,
) -> None:
    """Set ``is_trigger`` and ``is_excused`` of an outcome. Notes the refusal in the request's meta.

    Args:
        entry: The request.
        outcome: What became of it.
        policies: Of the scopes for which it is a trigger, as they were before it.
        signals: What was told about its scopes.
        now: The instant.
        utc: The same in wall time.
    """
    response, error = outcome.response, outcome.error
    if not policies or (response is not None and response.status in _KEPT):
        return
    if error is not None and not getattr(error, "is_retryable", False):
        return
    outcome.is_trigger = True
    refused_utc = entry.request.meta_get(REFUSED_AT)
    refused_at = None if refused_utc is None else now - max(0.0, utc.timestamp() - refused_utc)
    _note(entry, outcome, REFUSED_AT, utc.timestamp())
    is_retry = _said(entry, outcome, policies)
    if is_retry is None:
        has_hint = any(signal.delay for signal in signals if signal.is_trigger)
        is_refusal = has_hint or (response is not None and response.status == TOO_MANY_REQUESTS)
        is_retry = not is_refusal and _counts(entry, outcome, policies, refused_at)
    outcome.is_excused = not is_retry
    if not entry.request.meta_get(BAD_PAGE):
        for policy in policies:
            policy.is_in_doubt = True


def passed_by(entry: Sent, others: Mapping[str, Signal] | None) -> list[str]:
    """The scopes that don't hold a refused request back by themselves, so that it has to wait for them before it goes.

    Args:
        entry: The request.
        others: What was told about scopes that are not among its own.
    """
    ids = [id for id, signal in (others or {}).items() if signal.is_trigger]
    return [*ids, *(id for id, _ in entry.scopes)] if entry.is_exempt else ids


def _said(entry: Sent, outcome: Outcome, policies: Sequence[ScopePolicy]) -> bool | None:
    """Whether it is a retry by the word of a scope's manager; None: none has an opinion."""
    for policy in policies:
        if policy.manager is None:
            continue
        answer = said(policy.manager, "is_retry", policy.kind.failed, entry.request, outcome.response, outcome.error)
        if answer is not None:
            return bool(answer)
    return None


def _counts(entry: Sent, outcome: Outcome, policies: Sequence[ScopePolicy], refused_at: float | None) -> bool:
    if isinstance(outcome.error, ConnectFailed | ConnectTimeout) and not any(each.has_answered for each in policies):
        return True
    is_known = bool(entry.request.meta_get(BAD_PAGE))
    if refused_at is not None and all(policy.good_at > refused_at for policy in policies):
        if not is_known:
            _note(entry, outcome, BAD_PAGE, True)
            if entry.request.meta_get(UNCOUNTED):  # its first failure; a 429 before it stays excused
                _note(entry, outcome, "retry_times", entry.request.meta_get("retry_times", 0) + 1)
        return True
    if is_known and not any(policy.is_in_doubt for policy in policies):
        return True
    _note(entry, outcome, UNCOUNTED, True)
    return False


def _note(entry: Sent, outcome: Outcome, key: str, value: object) -> None:
    for request in {id(each): each for each in (entry.request, outcome.request)}.values():
        request.meta[key] = value
