"""What an outcome means for its scopes: the user's manager is asked, or nobody has to be.

As long as no method of the default manager is overridden, the answer is found without a coroutine and without a
mapping for each response: almost always it is "nothing".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trawl.errors import SoftBlocked
from trawl.throttling.manager import Asked, Decider, ThrottlingManager, asked, awaited, is_overridden
from trawl.throttling.said import said
from trawl.throttling.signals import Signal, signals_of

if TYPE_CHECKING:
    from trawl.http import Outcome, Response
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.sent import Sent

__all__ = ["Asking", "is_trigger"]

_HOOKS = ("get_response_backoff", "get_exception_backoff", "get_response_delay")


def is_trigger(policy: ScopePolicy, response: Response | None, exception: Exception | None) -> bool:
    """Whether an answer says "slow down" to one scope: as its scope manager says, else as its backoff does."""
    if isinstance(exception, SoftBlocked):  # the user has said so
        return True
    if policy.manager is not None:
        answer = said(policy.manager, "is_trigger", policy.kind.failed, response, exception)
        if answer is not None:
            return bool(answer)
    return policy.kind.backoff.is_trigger(None if response is None else response.status, exception)


class Asking:
    """Asks one crawl's manager what outcomes mean.

    Args:
        manager: The manager.
        default: Answers where the manager has no method for it.
        decider: Whose questions these are.

    Attributes:
        is_custom: Whether the manager has a word of its own, so that :meth:`ask` has to be awaited.
    """

    def __init__(self, manager: Any, default: ThrottlingManager, decider: Decider) -> None:
        self.is_custom: bool = is_overridden(manager, *_HOOKS)
        self._manager = manager
        self._default = default
        self._decider = decider

    def own_signals(self, entry: Sent, outcome: Outcome, policies: Sequence[ScopePolicy]) -> dict[str, Signal] | None:
        """What the default manager says; None (almost always): nothing.

        Args:
            entry: The request.
            outcome: What became of it.
            policies: Of its scopes, in their order.
        """
        response, error = outcome.response, outcome.error
        if response is None and error is None:
            return None
        told = [
            id for (id, _), policy in zip(entry.scopes, policies, strict=True) if is_trigger(policy, response, error)
        ]
        if not told:
            return None
        hint = None if response is None else self._default.hint_nowait(response)
        return dict.fromkeys(told, Signal() if hint is None else Signal(delay=hint.delay, header=hint.header))

    async def ask(self, entry: Sent, outcome: Outcome) -> dict[str, Signal]:
        """What the user's manager says. A checkpoint only where its answer is one. Raises whatever it raises."""
        response = outcome.response
        requests = [entry.request, outcome.request]
        if response is not None and response.request is not None:
            requests.append(response.request)
        token = asked.set(Asked(self._decider, tuple(requests), entry.scopes))
        try:
            return await self._answer(entry, outcome)
        finally:
            asked.reset(token)

    async def _answer(self, entry: Sent, outcome: Outcome) -> dict[str, Signal]:
        ask: Any
        if outcome.response is not None:
            ask = getattr(self._manager, "get_response_backoff", self._default.get_response_backoff)
            answer = await awaited(ask(outcome.response))
            hint = self._default.hint_nowait(outcome.response) if answer else None
            return signals_of(answer, "" if hint is None else hint.header)
        if outcome.error is not None:
            ask = getattr(self._manager, "get_exception_backoff", self._default.get_exception_backoff)
            return signals_of(await awaited(ask(entry.request, outcome.error)))
        return {}
