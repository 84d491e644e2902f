"""The proxy of each request: the request's own proxy, a proxy of a rotating list, or the environment's proxy.

Theory of operation: :class:`ProxyPool`, the policy of the list, is pure and gets the time as an argument. Working
proxies take turns. A failed proxy is not used during its *cooldown*, which doubles with each further failure in a row.
Failures at about the same time count as one failure. Otherwise, if a proxy failed with fifty requests in flight, its
cooldown would take years. Only failures of the proxy itself count (the proxy is unreachable, or refuses the crawler). A
host that is down can't be reached through any proxy, so its failures do not count. If all proxies have a cooldown, a
request waits, without holding a slot, until the first cooldown ends.

The failure of a proxy is not caused by the page or the site. So the request is sent through another proxy without
delay, and this does not count as a retry. :class:`ProxyFailureTransport` converts the response of a banned proxy to an
error, so that the throttle does not treat it as a response of the site.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from importlib.util import find_spec
from typing import Any, Self

import attrs
import trio

from trawl.errors import ProxyFailed, SettingsError
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, host_scope
from trawl.http.notes import note, notes_of
from trawl.observe import Stats
from trawl.transport import Transport
from trawl.transport.proxy import EnvironmentProxies, Proxy

__all__ = [
    "OpenAt",
    "ProxyCooldown",
    "ProxyFailureTransport",
    "ProxyPool",
    "Route",
    "check_socks",
    "forget_chosen",
    "make_proxy_pool",
    "proxies",
]

logger: logging.Logger = logging.getLogger("trawl.middleware")


@attrs.frozen
class ProxyCooldown:
    """The time for which a failed proxy is not used.

    Attributes:
        base: Seconds after the first failure.
        cap: Maximum, in seconds.
    """

    base: float = 300.0
    cap: float = 3600.0

    def after(self, failures: int) -> float:
        """Return the cooldown, in seconds, after this number of failures in a row."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, 64))


@attrs.define(eq=False)
class _ProxyState:
    """One proxy. Mutable."""

    url: str
    name: str  # the URL without credentials
    failures: int = 0  # number of failures in a row
    failed_at: float = -1.0  # time of the last counted failure; those of requests that started earlier do not count
    until: float = 0.0  # end of the cooldown


OpenAt = Callable[[str, float], float]
"""Function of a scope id and ``now``. Returns the event loop time from which the scope allows requests; ``now`` if it
allows them already.
"""


class ProxyPool:
    """Proxies that take turns, with a ``cooldown`` after failures. Duplicate ``urls`` are ignored.

    Pure and mutable. All times are on one monotonic clock.

    Raises:
        ValueError: If an entry is not a proxy.
    """

    __slots__ = ("_all", "_cooldown", "_cooling", "_pushed", "_ready")

    def __init__(self, urls: Iterable[str], cooldown: ProxyCooldown) -> None:
        self._cooldown = cooldown
        self._all: dict[str, _ProxyState] = {url: _ProxyState(url, str(Proxy.of(url))) for url in urls}
        self._ready: deque[_ProxyState] = deque(self._all.values())
        self._cooling: list[tuple[float, int, _ProxyState]] = []
        self._pushed = 0

    def choose(self, now: float, open_at: OpenAt = lambda name, now: now) -> str | float:
        """Return the next proxy. If no proxy can be used now, return the time at which the first proxy is ready.

        A proxy can't be used during its cooldown, or while the site's scope for this proxy is closed: ``open_at``
        returns the time from which requests to the site may use the proxy with this name.
        """
        while self._cooling and self._cooling[0][0] <= now:
            state = heapq.heappop(self._cooling)[2]
            if state.until > now:  # another failure has extended the cooldown in the meantime
                self._push(state)
            else:
                self._ready.append(state)
        first = self._cooling[0][0] if self._cooling else math.inf
        for _ in range(len(self._ready)):
            chosen = self._ready[0]
            self._ready.rotate(-1)
            opens = open_at(chosen.name, now)
            if opens <= now:
                return chosen.url
            first = min(first, opens)
        return first

    def ready_at(self) -> float:
        """Return the time from which at least one proxy has no cooldown."""
        return min([state.until for state in self._all.values()])

    def is_ready(self, url: str, now: float) -> bool:
        """Return True if ``url`` is a proxy of the pool and has no cooldown at ``now``."""
        state = self._all.get(url)
        return state is not None and state.until <= now

    def succeeded(self, url: str, began: float) -> None:
        """Record the success of a request that was started at ``began``."""
        state = self._all[url]
        if began >= state.failed_at:
            state.failures = 0

    def failed(self, url: str, began: float, now: float) -> float | None:
        """Start the cooldown of a proxy. The failed request was started at ``began``.

        Returns the cooldown in seconds; None if the failure counts as part of an earlier failure.
        """
        state = self._all[url]
        if began <= state.failed_at:
            return None
        state.failures += 1
        state.failed_at = now
        pause = self._cooldown.after(state.failures)
        state.until = now + pause
        if state in self._ready:
            self._ready.remove(state)
            self._push(state)
        return pause

    def _push(self, state: _ProxyState) -> None:
        self._pushed += 1  # keeps entries with equal times in order
        heapq.heappush(self._cooling, (state.until, self._pushed, state))

    def __len__(self) -> int:
        return len(self._all)

    def name(self, url: str) -> str:
        """Return the proxy's URL without credentials."""
        return self._all[url].name


def proxies(
    pool: ProxyPool | None,
    environment: EnvironmentProxies,
    *,
    page_tries: int = 5,
    stats: Stats | None = None,
    open_at: OpenAt = lambda scope_id, now: now,
) -> Middleware:
    """Return middleware that sets ``request.meta["proxy"]`` if the request does not have it.

    If the spider has set ``proxy`` in the meta, even to None, it is kept. If this middleware has chosen the proxy for
    an earlier attempt, it chooses a proxy again: of the pool, or of the environment if there is no pool. If a proxy
    fails, up to ``page_tries`` further ones are tried (meta ``max_proxies_to_try``), and ``stats`` count the failure.
    ``open_at`` returns the time from which the scope for a site and a proxy of the list is open.
    """

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            meta, is_chosen = request.meta, _is_chosen(request)
            if "proxy" in meta and not is_chosen:
                return await fetch(request)
            if pool is not None:
                return await _rotated(pool, request, fetch, page_tries, stats, open_at)
            proxy = environment.proxy_for(request.url)
            if proxy is not None:
                meta["proxy"] = proxy
            elif is_chosen:  # the proxy was chosen for the URL that redirected to this URL
                del meta["proxy"]
            note(request, proxy=proxy)
            return await fetch(request)

        return send

    return around


def forget_chosen(request: Request) -> None:
    """Remove a proxy that the crawl has chosen from a stored request, unless the proxy must be kept.

    The settings may have changed since the request was stored.
    """
    if _is_chosen(request) and not notes_of(request).keeps_proxy:
        del request.meta["proxy"]
        note(request, proxy=None)


@attrs.frozen
class Route:
    """The network route of a request. If the crawl creates other requests for this request, they use the same route.

    ``meta`` has its proxy, session and local address, if set. A proxy chosen from the list is left out, because each
    request gets its own proxy. ``headers`` are the credentials for the proxy.
    """

    meta: dict[str, Any] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the route of a request."""
        keys = ("session", "bindaddress") if _is_chosen(request) else ("proxy", "session", "bindaddress")
        meta = {key: value for key in keys if (value := request.meta_get(key, keys)) is not keys}
        authorization = request.headers.get("Proxy-Authorization") if meta.get("proxy") else None
        return cls(meta, {} if authorization is None else {"Proxy-Authorization": authorization})


def _is_chosen(request: Request) -> bool:
    """Return True if this middleware chose the proxy in a request's meta, and not the spider."""
    proxy = notes_of(request).proxy
    return proxy is not None and request.meta_get("proxy") == proxy


async def _rotated(
    pool: ProxyPool, request: Request, fetch: Fetch, page_tries: int, stats: Stats | None, open_at: OpenAt
) -> Outcome:
    """Send ``request`` through the next proxy, or make it wait for a proxy."""
    site = host_scope(request.url)

    def site_open_at(name: str, now: float) -> float:
        return open_at(f"{site} via {name}", now)

    began = trio.current_time()
    notes = notes_of(request)
    kept = notes.proxy if notes.keeps_proxy and _is_chosen(request) else None
    chosen = kept if kept is not None and pool.is_ready(kept, began) else pool.choose(began, site_open_at)
    if not isinstance(chosen, str):
        await trio.lowlevel.checkpoint()
        return Outcome(request, started_at=began, ended_at=began, then=Replace(request, chosen - began, "proxy_wait"))
    request.meta["proxy"] = chosen
    note(request, proxy=chosen, through=f"{site} via {pool.name(chosen)}", keeps_proxy=False)
    outcome = await fetch(request)
    error = outcome.error
    # If the request was not sent, it may have to wait for the proxy's scope, which a manager has set.
    if error is None and outcome.response is None:
        note(request, keeps_proxy=True)
    if not (isinstance(error, ProxyFailed) and error.is_of_proxy):
        if outcome.response is not None and not outcome.is_cached:
            pool.succeeded(chosen, began)
        return outcome
    now = trio.current_time()
    pause = pool.failed(chosen, began, now)
    error.ready_in = max(0.0, pool.ready_at() - now)
    if stats is not None:
        stats.inc("proxy_failed_count")
    if pause is not None:
        logger.warning(
            "the proxy %s is cooling down for %g s: %s%s",
            pool.name(chosen), pause, error.cause,
            f"; so do all others of ROTATING_PROXY_LIST, and requests wait for {round(error.ready_in, 1):g} s: it needs"
            " proxies that work" if error.ready_in else "",
        )  # fmt: skip
    return _try_another_proxy(request, outcome, error, min(page_tries, len(pool) - 1))


def _try_another_proxy(request: Request, outcome: Outcome, error: ProxyFailed, max_tries: int) -> Outcome:
    """Set a new attempt through another proxy as the next step, at most ``max_tries`` times per request."""
    times = request.meta_get("proxy_retry_times", 0)
    wanted = request.meta_get("max_proxies_to_try")
    if times < (max_tries if wanted is None else min(max_tries, wanted)):
        again = request.replace(meta={**request.meta, "proxy_retry_times": times + 1})
        return Outcome(
            request, started_at=outcome.started_at, ended_at=outcome.ended_at, then=Replace(again, 0.0, "proxy_retry")
        )
    if error.response is not None:  # every proxy received this response, so the page itself is the cause
        outcome.response, outcome.error = error.response, None
    return outcome


class ProxyFailureTransport:
    """A transport that reports the response of a banned proxy as an error of the proxy, not as a response of the site.

    Status 407 and ``codes`` mean that the server has banned a proxy of the list.
    """

    def __init__(self, transport: Transport, codes: Collection[int]) -> None:
        self._transport = transport
        self._codes = frozenset({407, *codes})  # 407: Proxy Authentication Required

    async def send(self, request: Request, on_sent: Callable[[], Any]) -> Outcome:
        """Send ``request``. ``on_sent`` is called when the request is about to be written. A checkpoint."""
        outcome = await self._transport.send(request, on_sent)
        response = outcome.response
        if response is not None and response.status in self._codes and _is_chosen(request):
            cause = f"status {response.status}"
            outcome.error = ProxyFailed(cause, response=response, url=request.url, method=request.method)
            outcome.response = None
        return outcome

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()


def make_proxy_pool(urls: Collection[str], cooldown: ProxyCooldown) -> ProxyPool | None:
    """Return the pool of ``ROTATING_PROXY_LIST``; None if the list is empty."""
    if not urls:
        return None
    try:
        pool = ProxyPool(urls, cooldown)
    except ValueError as error:
        raise SettingsError(f"ROTATING_PROXY_LIST: {error}", "ROTATING_PROXY_LIST") from error
    check_socks(urls, "ROTATING_PROXY_LIST")
    return pool


def check_socks(urls: Iterable[str], setting: str) -> None:
    """Raise a SettingsError if one of ``urls`` is a SOCKS proxy, and the package for these is not installed."""
    for url in urls:
        if url.strip().lower().startswith("socks") and find_spec("socksio") is None:
            words = f"{setting}: the proxy {Proxy.of(url)} needs the extra socks: pip install 'trawl-crawler[socks]'"
            raise SettingsError(words, setting)
