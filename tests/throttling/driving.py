"""A minimal crawl in pure Python: one throttle, one simulated server, and a clock that jumps to the next event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

from trawl.clock import WallClock
from trawl.errors import DownloadError
from trawl.http import Headers, Outcome, Request, Response
from trawl.scheduler import Attempt
from trawl.throttling import Scope, Throttle, ThrottlingSettings

__all__ = ["EXACT", "Answer", "Bucket", "Drive", "Send", "answer", "attempt_of", "sent_attempt", "throttle_of"]

EXACT: Mapping[str, Any] = {"randomize_download_delay": False, "backoff_jitter": 0}
"""Settings without any jitter."""

START_UTC = datetime(2025, 1, 1, tzinfo=UTC)


def throttle_of(**given: Any) -> Throttle:
    """Return a throttle at time 0.0, without jitter by default. Settings are given by their field names."""
    own = {key: given.pop(key) for key in ("crawl", "changed", "resolve", "seed") if key in given}
    if "manager" in given:
        given["throttling_manager"] = _class_of(given.pop("manager"))
    crawl = own.pop("crawl", None)
    throttle = Throttle(
        ThrottlingSettings(**{**EXACT, **given}),
        seed=own.pop("seed", 0),
        wall=WallClock(START_UTC, 0.0),
        changed=own.pop("changed", lambda scope, now: None),
        **own,
    )
    throttle.make_managers(crawl)
    return throttle


def _class_of(manager: Any) -> type:
    """Return the class of a manager. For an object, return a class that creates this object."""
    if isinstance(manager, type):
        return manager
    return type("Made", (type(manager),), {"from_crawler": classmethod(lambda cls, crawl: manager)})


def sent_attempt(
    request: Request,
    scopes: tuple[tuple[str, float | None], ...],
    steps: tuple[int, ...] = (),
    now: float = 0.0,
    slots: tuple[int, ...] = (),
    *,
    is_exempt: bool = False,
) -> Attempt:
    """Return a request that was granted and sent at ``now``."""
    attempt = Attempt(request, scopes, is_exempt=is_exempt)
    attempt.steps, attempt.slots, attempt.times.granted_at, attempt.times.sent_at = steps, slots, now, now
    return attempt


@attrs.frozen
class Answer:
    """A response of the simulated server."""

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    latency: float = 0.05
    error: DownloadError | None = None


@attrs.frozen
class Send:
    """One send of a drive. The status is 0 if there was no response."""

    time: float
    url: str
    slot: int
    status: int


@attrs.define
class Bucket:
    """A server with a token bucket that is full at the start. Refused requests take no tokens."""

    rate: float
    burst: float = 5.0
    latency: float = 0.05
    tokens: float = attrs.field(default=attrs.Factory(lambda self: self.burst, takes_self=True))
    filled_at: float = 0.0

    def __call__(self, request: Request, now: float) -> Answer:
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < 1.0 - 1e-9:
            return Answer(429, latency=self.latency)
        self.tokens -= 1.0
        return Answer(latency=self.latency)


def attempt_of(throttle: Throttle, request: Request, now: float = 0.0) -> Attempt:
    """Return an attempt that takes its scopes and is sent at ``now``."""
    charges = throttle.resolver.of_nowait(request)
    assert charges is not None
    throttle.admitted(request, charges)
    is_exempt = bool(request.meta_get("dont_throttle"))
    scopes = [throttle.scope(id, now) for id, _ in charges]
    steps = tuple(scope.step for scope in scopes)
    slots = (
        ()
        if is_exempt
        else tuple(_taken(scope, now, amount) for scope, (_, amount) in zip(scopes, charges, strict=True))
    )
    return sent_attempt(request, charges, steps, now, slots, is_exempt=is_exempt)


def _taken(scope: Scope, now: float, amount: float | None) -> int:
    slot = scope.take(now, 1.0 if amount is None else amount)
    scope.sent(slot, now, 1.0 if amount is None else amount)
    return slot


def answer(
    throttle: Throttle,
    attempt: Attempt,
    now: float,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    error: DownloadError | None = None,
) -> Outcome:
    """Pass the end of a send to the throttle, and release its places."""
    outcome = outcome_of(attempt, now, status, headers, error)
    assert throttle.record_outcome_nowait(attempt, outcome, now)
    give_back(throttle, attempt, now)
    return outcome


def outcome_of(
    attempt: Attempt,
    now: float,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    error: DownloadError | None = None,
) -> Outcome:
    """Return the outcome of a send."""
    request, sent_at = attempt.request, attempt.times.sent_at or 0.0
    response = None if error else Response(request.url, status, Headers(headers or {}), b"", request)
    return Outcome(
        request, response=response, error=error, started_at=sent_at, sent_at=attempt.times.sent_at,
        first_byte_at=None if error else now, ended_at=now,
    )  # fmt: skip


def give_back(throttle: Throttle, attempt: Attempt, now: float) -> None:
    """Release the places of a send."""
    for (id, amount), slot in zip(attempt.scopes, attempt.slots, strict=False):
        scope = throttle.scope(id, now)
        scope.give(slot, amount=1.0 if amount is None else amount, now=now)


class Drive:
    """Sends requests, oldest first, as early as their scopes allow.

    Excused and retried requests go to the end of the queue.
    """

    def __init__(
        self,
        throttle: Throttle,
        server: Callable[[Request, float], Answer],
        *,
        retries: int = 2,
        endless: Request | None = None,
    ) -> None:
        self.throttle = throttle
        self.server = server
        self.retries = retries
        self.endless = endless
        self._pending: list[tuple[Request, tuple[tuple[str, float | None], ...]]] = []
        self.sends: list[Send] = []
        self.ended: dict[str, str] = {}
        self.now = 0.0
        self._counts: dict[str, int] = {}
        self._flying: list[tuple[float, int, Attempt, Answer]] = []

    def push(self, *requests: Request) -> None:
        """Queue requests, and determine their scopes once."""
        for request in requests:
            charges = self.throttle.resolver.of_nowait(request)
            assert charges is not None
            self.throttle.admitted(request, charges)
            self._pending.append((request, charges))

    def run(self, until: float = math.inf) -> None:
        """Run to the end of the queue or until a time."""
        while self.now <= until:
            at = self._send_what_may_go()
            if self.endless is None and not self._pending and not self._flying:
                return
            ends_at = self._flying[0][0] if self._flying else math.inf
            self.now = min(max(at, self.now), ends_at, max(self.throttle.next_change(self.now), self.now))
            assert self.now < math.inf, "stuck"
            while self._flying and self._flying[0][0] <= self.now:
                self._hear(*heapq.heappop(self._flying)[2:])

    def _send_what_may_go(self) -> float:
        """Send all requests that can be sent now.

        Returns the time of the next possible send according to the scopes.
        """
        earliest = math.inf
        if self.endless is not None and self.sends and self.sends[-1].url != self.endless.url:
            earliest = self._try(self.endless.replace(), self.throttle.resolver.of_nowait(self.endless) or ())
            if earliest > self.now:  # refused requests went to the end of the queue
                return earliest
        waiting, self._pending = self._pending, []
        for request, charges in waiting:
            at = self._try(request, charges)
            if at > self.now:
                self._pending.append((request, charges))
                earliest = min(earliest, at)
        while self.endless is not None:
            request = self.endless.replace()
            at = self._try(request, self.throttle.resolver.of_nowait(request) or ())
            if at > self.now:
                return min(earliest, at)
        return earliest

    def _try(self, request: Request, charges: tuple[tuple[str, float | None], ...]) -> float:
        at = max(
            (self.throttle.scope(id, self.now).earliest_at(self.now, amount or 1.0) for id, amount in charges),
            default=0.0,
        )
        if at > self.now:
            return at
        if self.throttle.refused(sent_attempt(request, charges), self.now):
            self.ended[request.url] = "refused"
            return at
        attempt = attempt_of(self.throttle, request, self.now)
        reply = self.server(request, self.now)
        status = 0 if reply.error else reply.status
        self.sends.append(Send(self.now, request.url, attempt.slots[0] if attempt.slots else 0, status))
        heapq.heappush(self._flying, (self.now + reply.latency, len(self.sends), attempt, reply))
        return at

    def _hear(self, attempt: Attempt, reply: Answer) -> None:
        outcome = answer(self.throttle, attempt, self.now, reply.status, reply.headers, reply.error)
        url = attempt.request.url
        if reply.error is None and reply.status < 400:
            self.ended[url] = "done"
            return
        if not outcome.is_excused:
            self._counts[url] = self._counts.get(url, 0) + 1
        if self._counts.get(url, 0) > self.retries:
            self.ended[url] = "failed"
        elif self.endless is None or url != self.endless.url:
            self._pending.append((attempt.request, attempt.scopes))
