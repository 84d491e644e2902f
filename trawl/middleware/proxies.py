"""Which proxy a request goes through: its own, one of a list that takes turns, or the environment's.

Theory of operation: the list's policy, :class:`ProxyPool`, is a pure object that is told the time. Working proxies
take turns. One that fails rests, twice as long after each further failure, and is asked again when it has rested. What
fails at about the same time is one incident: a proxy with fifty requests under way is not put away for years. A failure
counts only where it is the proxy's own (it was not reached, or refused us): if a host is down, that is so through every
proxy. Where all of them rest, a request waits for the first that will have rested; it holds no place meanwhile.

What a proxy fails says nothing of the page and nothing of the site. So the request goes through another proxy, without
a delay, and none of its retries is used; and a refusal of a banned proxy is an error already at the wire
(:class:`ProxyBanTransport`), before the throttle could take it for the site's own.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import attrs
import trio

from trawl.errors import ProxyFailed, SettingsError
from trawl.http import Fetch, Middleware, Outcome, Replace, Request
from trawl.observe import Stats
from trawl.transport import Transport
from trawl.transport.proxy import EnvironmentProxies, Proxy

__all__ = ["ProxyBanTransport", "ProxyCooldown", "ProxyPool", "make_proxy_pool", "proxies"]

logger: logging.Logger = logging.getLogger("trawl.middleware")

CHOSEN = "_proxy_is_chosen"
"""In the meta of a request whose proxy was chosen here, and is chosen anew if it is sent again."""

UNSENT = "unsent"
"""Its value where the request was not sent after all, and keeps its proxy: a manager may have a scope for it, for which
the request waits now."""

PROXY_AUTHENTICATION_REQUIRED = 407


@attrs.frozen
class ProxyCooldown:
    """How long a proxy that fails is left alone.

    Attributes:
        base: After the first failure; seconds.
        cap: At the longest; seconds.
    """

    base: float = 300.0
    cap: float = 3600.0

    def after(self, failures: int) -> float:
        """Seconds of rest after so many incidents in a row."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, 64))


@attrs.define(eq=False)
class _ProxyState:
    """One proxy. Mutable.

    Attributes:
        url: As it was given.
        name: Without its credentials.
        failures: Incidents in a row.
        rested_at: When it last came to rest; what was begun before that tells nothing new.
        until: Up to when it rests.
    """

    url: str
    name: str
    failures: int = 0
    rested_at: float = -1.0
    until: float = 0.0


class ProxyPool:
    """Proxies that take turns. Pure and mutable; all instants are of one clock, which never goes back.

    Args:
        urls: The proxies; each counts once.
        rest: How long those that fail are left alone.

    Raises:
        ValueError: One of them is no proxy.
    """

    __slots__ = ("_all", "_ready", "_rest", "_resting", "_rests")

    def __init__(self, urls: Iterable[str], rest: ProxyCooldown) -> None:
        self._rest = rest
        self._all: dict[str, _ProxyState] = {url: _ProxyState(url, str(Proxy.of(url))) for url in urls}
        self._ready: deque[_ProxyState] = deque(self._all.values())
        self._resting: list[tuple[float, int, _ProxyState]] = []
        self._rests = 0

    def choose(self, now: float) -> str | float:
        """The proxy whose turn it is; if all rest, the instant at which one will have rested."""
        while self._resting and self._resting[0][0] <= now:
            health = heapq.heappop(self._resting)[2]
            if health.until > now:  # it has failed again before anybody asked for it
                self._push(health)
            else:
                self._ready.append(health)
        if not self._ready:
            return self._resting[0][0]
        chosen = self._ready[0]
        self._ready.rotate(-1)
        return chosen.url

    def is_ready(self, url: str, now: float) -> bool:
        """Whether a proxy is one of these, and does not rest."""
        health = self._all.get(url)
        return health is not None and health.until <= now

    def succeeded(self, url: str, began: float) -> None:
        """Note that a request which was begun at ``began`` got through."""
        health = self._all[url]
        if began >= health.rested_at:
            health.failures = 0

    def failed(self, url: str, began: float, now: float) -> float | None:
        """Let a proxy rest that failed a request begun at ``began``.

        Returns:
            How long it rests, in seconds; None where its rest was for the same incident.
        """
        health = self._all[url]
        if began <= health.rested_at:
            return None
        health.failures += 1
        health.rested_at = now
        pause = self._rest.after(health.failures)
        health.until = now + pause
        if health in self._ready:
            self._ready.remove(health)
            self._push(health)
        return pause

    def _push(self, health: _ProxyState) -> None:
        self._rests += 1  # of equals the first goes first
        heapq.heappush(self._resting, (health.until, self._rests, health))

    def __len__(self) -> int:
        return len(self._all)

    def name(self, url: str) -> str:
        """How people see it: without credentials."""
        return self._all[url].name

    def resting(self, now: float) -> list[str]:
        """Those that rest, as people see them."""
        return [health.name for health in self._all.values() if health.until > now]


def proxies(
    pool: ProxyPool | None,
    environment: EnvironmentProxies,
    *,
    page_tries: int = 5,
    stats: Stats | None = None,
) -> Middleware:
    """Middleware that gives requests a proxy, in ``request.meta["proxy"]``, where they name none themselves.

    A request whose meta has ``proxy``, be it None, is left as it is.

    Args:
        pool: The list; None: there is none, and the environment counts.
        environment: The proxies of the environment.
        page_tries: Through how many others a request goes that a proxy of the list has failed; meta
            ``max_proxies_to_try`` goes before it. Never more than there are others.
        stats: Where failures are counted.
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            meta = request.meta
            if "proxy" in meta and not meta.get(CHOSEN):
                return await fetch(request)
            if pool is not None:
                return await _rotated(pool, request, fetch, page_tries, stats)
            proxy = environment.proxy_for(request.url)
            if proxy is not None:
                meta["proxy"], meta[CHOSEN] = proxy, True
            elif CHOSEN in meta:  # chosen for the URL that has been redirected here
                del meta["proxy"], meta[CHOSEN]
            return await fetch(request)

        return send

    return around


async def _rotated(pool: ProxyPool, request: Request, fetch: Fetch, page_tries: int, stats: Stats | None) -> Outcome:
    """Send ``request`` through the proxy whose turn it is, or have it wait for one."""
    began = trio.current_time()
    kept = request.meta["proxy"] if request.meta.get(CHOSEN) == UNSENT else ""
    chosen = kept if pool.is_ready(kept, began) else pool.choose(began)
    if not isinstance(chosen, str):
        await trio.lowlevel.checkpoint()
        return Outcome(request, started_at=began, ended_at=began, then=Replace(request, chosen - began, "proxy_wait"))
    request.meta["proxy"], request.meta[CHOSEN] = chosen, True
    outcome = await fetch(request)
    error = outcome.error
    if error is None and outcome.response is None:
        request.meta[CHOSEN] = UNSENT
    if not (isinstance(error, ProxyFailed) and error.is_of_proxy):
        if outcome.response is not None and not outcome.is_cached:
            pool.succeeded(chosen, began)
        return outcome
    pause = pool.failed(chosen, began, trio.current_time())
    if stats is not None:
        stats.inc("proxy_failed_count")
    if pause is not None:
        logger.warning("the proxy %s rests for %g s: %s", pool.name(chosen), pause, error.cause)
    return _through_another(request, outcome, error, min(page_tries, len(pool) - 1))


def _through_another(request: Request, outcome: Outcome, error: ProxyFailed, most: int) -> Outcome:
    """What becomes of a request that its proxy has failed: it goes through another, at most ``most`` times."""
    times = request.meta_get("proxy_retry_times", 0)
    wanted = request.meta_get("max_proxies_to_try")
    if times < (most if wanted is None else min(most, wanted)):
        again = request.replace(meta={**request.meta, "proxy_retry_times": times + 1})
        return Outcome(
            request, started_at=outcome.started_at, ended_at=outcome.ended_at, then=Replace(again, 0.0, "proxy_retry")
        )
    if error.response is not None:  # every one of them gets this answer: it is the page's own
        outcome.response, outcome.error = error.response, None
    return outcome


class ProxyBanTransport:
    """A transport on which the refusal of a banned proxy is the proxy's failure, not the site's answer.

    Args:
        transport: The wire.
        codes: Statuses by which a proxy of the list, or a site through it, says that it is no longer welcome; 407 is
            always one.
    """

    def __init__(self, transport: Transport, codes: Collection[int]) -> None:
        self._transport = transport
        self._codes = frozenset({PROXY_AUTHENTICATION_REQUIRED, *codes})

    async def send(self, request: Request, on_sent: Callable[[], Any]) -> Outcome:
        """Send ``request``; on_sent is called when it goes to the wire. A checkpoint."""
        outcome = await self._transport.send(request, on_sent)
        response = outcome.response
        if response is not None and response.status in self._codes and request.meta_get(CHOSEN):
            cause = f"status {response.status}"
            outcome.error = ProxyFailed(cause, response=response, url=request.url, method=request.method)
            outcome.response = None
        return outcome

    async def aclose(self) -> None:
        """Close the wire."""
        await self._transport.aclose()


def make_proxy_pool(urls: Collection[str], rest: ProxyCooldown) -> ProxyPool | None:
    """The list that ``ROTATING_PROXY_LIST`` is; None if it is empty.

    Raises:
        SettingsError: There is something in it that is no proxy.
    """
    if not urls:
        return None
    try:
        return ProxyPool(urls, rest)
    except ValueError as error:
        raise SettingsError(f"ROTATING_PROXY_LIST: {error}", "ROTATING_PROXY_LIST") from error
