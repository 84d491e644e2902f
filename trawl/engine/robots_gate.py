"""robots.txt as the gate of an origin.

The first grant for an origin closes its gate and has robots.txt asked for; the origin's lanes wait on the gate, other
origins' do not. What comes back (RFC 9309, 2.3.1) decides:

* 2xx opens it with rules, 4xx opens it without any.
* 5xx or a broken answer allow nothing. The gate stays closed, robots.txt is asked for again after pauses that
  double, the last time so that its answer comes at the end of ``BACKOFF_GIVE_UP_AFTER`` seconds of that. Then the gate
  opens on a verdict: what waits ends as ``robots_forbidden``, so that a host that refuses for ever does not hang the
  crawl. What does not count for the throttle, because the server asked for it, does not count here either.
* An origin at an address that may not be connected to (``ALLOW_PRIVATE_ADDRESSES``) ends what waits with an
  ``AddressRefused``.
* An origin that never answered and can't be connected to is tried ``ROBOTSTXT_RETRY_TIMES`` more; then what waits ends
  with the error of the last try.

A verdict is forgotten after a while, as rules are: a later request asks afresh. The request for robots.txt passes the
scopes like any other, ranks before pages, so that it works at concurrency 1, and passes its own gate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

import trio

from trawl.engine.context import CrawlContext
from trawl.errors import AddressRefused, ConnectFailed, ConnectTimeout, DownloadError, ProxyFailed, SoftBlocked
from trawl.http import Outcome, Request, host_scope, origin_of
from trawl.robots import MAX_PARSED_BYTES, RobotsCache, RobotsFile
from trawl.scheduler import Grant, Scheduler
from trawl.throttling import Throttle
from trawl.throttling.reasons import Reason

__all__ = ["RobotsGates", "RobotsWaiter"]

logger: logging.Logger = logging.getLogger("trawl.robots")

CONNECT_PAUSE = 1.0
"""Seconds before an origin that can't be connected to is tried again; twice as long each time."""

A_MOMENT = 1e-3
"""Seconds. Patience that lasts no longer is over."""

LONGEST_PAUSE = 300.0
"""Seconds between two requests for a robots.txt that can't be had, at the most."""

MAX_ORIGINS = 10_000
"""Origins whose rules are kept though nothing of them is pending; of more, those that expire first are forgotten."""

VERDICT_AGE = 60.0
"""Seconds after which an origin that was given up is asked afresh."""


class _Origin:
    """The state of one origin's robots.txt.

    Attributes:
        rules: The rules; None while they are asked for.
        verdict: Why everything of it ends, as a reason; None while nothing does.
        failure: The error that the verdict rests on; None while there is no verdict.
        expires_at: When rules or verdict are to be asked for afresh, on the run clock.
        failures: Failed requests for robots.txt in a row.
        failing_since: When the first of them failed.
        has_answered: Whether any whole answer ever came.
    """

    __slots__ = ("expires_at", "failing_since", "failure", "failures", "has_answered", "rules", "verdict")

    def __init__(self) -> None:
        self.rules: RobotsFile | None = None
        self.verdict: str | None = None
        self.failure: DownloadError | None = None
        self.expires_at = 0.0
        self.failures = 0
        self.failing_since = 0.0
        self.has_answered = False


class RobotsWaiter:
    """Waits for one robots.txt."""

    __slots__ = ("_heard", "grant", "parent")

    def __init__(self, heard: Callable[[Outcome], None]) -> None:
        self._heard = heard
        self.grant: Grant | None = None
        self.parent: Grant | None = None

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome."""
        self._heard(outcome)


class RobotsGates:
    """The gates of one crawl's origins.

    Args:
        context: The settings of robots.txt; statistics, state.
        throttle: Told of each Crawl-delay.
        scheduler: Has the gates.
        answers: Keeps answers, and has those that an earlier run of the job has heard; None: there is no job.
    """

    def __init__(
        self, context: CrawlContext, throttle: Throttle, scheduler: Scheduler, answers: RobotsCache | None
    ) -> None:
        self._settings = context.robots
        self._user_agent = context.user_agent
        self._give_up_after = context.throttling.backoff_give_up_after
        self._is_shared = context.open_job is not None and context.open_job.job.session is not None
        self._stats = context.stats
        self._state = context.state
        self._throttle = throttle
        self._scheduler = scheduler
        self._answers = answers
        self._origins: dict[str, _Origin] = {}
        self._most = MAX_ORIGINS
        self._unasked: dict[str, float] = {}
        self._asked: dict[str, RobotsWaiter] = {}

    def origin_of(self, request: Request) -> str:
        """The origin whose gate a request waits for; empty where robots.txt is not obeyed, and none is asked.

        In a job that several processes share it is then without its scheme, and has no gate: its host says whose lane
        it is, whatever scopes the request has besides.
        """
        if not self._settings.robotstxt_obey or request.meta_get("dont_obey_robotstxt"):
            return origin_of(request.url).partition(":")[2] if self._is_shared else ""
        return origin_of(request.url)

    @staticmethod
    def has_gate(origin: str) -> bool:
        """Return True if requests to an origin, as :meth:`origin_of` names it, wait for its robots.txt."""
        return bool(origin) and not origin.startswith("//")

    def ensure(self, origin: str) -> None:
        """Close the gate of an origin, and note it to be asked, unless it has none or its rules are known and fresh."""
        if not self.has_gate(origin):
            return
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= self._most:
                self._forget()
            self._origins[origin] = _Origin()
            if self._answers is not None and self._recalled(origin, self._answers):
                return
        # At 0.0 it is being asked for.
        elif known.expires_at > trio.current_time() or known.expires_at == 0.0:
            return
        else:
            known.expires_at = 0.0
        self._scheduler.close_gate(origin)
        self._unasked[origin] = 0.0
        self._state.wakeup.set()

    def _forget(self) -> None:
        """Forget the rules of origins of which nothing is pending, of half of those at most that may be kept."""
        needed = {lane.origin for lane in self._scheduler.lanes.values()}
        needed.update(grant.origin for grant in self._scheduler.later.pending())
        idle = [
            (known.expires_at, origin)
            for origin, known in self._origins.items()
            if known.expires_at and origin not in needed
        ]
        for _, origin in sorted(idle)[: self._most // 2 or 1]:
            del self._origins[origin]
        self._most = max(MAX_ORIGINS, 2 * len(self._origins))  # most are needed: do not look again for each new one

    def unasked(self) -> list[tuple[str, float]]:
        """The origins whose robots.txt is to be asked for, each once, with the pause before that in seconds."""
        if not self._unasked:
            return []
        origins = list(self._unasked.items())
        self._unasked.clear()
        return origins

    def robots_request(self, origin: str) -> tuple[Request, RobotsWaiter]:
        """Make the request for an origin's robots.txt, and what waits for its outcome; the gate is closed meanwhile."""
        self._scheduler.close_gate(origin)
        request = Request(
            f"{origin}/robots.txt",
            priority=self._scheduler.best_waiting(origin),
            meta={
                # The gate asks again by itself, at a pace of its own.
                "dont_retry": True,
                "dont_merge_cookies": True,
                "dont_cache": True,
                "download_maxsize": MAX_PARSED_BYTES,
                # RFC 9309, 2.5: of a longer file the beginning is obeyed.
                "download_truncate": True,
            },
        )
        waiter = self._asked[origin] = RobotsWaiter(partial(self._heard, origin))
        return request, waiter

    def let_go(self, parts: Collection[int], part_of: Callable[[str], int]) -> set[int]:
        """Forget the origins of parts of the job, which go to another process; nothing of them is pending.

        Returns the parts of which a request for a robots.txt is under way: it is to be called again for these.
        """
        now = trio.current_time()
        used: set[int] = set()
        for origin in [origin for origin in self._origins if part_of(origin) in parts]:
            waiter = self._asked.get(origin)
            if waiter is not None:
                if waiter.grant is None or not self._scheduler.withdraw(waiter.grant, now):
                    used.add(part_of(origin))
                    continue
                del self._asked[origin]
            self._unasked.pop(origin, None)
            self._scheduler.open_gate(origin, now)
            del self._origins[origin]
        return used

    def forbids(self, grant: Grant) -> str | None:
        """Say why a grant whose gate is open may not be sent; None: it may."""
        if not grant.origin or grant.passes_gate:
            return None
        known = self._origins.get(grant.origin)
        if known is None:
            return None
        if 0.0 < known.expires_at <= trio.current_time():
            # This one goes under the old rules, the next wait for new ones.
            known.expires_at = 0.0
            self._unasked[grant.origin] = 0.0
        if known.verdict is not None:
            return known.verdict
        if not grant.is_diverted and self.has_forbidden(grant.origin, grant.request.url):
            return "robots_forbidden"  # where it is diverted, its URL is not the one that is sent, and that is judged
        return None

    def is_open(self, origin: str) -> bool:
        """Tell if the rules of an origin are read, and its gate is open."""
        known = self._origins.get(origin)
        return known is not None and known.rules is not None and self._scheduler.gate_of(origin) is None

    def has_forbidden(self, origin: str, url: str) -> bool:
        """Tell if the rules of an origin, as far as they are known, forbid ``url``."""
        known = self._origins.get(origin)
        return known is not None and known.rules is not None and not known.rules.allows(url)

    def failure_of(self, grant: Grant) -> DownloadError | None:
        """The error for which a grant's origin was given up."""
        known = self._origins.get(grant.origin)
        return None if known is None else known.failure

    def _recalled(self, origin: str, answers: RobotsCache) -> bool:
        """Obey the answer that an earlier run has heard. Returns False where none still holds."""
        answer = answers.get(origin, trio.current_time())
        if answer is None:
            return False
        known = self._origins[origin]
        known.has_answered = True
        rules = RobotsFile.parse(answer.status, answer.body, self._user_agent, settings=self._settings)
        if rules.is_unreachable:
            return False
        self._obey(origin, known, rules, answer.expires_at)
        return True

    def _obey(self, origin: str, known: _Origin, rules: RobotsFile, expires_at: float) -> None:
        known.rules, known.verdict, known.failures = rules, None, 0
        known.expires_at = expires_at
        delay = rules.crawl_delay or 0.0
        self._throttle.robots_delay(host_scope(f"{origin}/"), delay, trio.current_time(), origin=origin)

    def _heard(self, origin: str, outcome: Outcome) -> None:
        self._asked.pop(origin, None)
        known = self._origins[origin]
        now = trio.current_time()
        response = outcome.response
        if response is None:
            rules = RobotsFile.unreachable(known.failures + 1, self._settings)
        else:
            known.has_answered = True
            rules = RobotsFile.parse(
                response.status, response.body, self._user_agent, failures=known.failures, settings=self._settings
            )
        if rules.is_unreachable:
            self._failed(origin, known, outcome, rules.expires_after)
            return
        self._obey(origin, known, rules, now + rules.expires_after)
        if self._answers is not None and response is not None:
            self._answers.store(origin, response.status, response.body, known.expires_at)
        self._open(origin)

    def _failed(self, origin: str, known: _Origin, outcome: Outcome, pause: float) -> None:
        now = trio.current_time()
        if not known.failures:
            known.failing_since = now
        known.failures += 1
        if isinstance(outcome.error, AddressRefused) and origin_of(outcome.error.url) == origin:
            self._give_up(origin, known, "private_addresses_refused", outcome)
            return
        never_connected = not known.has_answered and isinstance(outcome.error, ConnectFailed | ConnectTimeout)
        if never_connected:
            pause = CONNECT_PAUSE * 2.0 ** (known.failures - 1)
            if known.failures > self._settings.robotstxt_retry_times:
                self._give_up(origin, known, "robots_unreachable", outcome)
                return
        elif not self._settings.robotstxt_retry_times:
            self._give_up(origin, known, "robots_unreachable", outcome)
            return
        # What the throttle leaves out of the host's time without an answer is left out here too (B20).
        host_failing_since = self._throttle.failing_since(host_scope(f"{origin}/"))
        left = max(known.failing_since, host_failing_since) + self._give_up_after - now
        if left <= A_MOMENT:
            self._give_up(origin, known, "robots_forbidden", outcome)
            return
        self._stats.inc("robots_retry_count")
        # The last try is to be answered by the end: it goes as much earlier as this one took.
        pause = min(pause, LONGEST_PAUSE, max(left - (now - outcome.started_at), A_MOMENT))
        # Sooner it would only wait for a proxy.
        ready_in = outcome.error.ready_in if isinstance(outcome.error, ProxyFailed) else 0.0
        is_for_proxy, pause = ready_in > pause, max(pause, ready_in)
        logger.log(
            logging.WARNING if known.failures == 1 else logging.INFO,
            "%s: its robots.txt could not be read (%s): nothing of it is sent; asking again in %g s%s",
            origin, _cause(outcome), round(pause, 1),
            ", when a proxy has cooled down: ROTATING_PROXY_LIST needs one that works" if is_for_proxy else "",
        )  # fmt: skip
        source = f"it could not be read: {_cause(outcome)}; it is asked for again then"
        self._scheduler.close_gate(origin, Reason(origin, "gate", now + pause, source))
        self._unasked[origin] = pause
        self._state.wakeup.set()

    def _give_up(self, origin: str, known: _Origin, verdict: str, outcome: Outcome) -> None:
        logger.error("%s: its robots.txt could not be read (%s): what waits for it ends", origin, _cause(outcome))
        known.rules, known.verdict, known.failures = None, verdict, 0
        error = outcome.error
        if isinstance(error, DownloadError) and not isinstance(error, SoftBlocked):
            known.failure = error
        else:
            known.failure = DownloadError(_cause(outcome))
        known.expires_at = trio.current_time() + VERDICT_AGE
        self._open(origin)

    def _open(self, origin: str) -> None:
        self._scheduler.open_gate(origin, trio.current_time())
        self._state.wakeup.set()


def _cause(outcome: Outcome) -> str:
    if outcome.response is not None:
        return f"answered {outcome.response.status}"
    return outcome.error.cause if isinstance(outcome.error, DownloadError) else str(outcome.error)
