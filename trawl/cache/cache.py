"""The cache of one crawl.

The engine calls :meth:`Cache.find` before a request holds any place, so a cached response never passes the throttle.
:meth:`Cache.middleware` is the innermost middleware, next to the transport. If there is a stale response, it makes the
request conditional and replaces a 304 with the stale response. It also stores responses. A disk failure or a damaged
row is logged and counted, and the crawl continues without the cache.

If the response to a request was refused (:func:`is_asked_again`), the request is not served from the cache, and its
stored responses are removed. Otherwise, a retry would get the same response again and again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from hashlib import blake2b

import attrs
import trio

from trawl.blocking import Blocking
from trawl.cache import CacheSettings
from trawl.cache.policy import CacheResult, Policy
from trawl.cache.store import CacheEntry, DamagedError, NewEntry, Store, make_entry, make_response
from trawl.errors import IgnoreRequest
from trawl.http import Fetch, FileResponse, Outcome, Replace, Request, Response, fingerprint, scheme_of
from trawl.http.notes import NO_NOTES, note, notes_of
from trawl.observe import Stats

__all__ = ["Cache", "Prepare", "is_asked_again", "key_of"]

logger: logging.Logger = logging.getLogger("trawl.cache")

MAX_STALE = 10_000
"""Maximum number of stale responses that wait for their requests. Further requests are sent without conditions."""

Prepare = Callable[[Request], Request]
"""Adds to a request the headers that the middleware would add before sending, because ``Vary`` may name them."""


def key_of(request: Request) -> bytes:
    """Return the key for the stored responses of a request, made from its fingerprint and its meta ``cookiejar``."""
    jar = False if request.meta_get("dont_merge_cookies") else request.meta_get("cookiejar")
    key = fingerprint(request)
    return key if jar is None else blake2b(key + repr(jar).encode("utf-8", "replace"), digest_size=len(key)).digest()


def is_asked_again(request: Request) -> bool:
    """Return True if an earlier response to the URL was not accepted: for a retry, or a redirect back to the URL."""
    if not request.has_meta and notes_of(request) is NO_NOTES:
        return False
    if request.meta_get("retry_times") or notes_of(request).bypasses_cache:
        return True
    return request.url in request.meta_get("redirect_urls", ())


def _without_cache(request: Request) -> Replace:
    """Return a ``Replace`` that sends the request, because the stored response can't be read or was removed."""
    again = request.replace()
    note(again, bypasses_cache=True)
    return Replace(again, reason="httpcache_gone")


@attrs.define(eq=False)
class _Transaction:
    """Responses that are stored in one transaction."""

    entries: list[NewEntry]
    ended: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


class Cache:
    """Responses on disk. See :func:`trawl.cache.open_cache` for the arguments.

    A body that is larger than meta ``download_maxsize``, or else than ``max_body_bytes``, is not served.
    """

    def __init__(
        self,
        settings: CacheSettings,
        *,
        policy: Policy,
        store: Store,
        blocking: Blocking,
        now_utc: Callable[[], datetime],
        stats: Stats,
        ignored_statuses: Sequence[int],
        prepare: Prepare | None,
        max_body_bytes: int,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._settings = settings
        self._policy = policy
        self._store = store
        self._blocking = blocking
        self._now_utc = now_utc
        self._stats = stats
        self._ignored_statuses = frozenset((*settings.httpcache_ignore_http_codes, *ignored_statuses))
        self._prepare = prepare
        self._stale: OrderedDict[bytes, CacheResult] = OrderedDict()
        self._transaction: _Transaction | None = None  # the next transaction, which other tasks can join
        self._writing = trio.Lock()
        self._logged: set[str] = set()  # operations whose failure was logged

    async def find(self, requests: Sequence[Request]) -> list[Callable[[Request], Awaitable[Outcome]] | None]:
        """Look up requests. A checkpoint if one of the requests may be served from the cache.

        Returns:
            For each request, a function that reads the body and returns the outcome; None if the request must be sent.
        """
        answers: list[Callable[[Request], Awaitable[Outcome]] | None] = [None] * len(requests)
        may_answer = self._policy.may_answer
        asked = [i for i, request in enumerate(requests) if self._is_cacheable(request) and may_answer(request)]
        keys = [key_of(requests[index]) for index in asked]
        if not keys:
            return answers
        if refused := [key for index, key in zip(asked, keys, strict=True) if is_asked_again(requests[index])]:
            with self._counting("removing a response"):
                await self._blocking.run(self._store.discard, refused)
        found: list[list[CacheEntry]] = [[] for _ in keys]
        with self._counting("lookup"):
            found, damaged = await self._blocking.run(self._store.find, keys)
            if damaged:
                self._count_failure("lookup", DamagedError("a row is damaged"), damaged)
        now = self._now()
        for index, key, stored in zip(asked, keys, found, strict=True):
            answers[index] = self._answer(requests[index], key, [] if key in refused else stored, now)
        return answers

    def middleware(self, fetch: Fetch) -> Fetch:
        """Return the innermost layer around ``fetch``. It stores responses and revalidates stale responses."""

        async def send(request: Request) -> Outcome:
            key = key_of(request) if self._is_cacheable(request) else b""
            sent, stale = self._conditional(request, key) if self._stale else (request, None)
            asked_at = self._now()
            outcome = await fetch(sent)
            response = outcome.response
            if response is None or outcome.is_cached or not key or outcome.then is not None:
                return outcome
            if response.status == 304 and stale is not None:
                outcome.response = await self._revalidated(key, stale, outcome.request, response, asked_at)
                if outcome.response is None:
                    outcome.then = _without_cache(request)
                return outcome
            with self._counting("storing a response"):
                await self._receive(key, outcome, response, asked_at)
            return outcome

        return send

    def _answer(
        self, request: Request, key: bytes, stored: list[CacheEntry], now: float
    ) -> Callable[[Request], Awaitable[Outcome]] | None:
        expiry = self._settings.httpcache_expiration_secs
        if expiry:
            stored = [each for each in stored if now - each.came_at <= expiry]
        if stored and self._prepare is not None:
            request = self._prepare(request)
        choice = self._policy.choose(request, stored, now)
        if choice.stored is not None and choice.conditions is None:
            return partial(self._hit, choice.stored)
        self._stats.inc("httpcache/miss")
        if self._settings.httpcache_ignore_missing:
            return self._refuse_missing
        if choice.stored is not None:
            # Drop the body to save memory, because many stale responses may wait here.
            self._stale[key] = attrs.evolve(choice, stored=attrs.evolve(choice.stored, body=None))
            if len(self._stale) > MAX_STALE:
                self._stale.popitem(last=False)
        return None

    async def _hit(self, stored: CacheEntry, request: Request) -> Outcome:
        """Return the outcome of a hit."""
        body = stored.body
        if body is not None:
            await trio.lowlevel.checkpoint()
        else:
            limit = request.meta_get("download_maxsize")
            with self._counting("reading a body"):
                limit = self._max_body_bytes if limit is None else int(limit)
                body = await self._blocking.run(self._store.body, stored, limit)
        if body is None:  # the row is damaged, or was removed by another process or a newer response
            return Outcome(request, is_cached=True, then=_without_cache(request))
        self._stats.inc("httpcache/hit")
        now = trio.current_time()
        response = make_response(stored, body, request)
        return Outcome(request, response=response, started_at=now, ended_at=now, is_cached=True)

    async def _refuse_missing(self, request: Request) -> Outcome:
        self._stats.inc("httpcache/ignore")
        await trio.lowlevel.checkpoint()
        error = IgnoreRequest(f"{request!r}: not in the cache, and HTTPCACHE_IGNORE_MISSING is set")
        return Outcome(request, error=error, is_cached=True)

    def _conditional(self, request: Request, key: bytes) -> tuple[Request, CacheEntry | None]:
        """Return the request with conditions for its stale response, and that response (None if there is none)."""
        choice = None if is_asked_again(request) else self._stale.pop(key, None)
        if choice is None:
            return request, None
        request = request.replace()
        for name, value in choice.conditions or ():
            request.headers[name] = value
        return request, choice.stored

    async def _revalidated(
        self, key: bytes, stale: CacheEntry, sent: Request, response: Response, asked_at: float
    ) -> Response | None:
        """Return the stale response, updated by a 304; None if it was removed, or the 304 belongs to another."""
        refreshed = self._policy.refreshed(stale, response, asked_at=asked_at, came_at=self._now())
        if refreshed is None:
            return None
        renewed: Response | None = None
        with self._counting("revalidating a response"):
            if (body := await self._blocking.run(self._store.body, stale, self._max_body_bytes)) is not None:
                await self._blocking.run(self._store.refresh, key, refreshed)
                self._stats.inc("httpcache/revalidate")
                renewed = make_response(refreshed, body, sent)
                renewed.latency = response.latency
        return renewed

    async def _receive(self, key: bytes, outcome: Outcome, response: Response, asked_at: float) -> None:
        """Store a response from the wire."""
        sent, policy, now = outcome.request, self._policy, self._now()
        if policy.invalidates(sent, response):
            if await self._blocking.run(self._store.forget, sent.url):
                self._stats.inc("httpcache/invalidate")
        elif self._is_excluded(outcome, response) or not policy.may_store(sent, response):
            self._stats.inc("httpcache/uncacheable")
        else:
            stored = make_entry(sent, response, asked_at=asked_at, came_at=now)
            await self._put((key, stored, response.body, partial(policy.takes_place_of, sent)))
            self._stats.inc("httpcache/store")

    def _is_excluded(self, outcome: Outcome, response: Response) -> bool:
        """Return True if a response will be retried, has its own file, or is incomplete (RFC 9111, 3.3)."""
        is_partial = "dataloss" in response.flags or "truncated" in response.flags
        is_retried = outcome.is_trigger or response.status in self._ignored_statuses
        return is_retried or is_partial or isinstance(response, FileResponse)

    async def _put(self, entry: NewEntry) -> None:
        """Store a response, together with all others that arrive during the current transaction. A checkpoint."""
        transaction = self._transaction
        if transaction is not None:
            transaction.entries.append(entry)
            await transaction.ended.wait()
        else:
            transaction = self._transaction = _Transaction([entry])
            with trio.CancelScope(shield=True):  # shielded, because this task also writes the entries of other tasks
                await self._write(transaction)
        if transaction.error is not None:
            raise sqlite3.OperationalError(str(transaction.error)) from transaction.error

    async def _write(self, transaction: _Transaction) -> None:
        try:
            async with self._writing:
                self._transaction = None
                await self._blocking.run(self._store.put_many, transaction.entries)
        except Exception as error:  # for a body of 2 GB, for example, sqlite3 does not raise its own error class
            transaction.error = error
        finally:
            transaction.ended.set()

    def _is_cacheable(self, request: Request) -> bool:
        """Return whether the cache may be used for a request."""
        return not request.meta_get("dont_cache") and scheme_of(request.url) not in (
            self._settings.httpcache_ignore_schemes
        )

    def _now(self) -> float:
        return self._now_utc().timestamp()

    @contextmanager
    def _counting(self, what: str) -> Generator[None, None, None]:
        """Count a disk failure in the block instead of raising it."""
        try:
            yield
        except sqlite3.Error as error:
            self._count_failure(what, error)

    def _count_failure(self, what: str, error: Exception, times: int = 1) -> None:
        """Count a disk failure. Only the first of each kind is logged, because every page fails if the disk is full."""
        self._stats.inc("httpcache/error", times)
        if what not in self._logged:
            self._logged.add(what)
            logger.error("cache: %s failed: %s (further failures are only counted, as httpcache/error)", what, error)
