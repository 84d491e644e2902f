"""The scheduler of a job with several processes. It requests a token for shared scopes before a request is granted.

Theory of operation. A lane without shared scopes is handled as usual. A lane with shared scopes first waits for its
other scopes, then for a *token*, and then for what this process knows of the shared scopes (its own sends, a hold)::

    check ──► other scopes closed? ──► wait there
                      │ open
                      ├── no token ──► request one ──► wait in the queue of the job's store
                      │ token                                │ token received, and its time is reached
                      ▼                                      ▼
                shared scopes open, as known here ───────► granted ──► sent ──► places released
                                                                       (both are reported to the store)

A token that is not used within ``SLACK`` seconds, because one of the other scopes closed or no place is free, is
returned. The lane requests another when it is next checked. If it was often passed in the scope that closed, it keeps
the token as long as it is valid, unless that scope certainly opens too late. If it loses the token then, it reserves
its other scopes while it waits for the next one.

A request needs no token to be prepared. A prepared request needs one, in the same way.

Only the package's ``__init__`` imports it, for the engine, which uses it for a job in a server.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

import attrs

from trawl.scheduler.attempt import Attempt
from trawl.scheduler.lanes import READY, Lane, Refused
from trawl.scheduler.scheduler import Scheduler
from trawl.scheduler.scope_queue import PASSES, ScopeQueue, TokenQueue
from trawl.throttling.scope import Scope
from trawl.throttling.shared import SharedScope, SharedScopeClient, Token

__all__ = ["SLACK", "SharedJobScheduler"]

SLACK = 0.25
"""Seconds for which an unused token is kept."""


class SharedJobScheduler(Scheduler):
    """A scheduler that requests tokens for shared scopes from the client ``line``."""

    __slots__ = ("_asks", "_by_number", "_line", "_losers", "_next_timer", "_timers", "_tokens")

    def __init__(
        self,
        scope_of: Callable[[str, float], Scope],
        *,
        line: SharedScopeClient,
        places: float,
        depth_first: bool = False,
        vet: Callable[[Attempt, float], str | None] | None = None,
    ) -> None:
        super().__init__(scope_of, places=places, depth_first=depth_first, vet=vet)
        self._line = line
        self._asks: dict[Lane, TokenQueue] = {}
        self._by_number: dict[int, TokenQueue] = {}
        self._tokens: dict[Attempt, Token] = {}
        # Lanes that were often passed and lost a token, because a scope that is not shared was closed for too long
        self._losers: set[Lane] = set()
        self._timers: list[tuple[float, int, TokenQueue]] = []
        self._next_timer = count().__next__

    def came(self, token: Token, now: float) -> None:
        """Receive a requested token. :meth:`next_event` returns when it may be used."""
        token_queue = self._by_number.get(token.number)
        # No lane needs it any more, so return it for other processes.
        if token_queue is None:
            self._line.drop(token.number)
            return
        offset = max(
            [scope.spacing.offset(scope.traffic) for scope in token_queue.lane.scopes if isinstance(scope, SharedScope)]
        )
        token_queue.token = token = attrs.evolve(token, at=token.at + offset)
        self._arm(token_queue, max(now, token.at - _lead(token_queue.lane)))

    def grant(self, now: float, *, pages: bool = True) -> Attempt | Refused | None:
        """Return the best attempt that may be sent at ``now``; None if there is none."""
        # First, so that lanes whose token may be used now take part in the choice.
        self._advance(now)
        return super().grant(now, pages=pages)

    def sent(self, attempt: Attempt, now: float, due_at: float = -inf) -> None:
        """Record that ``attempt`` was sent at ``now``, here and in the store."""
        # Before the send is recorded, because that sets `sent_at`.
        is_first = attempt.is_under_way and attempt.times.sent_at is None
        super().sent(attempt, now, due_at)
        token = self._tokens.get(attempt)
        if is_first and token is not None:
            intervals = [scope.rest() for _, scope in _shared(attempt)]
            self._line.sent(token.number, now, intervals)

    def give_back(self, attempt: Attempt, now: float) -> None:
        """Release the places of ``attempt``, here and in the store."""
        token = self._tokens.pop(attempt, None)
        super().give_back(attempt, now)
        if token is None:
            return
        for slot, scope in _shared(attempt):
            scope.tokens.pop(slot, None)
        if attempt.times.sent_at is None:
            self._line.drop(token.number)
        else:
            self._line.given_back(token.number)

    def next_event(self, now: float) -> float:
        """Return the time at which :meth:`grant` may return something new."""
        following = super().next_event(now)
        return min(following, self._timers[0][0]) if self._timers else following

    def needs_token(self, attempt: Attempt) -> bool:
        """Return True if a response of user code to ``attempt`` needs a token of the job's store to count."""
        return attempt.lane is not None and _first_shared(attempt.lane) is not None

    # -- inside

    def _obstacle(self, lane: Lane, attempt: Attempt, now: float) -> tuple[ScopeQueue | None, float]:
        """Return what ``lane`` must wait for, and until when: its other scopes, a token, or the shared scopes."""
        if lane.prepares or _first_shared(lane) is None:
            return super()._obstacle(lane, attempt, now)
        token_queue = self._asks.get(lane)
        token = None if token_queue is None else token_queue.token
        lane.has_token = token is not None and token.at - _lead(lane) <= now
        # Its other scopes first, because a token is valid for a short time only.
        for index, scope in enumerate(lane.scopes):
            if not isinstance(scope, SharedScope):
                queue = self.queues.scope_queues.get(scope.id)
                if (
                    scope.earliest_at(now, attempt.amount(index)) > now
                    or lane.awaits_pages(scope)
                    or (queue is not None and queue.keeps_off(lane, now))
                ):
                    return super()._obstacle(lane, attempt, now)
        if token_queue is not None and token is not None and token.until <= now:
            self._drop(token_queue)
            token_queue = None
        if token_queue is None:
            token_queue = self._ask(lane, attempt)
        if lane.has_token:
            return super()._obstacle(lane, attempt, now)
        if lane in self._losers:
            self.queues.reserve(lane, now)
        elif self.queues.let_go(lane):  # its other scopes are open, and others may use them in the meantime
            self._wake(lane, now)
        if token_queue.token is not None:  # it now needs less time to the send than when the token came
            self._arm(token_queue, token_queue.token.at - _lead(lane))
        return token_queue, inf

    def _advance(self, now: float) -> None:
        """Check the tokens that may be used now."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            self._passed(heappop(timers)[2], now)

    def _ask(self, lane: Lane, attempt: Attempt) -> TokenQueue:
        wanted = [
            (scope.id, attempt.amount(index))
            for index, scope in enumerate(lane.scopes)
            if isinstance(scope, SharedScope)
        ]
        number = self._line.ask(wanted, attempt.priority, _lead(lane))
        first = _first_shared(lane)
        assert first is not None
        token_queue = TokenQueue(first, lane, number, self._line.why)
        self._asks[lane] = self._by_number[number] = token_queue
        return token_queue

    def _use(self, attempt: Attempt, token_queue: TokenQueue) -> None:
        """Assign the received token to ``attempt``, which has its places."""
        token = token_queue.token
        assert token is not None
        del self._by_number[token_queue.number]
        self._tokens[attempt] = token
        for slot, scope in _shared(attempt):
            scope.tokens[slot] = token

    def _drop(self, token_queue: TokenQueue) -> None:
        token_queue.lane.has_token = False
        del self._asks[token_queue.lane]
        del self._by_number[token_queue.number]
        self._line.drop(token_queue.number)

    def _arm(self, token_queue: TokenQueue, at: float) -> None:
        heappush(self._timers, (at, self._next_timer(), token_queue))

    def _passed(self, token_queue: TokenQueue, now: float) -> None:
        """Check the lane of a token that may be used now, or return the token after its slack."""
        token, lane = token_queue.token, token_queue.lane
        if self._by_number.get(token_queue.number) is not token_queue or token is None:
            return
        where = lane.where
        if where is token_queue:
            self.queues.make_ready(lane, now)
            self._arm(token_queue, min(max(now, token.at) + SLACK, token.until))
            return
        if where is READY and now < min(lane.ready_at + SLACK, token.until):  # it was woken since
            self._arm(token_queue, min(lane.ready_at + SLACK, token.until))
            return
        if isinstance(where, ScopeQueue) and _keeps_token(lane, where.scope):
            at = where.scope.earliest_at(now, lane.amount_in(where.scope))  # closed by a send before the token's
            if now < token.until and (at < token.until or at == inf):
                self._arm(token_queue, min((at if now < at < inf else now) + SLACK, token.until))
                return
            if where.scope.is_shared:
                self._losers.discard(lane)
            else:
                self._losers.add(lane)
        self._drop(token_queue)
        if self.queues.let_go(lane):
            self._wake(lane, now)

    def _take(self, lane: Lane, attempt: Attempt, now: float) -> Attempt:
        # Before the grant, because it removes an empty lane, which would return the token.
        token_queue = self._asks.pop(lane, None)
        lane.has_token = False
        self._losers.discard(lane)
        super()._take(lane, attempt, now)
        if token_queue is not None and token_queue.token is not None:
            self._use(attempt, token_queue)
        return attempt

    def _retire(self, lane: Lane, now: float) -> None:
        token_queue = self._asks.get(lane)
        if token_queue is not None:
            self._drop(token_queue)
        self._losers.discard(lane)
        super()._retire(lane, now)


def _lead(lane: Lane) -> float:
    """Return the measured seconds from the grant of a request of a lane to its send."""
    shared = [scope for scope in lane.scopes if isinstance(scope, SharedScope)]
    return max([scope.traffic.lead for scope in shared])


def _keeps_token(lane: Lane, scope: Scope) -> bool:
    """Return True if a lane that waits for ``scope`` keeps its token: the scope is shared, or it was often passed."""
    return isinstance(scope, SharedScope) or lane.passes(scope) >= PASSES


def _first_shared(lane: Lane) -> SharedScope | None:
    """Return the first shared scope of a lane; None if it has none."""
    for scope in lane.scopes:
        if isinstance(scope, SharedScope):
            return scope
    return None


def _shared(attempt: Attempt) -> list[tuple[int, SharedScope]]:
    """Return the shared scopes of an attempt, each with its slot."""
    lane = attempt.lane
    scopes = () if lane is None else lane.scopes
    return [(slot, each) for slot, each in zip(attempt.slots, scopes, strict=False) if isinstance(each, SharedScope)]
