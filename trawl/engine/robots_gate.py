"""robots.txt as the gate of an origin.

The first attempt for an origin closes its gate and starts the request for robots.txt. The lanes of this origin wait at
the gate; other lanes do not. The response decides (RFC 9309, 2.3.1):

* 2xx opens the gate with rules, 4xx opens it without any.
* 5xx or a broken response allows nothing. The gate stays closed, and robots.txt is requested again after pauses that
  double: for ``BACKOFF_GIVE_UP_AFTER`` seconds, and at most ``ROBOTSTXT_RETRY_TIMES`` times if that is set. The last
  attempt is timed so that its response comes at the end of this time. Time that the throttle does not count, because
  the server requested the pause, does not count here either. Then the gate opens with a verdict, so that a host that
  refuses forever does not block the crawl: waiting requests end with a ``HostGivenUp``. After the whole time, they are
  also counted as ``robots_forbidden``. Requests of rendered pages end at the second failure. A robots.txt that user
  middleware ignores or fails on is unreadable too.
* An address that may not be connected to (``ALLOW_PRIVATE_ADDRESSES``) ends waiting requests with ``AddressRefused``.
* If an origin never responded and can't be connected to, ``ROBOTSTXT_RETRY_TIMES`` more attempts follow, 2 by default.
  Then the waiting requests end with the error of the last attempt.

A verdict expires, as rules do, and a later request then loads robots.txt again. The request for robots.txt passes the
scopes like any other, ranks before pages, so that it works at concurrency 1, and passes its own gate. It takes the
route (proxy, session, local address) of the best waiting request, and after a failure that of another one: a site that
should see a proxy does not see our own address. The rules then apply to all requests to the origin.

Length: the whole life of an origin's rules, from the first request for them to a verdict.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from functools import partial
from io import BytesIO
from typing import BinaryIO

import trio

from trawl.engine.context import CrawlContext
from trawl.engine.state import in_steps
from trawl.errors import AddressRefused, ConnectFailed, ConnectTimeout, DownloadError, ProxyFailed
from trawl.http import Outcome, Request, Response, body_bytes, host_scope, origin_of
from trawl.middleware.proxies import Route
from trawl.robots import MAX_PARSED_BYTES, MAX_STEPS, STEP_BYTES, RobotsCache, RobotsFile, as_utf8, at_once
from trawl.scheduler import Attempt, Scheduler
from trawl.throttling import Throttle
from trawl.throttling.outcomes import give_up_error
from trawl.throttling.reasons import Reason

__all__ = ["RobotsGates", "RobotsWaiter", "end_unread"]

logger: logging.Logger = logging.getLogger("trawl.robots")

CONNECT_RETRY_TIMES = 2
"""Further attempts for an origin that can't be connected to, unless ``ROBOTSTXT_RETRY_TIMES`` is set."""

CONNECT_PAUSE = 1.0
"""Seconds before the next attempt for an origin that can't be connected to; doubled each time."""

PAGE_FAILURES = 2
"""Number of failures in a row at which requests of a rendered page end, because the page keeps its tab meanwhile."""

A_MOMENT = 1e-3
"""Seconds. If less time than this remains before an origin is given up, it is given up now."""

LONGEST_PAUSE = 300.0
"""Maximum seconds between two attempts for a robots.txt that can't be read."""

MAX_ORIGINS = 10_000
"""Number of origins whose rules are kept without pending requests. Beyond it, those that expire first are deleted."""

MAX_RULES_BYTES = 16 * 2**20
"""Maximum bytes of the rules of all origins: 1.6 KiB for each of ``MAX_ORIGINS``, more than most origins need."""

VERDICT_AGE = 60.0
"""Seconds after which robots.txt of an origin that was given up is requested again."""


class _Origin:
    """The state of one origin's robots.txt."""

    rules: RobotsFile | None = None  # None until they are read
    verdict: str | None = None  # reason why all requests of the origin end
    failure: DownloadError | None = None  # error that each request gets with the verdict
    expires_at: float = 0.0  # event loop time at which rules or verdict expire; 0.0: robots.txt is being requested
    failures: int = 0  # number of failed requests for robots.txt in a row
    failing_since: float = 0.0  # event loop time of the first of these failures
    has_answered: bool = False  # True if the origin ever sent a complete response
    asker: Request | None = None  # the request that needs the rules now, or needed them last
    has_warned: bool = False  # True if a warning about an incomplete lookup was logged

    def __init__(self) -> None:
        self.tried: list[Route] = []  # routes of the attempts since robots.txt was last read

    def decide(self, verdict: str | None, failure: DownloadError | None, expires_at: float) -> None:
        """End the attempts: with rules or a verdict, which are valid until ``expires_at``."""
        self.verdict, self.failure, self.expires_at = verdict, failure, expires_at
        self.asker, self.failures = None, 0
        self.tried.clear()


_UNKNOWN = _Origin()
"""The state of every origin without a gate. It never changes."""


def end_unread(attempt: Attempt) -> None:
    """End a direct fetch that is not pending, because the robots.txt of its origin can't be read."""
    request = attempt.request
    error = DownloadError("robots.txt could not be read", url=request.url, method=request.method)
    attempt.options.waiter.deliver(Outcome(request, error=error))


class PackedBody:
    """A sink that stores a long robots.txt compressed, because many may wait to be parsed at the same time."""

    memory_bytes = 16_384

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start a new body."""
        self._packed: list[bytes] = []
        self.size_bytes: int = 0

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Append chunks of the body. Always a checkpoint."""
        for piece in pieces:
            self._packed.append(zlib.compress(piece, 1))  # separately, because a compressor takes 268 kB
            self.size_bytes += len(piece)
        await trio.lowlevel.checkpoint()

    async def discard(self) -> None:
        """Forget the body. Always a checkpoint."""
        self.begin()
        await trio.lowlevel.checkpoint()

    def open(self) -> BinaryIO:
        """Return the whole body as a file in memory."""
        return BytesIO(b"".join(map(zlib.decompress, self._packed)))


class RobotsWaiter:
    """Waits for one robots.txt, and parses it before the place of its request is released.

    A site with many hosts could send files faster than they are parsed, so places bound the number of waiting files.
    """

    def __init__(
        self, parse: Callable[[Response], Awaitable[RobotsFile]], heard: Callable[[Outcome, RobotsFile | None], None]
    ) -> None:
        self._parse = parse
        self._heard = heard
        self._read: tuple[Response, RobotsFile] | None = None
        self.attempt: Attempt | None = None
        self.parent: Attempt | None = None

    async def read(self, response: Response | None) -> None:
        """Parse a received file. A checkpoint if it is long."""
        if response is not None:
            self._read = response, await self._parse(response)

    def deliver(self, outcome: Outcome) -> None:
        """Process the outcome. A middleware may have replaced the response."""
        read, self._read, self.attempt = self._read, None, None
        self._heard(outcome, read[1] if read is not None and read[0] is outcome.response else None)


class RobotsGates:
    """The gates of one crawl's origins."""

    def __init__(self, context: CrawlContext, throttle: Throttle, scheduler: Scheduler, answers: RobotsCache) -> None:
        self._settings = context.values.robots
        self._user_agent = context.values.user_agent
        self._give_up_after = context.values.throttling.backoff_give_up_after
        self._is_shared = context.open_job.is_shared
        self._stats = context.stats
        self._state = context.state
        self._throttle = throttle
        self._scheduler = scheduler
        self._answers = answers  # stores responses, and contains those of earlier runs of the job
        self._origins: dict[str, _Origin] = {}
        self._most = MAX_ORIGINS
        self._bytes = 0
        self._has_closed = False
        self.steps: int = 0  # of lookups in rules since other tasks could last run
        self._parsing = trio.Lock()  # parsing a file takes several times its size
        self._unasked: dict[str, float] = {}
        self._asked: dict[str, RobotsWaiter] = {}

    def origin_of(self, request: Request) -> str:
        """Return the origin whose gate a request waits for; empty if robots.txt is not obeyed.

        In a shared job it is then the origin without its scheme, which has no gate: the host still decides which
        process owns the lane, whatever other scopes the request has.
        """
        if not self._settings.robotstxt_obey or request.meta_get("dont_obey_robotstxt"):
            return origin_of(request.url).partition(":")[2] if self._is_shared else ""
        return origin_of(request.url)

    def words_of(self, host: str) -> list[str]:
        """Return what is known of the robots.txt of a host, one line per origin."""
        lines = []
        for origin in (f"https://{host}", f"http://{host}"):
            known = self._origins.get(origin)
            if known is None:
                continue
            rules = known.rules
            if rules is None:
                words = "is requested"
            elif rules.is_unreachable:
                words = "can't be read, so nothing is sent"
            else:
                delay = "" if rules.crawl_delay is None else f", Crawl-delay {rules.crawl_delay:g} s"
                sitemaps = "".join([f", sitemap {url}" for url in rules.sitemaps[:5]])
                words = f"was read{delay}{sitemaps}"
            lines.append(f"{origin}/robots.txt {words}")
        return lines

    @staticmethod
    def has_gate(origin: str) -> bool:
        """Return True if requests to an origin, as returned by :meth:`origin_of`, wait for its robots.txt."""
        return bool(origin) and not origin.startswith("//")

    def ensure(self, origin: str, request: Request) -> None:
        """Close the gate of an origin and request its robots.txt for ``request``, unless its rules are valid."""
        if not self.has_gate(origin):
            return
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= self._most:
                self._forget()
            known = self._origins[origin] = _Origin()
        elif known.expires_at > trio.current_time() or known.expires_at == 0.0:
            return
        known.expires_at = 0.0
        known.asker = request
        self._scheduler.close_gate(origin)
        self._unasked[origin] = 0.0
        self._state.wakeup.set()

    def _forget(self) -> None:
        """Delete the rules of origins without pending requests, at most half of the allowed number."""
        needed = self._needed()
        idle = [
            (known.expires_at, origin)
            for origin, known in self._origins.items()
            if known.expires_at and origin not in needed
        ]
        for _, origin in sorted(idle)[: self._most // 2 or 1]:
            self._drop(origin)
        self._most = max(MAX_ORIGINS, 2 * len(self._origins))  # most are needed: do not search again for each new one

    def _needed(self) -> set[str]:
        """Return the origins with pending requests."""
        needed = {lane.origin for lane in self._scheduler.lanes.values()}
        needed.update(attempt.options.origin for attempt in self._scheduler.later.pending())
        return needed

    def _drop(self, origin: str) -> None:
        self._take_rules(self._origins.pop(origin), None)

    def _take_rules(self, known: _Origin, rules: RobotsFile | None) -> None:
        """Replace the rules of an origin, and count their bytes."""
        self._bytes -= 0 if known.rules is None else known.rules.size_bytes
        known.rules = rules
        self._bytes += 0 if rules is None else rules.size_bytes

    def _make_room(self) -> None:
        """Delete the largest rules of origins without pending requests. If that is not enough, close origins."""
        if self._bytes <= MAX_RULES_BYTES:
            return
        needed = self._needed()
        by_size = sorted(
            ((known.rules.size_bytes, origin) for origin, known in self._origins.items() if known.rules is not None),
            reverse=True,
        )
        for _, origin in by_size:
            # A quarter stays free, so that the next file does not require this again.
            if origin not in needed and self._bytes > MAX_RULES_BYTES * 3 // 4 and self._origins[origin].expires_at:
                self._drop(origin)
        for size, origin in by_size:
            if origin in self._origins and self._bytes > MAX_RULES_BYTES:
                self._close(origin, self._origins[origin], size)

    def _close(self, origin: str, known: _Origin, size: int) -> None:
        """Replace the rules of an origin by a verdict, because the rules of all origins take too much memory."""
        logger.log(
            logging.DEBUG if self._has_closed else logging.WARNING,
            "%s: nothing of it is sent for %g s: its rules in robots.txt take %d KiB, and the rules of all origins with"
            " pending requests take more than %d MiB; crawl fewer such hosts at once",
            origin, VERDICT_AGE, size // 1024, MAX_RULES_BYTES // 2**20,
        )  # fmt: skip
        self._has_closed = True
        self._take_rules(known, None)
        known.verdict, known.failure = "robots_forbidden", None
        if known.expires_at:  # otherwise it is already being requested
            known.expires_at = trio.current_time() + VERDICT_AGE

    def unasked(self) -> list[tuple[str, float]]:
        """Return each origin whose robots.txt must be requested, with the pause before the request in seconds."""
        origins = list(self._unasked.items())
        self._unasked.clear()
        return origins

    def robots_request(self, origin: str) -> tuple[Request, RobotsWaiter]:
        """Make the request for an origin's robots.txt and its waiter. The gate is closed until then."""
        self._scheduler.close_gate(origin)
        waiting = self._scheduler.waiting_at(origin)
        route = self._route(self._origins[origin], [attempt.request for attempt in waiting])
        request = Request(
            f"{origin}/robots.txt",
            priority=waiting[0].priority if waiting else 0,
            headers=route.headers,
            meta={
                **route.meta,
                "dont_retry": True,  # the gate has its own retries and pauses
                "dont_merge_cookies": True,
                "dont_cache": True,
                "download_maxsize": MAX_PARSED_BYTES,
                "download_truncate": True,  # RFC 9309, 2.5: obey the first part of a longer file
            },
        )
        request.sink = PackedBody()
        waiter = self._asked[origin] = RobotsWaiter(partial(self._parsed, origin), partial(self._heard, origin))
        return request, waiter

    def _route(self, known: _Origin, waiting: list[Request]) -> Route:
        """Return the route of the best waiting request, or of the next one if that route has failed."""
        if not waiting and known.asker is not None:  # a request that is not due yet does not wait at the gate
            waiting = [known.asker]
        routes = [Route.of(request) for request in waiting] or [Route()]
        untried = [route for route in routes if route not in known.tried]
        if not untried:
            known.tried.clear()
        route = (untried or routes)[0]
        known.tried.append(route)
        return route

    def let_go(self, parts: Collection[int], part_of: Callable[[str], int]) -> set[int]:
        """Forget the origins of partitions that move to another process. No request for them may be pending.

        Returns the partitions with a request for robots.txt in flight, for which the caller must call again.
        """
        now = trio.current_time()
        used: set[int] = set()
        for origin in [origin for origin in self._origins if part_of(origin) in parts]:
            waiter = self._asked.get(origin)
            if waiter is not None:
                if waiter.attempt is None or not self._scheduler.withdraw(waiter.attempt, now):
                    used.add(part_of(origin))
                    continue
                del self._asked[origin]
            self._unasked.pop(origin, None)
            self._scheduler.open_gate(origin, now)
            self._drop(origin)
        return used

    def forbids(self, attempt: Attempt) -> str | None:
        """Return the reason why an attempt whose gate is open may not be sent; None if it may."""
        known = self._origins.get(attempt.options.origin)
        if known is None or attempt.options.passes_gate:
            return None
        if 0.0 < known.expires_at <= trio.current_time():
            # This request still uses the old rules; later requests wait for the new ones.
            known.expires_at = 0.0
            known.asker = attempt.request
            self._unasked[attempt.options.origin] = 0.0
        if known.verdict is not None:
            return known.verdict
        if not attempt.options.is_diverted and self.has_forbidden(attempt.options.origin, attempt.request.url):
            return "robots_forbidden"  # a rerouted request sends another URL, which is checked there
        return None

    def ends(self, attempt: Attempt) -> bool:
        """Return True if an attempt is the request of a rendered page and its robots.txt can't be read."""
        return attempt.is_sub_request and self._origins.get(attempt.options.origin, _UNKNOWN).failures >= PAGE_FAILURES

    def is_open(self, origin: str) -> bool:
        """Return True if the rules of an origin are read and its gate is open."""
        return self._origins.get(origin, _UNKNOWN).rules is not None and self._scheduler.gate_of(origin) is None

    def has_forbidden(self, origin: str, url: str) -> bool:
        """Return True if the known rules of an origin forbid ``url``."""
        known = self._origins.get(origin, _UNKNOWN)
        if known.rules is None:
            return False
        verdict = known.rules.judge(url)
        self.steps += verdict.steps
        if verdict.is_cut and not known.has_warned:
            known.has_warned = True
            logger.warning(
                "%s: %s is taken as forbidden, and so are others: to compare it with all rules of robots.txt takes more"
                " than %d steps; where the site allows it, set meta dont_obey_robotstxt",
                origin, url, MAX_STEPS,
            )  # fmt: skip
        return not verdict.is_allowed

    def failure_of(self, attempt: Attempt) -> DownloadError | None:
        """Return the error that an attempt's origin was given up for."""
        return self._origins.get(attempt.options.origin, _UNKNOWN).failure

    def recall(self, origin: str) -> Generator[None, None, bool]:
        """Apply the response of an earlier run, and open the gate. Returns True if robots.txt need not be requested."""
        answer = self._answers.get(origin, trio.current_time())
        if answer is not None:
            rules = yield from RobotsFile.parse_in_steps(
                answer.status, answer.body, self._user_agent, settings=self._settings
            )
        known = self._origins.get(origin)
        if known is None:  # another process owns the origin now
            return True
        if answer is None or rules.is_unreachable:
            return False
        self._obey(origin, known, rules, answer.expires_at)
        return True

    def _obey(self, origin: str, known: _Origin, rules: RobotsFile, expires_at: float) -> None:
        """Apply the rules of a complete response, and open the gate."""
        known.has_answered = True
        self._take_rules(known, rules)
        known.decide(None, None, expires_at)
        delay = rules.crawl_delay or 0.0
        self._throttle.robots_delay(host_scope(f"{origin}/"), delay, trio.current_time(), origin=origin)
        self._make_room()
        self._open(origin)

    async def _parsed(self, origin: str, response: Response) -> RobotsFile:
        if body_bytes(response) <= STEP_BYTES:
            return at_once(self._parse_in_steps(origin, response))
        async with self._parsing:
            return await in_steps(self._parse_in_steps(origin, response))

    def _parse_in_steps(self, origin: str, response: Response) -> Generator[None, None, RobotsFile]:
        is_good, failures = 200 <= response.status < 300, self._origins[origin].failures
        body = as_utf8(response.body, response.headers.get("Content-Type")) if is_good else b""
        rules = yield from RobotsFile.parse_in_steps(
            response.status, body, self._user_agent, failures=failures, settings=self._settings
        )
        if not rules.is_unreachable:
            self._answers.store(origin, response.status, body, trio.current_time() + rules.expires_after)
        return rules

    def _heard(self, origin: str, outcome: Outcome, rules: RobotsFile | None) -> None:
        self._asked.pop(origin, None)
        known = self._origins[origin]
        response = outcome.response
        if response is None:
            rules = RobotsFile.unreachable(known.failures + 1, self._settings)
        else:
            known.has_answered = True
            rules = rules or at_once(self._parse_in_steps(origin, response))
        if rules.is_unreachable:
            self._failed(origin, known, outcome, rules.expires_after)
        else:
            self._obey(origin, known, rules, trio.current_time() + rules.expires_after)

    def _failed(self, origin: str, known: _Origin, outcome: Outcome, pause: float) -> None:
        now = trio.current_time()
        if not known.failures:
            known.failing_since = now
        known.failures += 1
        if isinstance(outcome.error, AddressRefused) and origin_of(outcome.error.url) == origin:
            self._give_up(origin, known, "private_addresses_refused", outcome)
            return
        never_connected = not known.has_answered and isinstance(outcome.error, ConnectFailed | ConnectTimeout)
        most = self._settings.robotstxt_retry_times
        if never_connected:
            pause = CONNECT_PAUSE * 2.0 ** (known.failures - 1)
            most = CONNECT_RETRY_TIMES if most is None else most
        if most is not None and known.failures > most:
            self._give_up(origin, known, "robots_unreachable", outcome, never_connected=never_connected)
            return
        # Time that the throttle does not count as the host's failure does not count here either.
        timer = self._throttle.failure_timer(host_scope(f"{origin}/"))
        since = known.failing_since if timer is None else max(known.failing_since, timer.since)
        left = since + self._give_up_after - now
        if left <= A_MOMENT:
            self._give_up(origin, known, "robots_forbidden", outcome)
            return
        self._stats.inc("robots_retry_count")
        # The last response should come by the end, so start the last attempt earlier by the duration of this one.
        last = max(left - (now - outcome.started_at), A_MOMENT)
        pause = min(pause, LONGEST_PAUSE, last)
        if timer is not None and pause == last:  # its response may take longer than this one
            timer.await_attempt(now + pause, self._give_up_after)
        # Earlier, the attempt would only wait for a proxy.
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
        for attempt in filter(self.ends, self._scheduler.waiting_at(origin)):
            self._scheduler.withdraw(attempt, now)
            end_unread(attempt)
        self._state.wakeup.set()

    def _give_up(
        self, origin: str, known: _Origin, verdict: str, outcome: Outcome, *, never_connected: bool = False
    ) -> None:
        logger.error("%s: its robots.txt could not be read (%s): what waits for it ends", origin, _cause(outcome))
        self._take_rules(known, None)
        error, words = outcome.error, "robots.txt could not be read"
        failure: DownloadError = give_up_error(words, outcome.response, error)
        if never_connected and isinstance(error, DownloadError):  # the host does not exist, so it was not given up
            failure = type(error)(f"{words}: {error.cause}")
            failure.__cause__ = error
        known.decide(verdict, failure, trio.current_time() + VERDICT_AGE)
        self._open(origin)

    def _open(self, origin: str) -> None:
        self._scheduler.open_gate(origin, trio.current_time())
        self._state.wakeup.set()


def _cause(outcome: Outcome) -> str:
    if outcome.response is not None:
        return f"answered {outcome.response.status}"
    return outcome.error.cause if isinstance(outcome.error, DownloadError) else str(outcome.error)
