"""The cache of one crawl: looked up before a request is queued, filled next to the wire.

:meth:`Cache.find` is called by the engine while a request holds nothing; a response that it finds never comes near the
throttle. :meth:`Cache.middleware` is next to the wire: it adds the conditions under which a stale response may be used,
takes a 304 for that response, and stores what may be stored. A failure of the disk is logged and counted, and the crawl
goes on without the cache.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

import attrs
import trio

from trawl.blocking import Blocking
from trawl.cache.policy import CacheResult, Policy
from trawl.cache.settings import CacheSettings
from trawl.cache.store import CacheEntry, NewEntry, Store, make_entry, make_response
from trawl.errors import IgnoreRequest
from trawl.http import Fetch, FileResponse, Outcome, Replace, Request, Response, fingerprint, scheme_of
from trawl.observe import Stats

__all__ = ["Cache", "Prepare"]

logger: logging.Logger = logging.getLogger("trawl.cache")

MAX_STALE = 10_000
"""Maximum of stale responses remembered until their request is sent; others are requested without conditions."""

Prepare = Callable[[Request], Request]
"""Returns a request with the fields that it will be sent with, for ``Vary``."""


@attrs.define(eq=False)
class _Transaction:
    """Responses that are stored in one transaction."""

    entries: list[NewEntry]
    ended: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


class Cache:
    """Responses on disk.

    Args:
        settings: Settings of the cache.
        policy: Decides which responses are stored and used.
        store: The file.
        blocking: Runs the store's calls.
        now_utc: Wall time.
        stats: Counts ``httpcache/hit``, ``/miss``, ``/store``, ``/uncacheable``, ``/revalidate``, ``/invalidate``,
            ``/ignore`` and ``/error``.
        ignored_statuses: Statuses that are not stored, besides those of the settings: responses that are retried.
        prepare: Adds the fields that the middleware will add.
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
        ignored_statuses: Sequence[int] = (),
        prepare: Prepare | None = None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._store = store
        self._blocking = blocking
        self._now_utc = now_utc
        self._stats = stats
        self._ignored_statuses = frozenset((*settings.httpcache_ignore_http_codes, *ignored_statuses))
        self._prepare = prepare
        self._stale: OrderedDict[bytes, CacheResult] = OrderedDict()
        self._transaction: _Transaction | None = None  # that others may join
        self._writing = trio.Lock()
        self._logged: set[str] = set()  # operations that have failed

    async def find(self, requests: Sequence[Request]) -> list[Callable[[Request], Awaitable[Outcome]] | None]:
        """Look requests up. A checkpoint if one of them may be answered from the cache.

        Returns:
            For each request, the function that answers it and only then reads its body; None: it has to be sent.
        """
        answers: list[Callable[[Request], Awaitable[Outcome]] | None] = [None] * len(requests)
        may_answer = self._policy.may_answer
        asked = [i for i, request in enumerate(requests) if self._is_cacheable(request) and may_answer(request)]
        keys = [fingerprint(requests[index]) for index in asked]
        if not keys:
            return answers
        try:
            found = await self._blocking.run(self._store.find, keys)
        except sqlite3.Error as error:
            self._count_failure("lookup", error)
            found = [[] for _ in keys]
        now = self._now()
        for index, key, stored in zip(asked, keys, found, strict=True):
            answers[index] = self._answer(requests[index], key, stored, now)
        return answers

    def middleware(self, fetch: Fetch) -> Fetch:
        """Wrap the layer next to the wire: store its responses, and revalidate stale ones."""

        async def send(request: Request) -> Outcome:
            key = fingerprint(request) if self._is_cacheable(request) else b""
            request, stale = self._conditional(request, key) if self._stale else (request, None)
            asked_at = self._now()
            outcome = await fetch(request)
            response = outcome.response
            if response is not None and not outcome.is_cached and key and outcome.then is None:
                try:
                    await self._receive(key, stale, outcome, response, asked_at)
                except sqlite3.Error as error:
                    self._count_failure("storing a response", error)
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
            # Without the body: so many of them may wait here.
            self._stale[key] = attrs.evolve(choice, stored=attrs.evolve(choice.stored, body=None))
            if len(self._stale) > MAX_STALE:
                self._stale.popitem(last=False)
        return None

    async def _hit(self, stored: CacheEntry, request: Request) -> Outcome:
        """Return the outcome of a hit."""
        body = stored.body
        try:
            if body is None:
                body = await self._blocking.run(self._store.body, stored.id)
            else:
                await trio.lowlevel.checkpoint()
        except (sqlite3.Error, zlib.error) as error:
            self._count_failure("reading a body", error)
        if body is None:  # removed meanwhile, by another process or a newer response
            meta = {**request.meta, "dont_cache": True}
            return Outcome(request, is_cached=True, then=Replace(request.replace(meta=meta), reason="httpcache_gone"))
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
        """Return the request with the conditions under which its stale response may be used, and that response."""
        choice = self._stale.pop(key, None)
        if choice is None:
            return request, None
        request = request.replace()
        for name, value in choice.conditions or ():
            request.headers[name] = value
        return request, choice.stored

    async def _receive(
        self, key: bytes, stale: CacheEntry | None, outcome: Outcome, response: Response, asked_at: float
    ) -> None:
        """Store a response from the wire, or revalidate the stale one with it."""
        sent, policy, now = outcome.request, self._policy, self._now()
        if response.status == 304 and stale is not None:
            refreshed = policy.refreshed(stale, response, asked_at=asked_at, came_at=now)
            body = None if refreshed is None else await self._blocking.run(self._store.body, stale.id)
            if refreshed is not None and body is not None:
                await self._blocking.run(self._store.refresh, refreshed)
                self._stats.inc("httpcache/revalidate")
                renewed = make_response(refreshed, body, sent)
                renewed.latency = response.latency
                outcome.response = renewed
            return
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
        """Return whether a response is not stored, whatever the policy: it is retried, or has a file of its own."""
        return outcome.is_trigger or response.status in self._ignored_statuses or isinstance(response, FileResponse)

    async def _put(self, entry: NewEntry) -> None:
        """Store a response, in one transaction with those that come while the one before is written. A checkpoint.

        Raises:
            sqlite3.Error: The transaction failed.
        """
        transaction = self._transaction
        if transaction is not None:
            transaction.entries.append(entry)
            await transaction.ended.wait()
        else:
            transaction = self._transaction = _Transaction([entry])
            with trio.CancelScope(shield=True):  # it writes those of other tasks too
                await self._write(transaction)
        if transaction.error is not None:
            raise sqlite3.OperationalError(str(transaction.error)) from transaction.error

    async def _write(self, transaction: _Transaction) -> None:
        try:
            async with self._writing:
                self._transaction = None
                await self._blocking.run(self._store.put_many, transaction.entries)
        except Exception as error:  # not only SQLite's: it has none of its own for a body of 2 GB
            transaction.error = error
        finally:
            transaction.ended.set()

    def _is_cacheable(self, request: Request) -> bool:
        """Return whether the cache takes part in a request at all."""
        return not request.meta_get("dont_cache") and scheme_of(request.url) not in (
            self._settings.httpcache_ignore_schemes
        )

    def _now(self) -> float:
        return self._now_utc().timestamp()

    def _count_failure(self, what: str, error: Exception) -> None:
        """Count a failure of the disk, and log the first of its kind: on a full disk each page would have one."""
        self._stats.inc("httpcache/error")
        if what not in self._logged:
            self._logged.add(what)
            logger.error("cache: %s failed: %s (further failures are only counted, as httpcache/error)", what, error)
