"""Managers over all answers: the default's two ways are one, a user's word slows a scope and never frees it early."""

from __future__ import annotations

import heapq
from collections.abc import Coroutine, Mapping, Sequence
from inspect import isawaitable
from itertools import pairwise
from math import inf, isfinite
from typing import Any, TypeVar

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.driving import attempt_of, give_back, outcome_of, throttle_of
from trawl.errors import ConnectTimeout, DownloadError, TLSFailed
from trawl.http import Headers, Outcome, Request, Response
from trawl.scheduler import Attempt
from trawl.throttling import Throttle, ThrottlingManager
from trawl.throttling.managers import awaited, is_overridden
from trawl.throttling.scopes import ScopeAmounts

T = TypeVar("T")
HOOKS = ("get_scopes", "get_initial_backoff", "get_response_backoff", "get_exception_backoff", "get_response_delay")
A = "a.example"
PAGE = Request(f"http://{A}/")
SCOPES: Mapping[str, Any] = {
    A: {"delay": 0.5, "concurrency": 3},
    "api": {"backoff": {"http_codes": [418, 503]}, "quota": 20.0},
    "slow": {"delay": 2.0, "backoff": {"http_codes": [], "exceptions": []}},
}


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waited")


@attrs.frozen
class Heard:
    """One send and its end: seconds after the one before, what it is charged to, what comes of it."""

    after: float
    scopes: Any
    status: int
    headers: Mapping[str, str]
    error: type[DownloadError] | None


HEARD = st.builds(
    Heard,
    after=st.sampled_from([0.0, 0.25, 1.0, 61.0, 200.0]),
    scopes=st.sampled_from([None, "api", [A, "api"], {"api": 3.0, "slow": None}, []]),
    status=st.sampled_from([200, 200, 404, 418, 429, 503]),
    headers=st.sampled_from([{}, {"Retry-After": "7"}, {"RateLimit-Reset": "90"}, {"X-RateLimit-Reset": "rubbish"}]),
    error=st.sampled_from([None, None, None, ConnectTimeout, TLSFailed]),
)


def passing(names: Sequence[str], is_async: bool) -> ThrottlingManager:
    """A manager that overrides these methods and has nothing to say of its own."""

    def own(name: str) -> Any:
        theirs = getattr(ThrottlingManager, name)

        async def waits(self: ThrottlingManager, *of: Any) -> Any:
            return await awaited(theirs(self, *of))

        def passes_on(self: ThrottlingManager, *of: Any) -> Any:
            return theirs(self, *of)

        return waits if is_async else passes_on

    manager: ThrottlingManager = type("Passing", (ThrottlingManager,), {name: own(name) for name in names})()
    return manager


def sent(throttle: Throttle, request: Request, now: float) -> Attempt:
    """A request that takes the scopes that its manager names, and is sent."""
    charges: ScopeAmounts = at_once(throttle.resolver.of(request))
    return attempt_of(throttle, request.replace(meta={**request.meta, "throttling_scopes": dict(charges)}), now)


def heard(throttle: Throttle, attempt: Attempt, outcome: Outcome, now: float) -> None:
    """Let a throttle hear an outcome, and give the places back."""
    if not throttle.record_outcome_nowait(attempt, outcome, now):
        at_once(throttle.record_outcome(attempt, outcome, now))
    give_back(throttle, attempt, now)


def told(throttle: Throttle, history: Sequence[Heard]) -> list[object]:
    """All that can be seen of a throttle after each outcome."""
    now, seen = 0.0, list[object]()
    at_once(throttle.begin(now))
    for each in history:
        now += each.after
        throttle.next_change(now)
        meta = {} if each.scopes is None else {"throttling_scopes": each.scopes}
        attempt = sent(throttle, PAGE.replace(meta=meta), now)
        error = None if each.error is None else each.error("it failed")
        outcome = outcome_of(attempt, now, each.status, each.headers, error)
        heard(throttle, attempt, outcome, now)
        seen.append((attempt.scopes, outcome.is_trigger, outcome.is_excused, outcome.pause))
        seen += [attrs.astuple(report, recurse=False)[:7] for report in throttle.report(now)]
        for id in (A, "api", "slow"):
            scope = throttle.scope(id, now)
            seen.append(
                (
                    id,
                    scope.effective.delay,
                    scope.effective.concurrency,
                    scope.step,
                    scope.held.until,
                    scope.reason(now),
                )
            )
    return seen


@given(
    history=st.lists(HEARD, max_size=10),
    names=st.lists(st.sampled_from(HOOKS), unique=True),
    is_async=st.booleans(),
)
def test_e06_e07_a_manager_that_only_asks_the_default_changes_nothing(
    history: list[Heard], names: list[str], is_async: bool
) -> None:
    # the default manager is never asked: the throttle's own way without a coroutine is to say the same
    alone = told(throttle_of(throttling_scopes=SCOPES), history)
    assert told(throttle_of(throttling_scopes=SCOPES, manager=passing(names, is_async)), history) == alone


@given(
    charges=st.lists(st.sampled_from([A, "api", "slow", "b.example"]), unique=True),
    status=st.sampled_from([200, 404, 418, 429, 503]),
    wish=st.integers(0, 500),
)
def test_b11_b14_e09_the_default_names_those_scopes_for_which_it_is_a_trigger_and_no_other(
    charges: list[str], status: int, wish: int
) -> None:
    manager = ThrottlingManager()
    throttle = throttle_of(throttling_scopes=SCOPES, manager=manager)
    request = PAGE.replace(meta={"throttling_scopes": charges})
    for id in charges:
        throttle.scope(id, 0.0)
    response = Response(request.url, status, Headers({"Retry-After": str(wish)}), b"", request)
    codes = {A: (429, 503), "b.example": (429, 503), "api": (418, 503), "slow": ()}
    own = ("api", "slow")  # they list their own statuses; elsewhere a refusal that says when is one
    exhausted = [id for id in sorted(charges) if status in codes[id] or (status >= 400 and wish and id not in own)]
    named = at_once(manager.get_response_backoff(response))
    assert named == ({id: {"delay": wish} if wish else {} for id in exhausted} or None)


FIGURES = st.fixed_dictionaries(
    {},
    optional={
        "delay": st.sampled_from([0.0, 1.0, 7.0, 40.0, 1000.0]),
        "consumed": st.sampled_from([1.0, 2.0, 5.0]),
        "remaining": st.sampled_from([0.0, 1.0, 3.0]),
    },
)
WORDS = st.one_of(
    st.none(), st.just(A), st.just([A]), st.dictionaries(st.sampled_from([A, "b.example"]), FIGURES, min_size=1)
)
"""What a user's ``get_response_backoff`` may say."""


class Saying(ThrottlingManager):
    """Says what it was given, one word a response."""

    def __init__(self, words: Sequence[Any]) -> None:
        self.words = list(words)

    def get_response_backoff(self, response: Response) -> Any:
        return self.words.pop(0) if self.words else None


@attrs.define
class Run:
    """What became of requests that were sent as early as they might be."""

    sends: list[float] = attrs.Factory(list)
    heard: list[tuple[float, Any]] = attrs.Factory(list)
    most: int = 0


def run(words: Sequence[Any], pages: int, latency: float) -> Run:
    """Send so many pages of one host, each as soon as it may go, under a manager that says these words."""
    throttle = throttle_saying(words)
    made, now, flying = Run(), 0.0, list[tuple[float, int, Attempt]]()
    at_once(throttle.begin(now))
    while len(made.heard) < pages:
        scope = throttle.scope(A, now)
        at = scope.earliest_at(now) if len(made.sends) < pages else inf
        if at <= now:
            attempt = sent(throttle, PAGE, now)
            heapq.heappush(flying, (now + latency, len(made.sends), attempt))
            made.sends.append(now)
            made.most = max(made.most, scope.traffic.in_flight)
            continue
        now = min(max(at, now), flying[0][0] if flying else inf, max(throttle.next_change(now), now))
        assert now < inf, "stuck"
        while flying and flying[0][0] <= now:
            attempt = heapq.heappop(flying)[2]
            made.heard.append((now, words[len(made.heard)] if len(made.heard) < len(words) else None))
            heard(throttle, attempt, outcome_of(attempt, now), now)
    return made


LATENCIES = st.sampled_from([0.0, 0.125, 1.0])


def throttle_saying(words: Sequence[Any], **given: Any) -> Throttle:
    """One whose manager says these words; its host has a delay, two slots and a quota."""
    config = {A: {"delay": 0.25, "concurrency": 2, "quota": 5.0, "window": 8.0, "sliding": True}}
    return throttle_of(throttling_scopes=config, manager=Saying(words), backoff_give_up_after=1e9, **given)


@given(words=st.lists(WORDS, max_size=8), latency=LATENCIES)
def test_e09_e11_whatever_a_manager_says_all_is_sent_within_the_limits_and_not_before_what_it_asks(
    words: list[Any], latency: float
) -> None:
    pages = 12
    made = run(words, pages, latency)
    assert len(made.sends) == pages  # never stuck
    assert made.most <= 2
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(made.sends))
    for now, word in made.heard:
        figures = word.get(A, {}) if isinstance(word, dict) else {}
        wish = min(figures.get("delay", 0.0), 300.0)  # D05
        if word in (A, [A]) or (isinstance(word, dict) and A in word and not figures) or "delay" in figures:
            wish = max(wish, 1.0)  # exhausted: one step, which is a second or more
        assert not any(now < at < now + wish for at in made.sends)
    for start in made.sends:  # nothing here makes room in a window but its end, or the server's own word
        if not any(isinstance(word, dict) and "remaining" in word.get(A, {}) for word in words):
            assert sum(start <= at < start + 8.0 for at in made.sends) <= 5


@given(words=st.lists(WORDS, min_size=1, max_size=6), index=st.integers(0, 5), more=st.integers(1, 200))
def test_d06_monotone_under_hints_a_manager_that_asks_for_more_is_never_asked_earlier(
    words: list[Any], index: int, more: int
) -> None:
    at = index % len(words)
    figures = words[at].get(A) if isinstance(words[at], dict) else None
    if figures is None or not figures.get("delay"):
        return
    longer = [*words[:at], {**words[at], A: {**figures, "delay": figures["delay"] + more}}, *words[at + 1 :]]
    opens = [
        [max(now, throttle.scope(A, now).earliest_at(now)) for now, throttle in said(each)] for each in (words, longer)
    ]
    assert all(later >= earlier for earlier, later in zip(*opens, strict=True))


def said(words: Sequence[Any]) -> Any:
    """A throttle after each of these words, which come every five seconds."""
    throttle = throttle_saying(words)
    for number in range(len(words)):
        now = 5.0 * number
        throttle.next_change(now)
        attempt = sent(throttle, PAGE, now)
        heard(throttle, attempt, outcome_of(attempt, now), now)
        yield now, throttle


@given(delays=st.dictionaries(st.sampled_from([A, "b.example", "api"]), st.sampled_from([0.0, 0.5, 7.0, 1000.0])))
def test_e10_what_is_said_before_the_first_send_holds_those_scopes_and_no_other(delays: dict[str, float]) -> None:
    class Waiting(ThrottlingManager):
        def get_initial_backoff(self) -> Any:
            return {id: {"delay": delay} for id, delay in delays.items()} or None

    throttle = throttle_of(manager=Waiting())
    at_once(throttle.begin(0.0))
    for id in (A, "b.example", "api", "c.example"):
        assert max(0.0, throttle.scope(id, 0.0).earliest_at(0.0)) == delays.get(id, 0.0)


NAMES = ["Retry-After", "RateLimit-Reset", "RateLimit", "RateLimit-Policy", "X-RateLimit-Reset", "Date"]
TEXTS = st.one_of(
    st.integers(-10, 10**12).map(str),
    st.sampled_from(["Wed, 01 Jan 2025 12:00:09 GMT", "limit=1, remaining=0, reset=5", '"a";r=0;t=9', "soon"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20),
)


@given(st.dictionaries(st.sampled_from(NAMES), TEXTS))
def test_e12_d02_headers_ask_for_a_time_from_now_or_for_nothing_whatever_is_in_them(headers: dict[str, str]) -> None:
    delay = ThrottlingManager().get_response_delay(Response(PAGE.url, 429, Headers(headers), b"", PAGE))
    assert delay is None or (delay > 0 and isfinite(delay))


@given(names=st.sets(st.sampled_from(HOOKS)), asked=st.sets(st.sampled_from(HOOKS)), is_async=st.booleans())
def test_e07_what_a_manager_overrides_is_known_by_name(names: set[str], asked: set[str], is_async: bool) -> None:
    assert is_overridden(passing(sorted(names), is_async), *asked) == bool(names & asked)
    patched = ThrottlingManager()  # on the object, as a test of a user's might do it
    vars(patched).update(dict.fromkeys(names, lambda *of: None))
    assert is_overridden(patched, *asked) == bool(names & asked)


@given(st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.none())))
def test_e07_an_answer_is_the_same_sync_or_async(answer: Any) -> None:
    async def later() -> Any:
        return answer

    waiting = later()
    assert isawaitable(waiting)
    assert at_once(awaited(waiting)) == at_once(awaited(answer)) == answer
