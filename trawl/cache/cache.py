"""The cache of one crawl: looked up before a request is lined up, filled behind the wire.

Looking up and storing are two ends. :meth:`Cache.find` is asked by the engine while a request holds nothing; what it
answers never comes near the throttle. :meth:`Cache.middleware` is next to the wire: it adds the conditions under which
a stale response may be given after all, takes a 304 for it, and stores what may be stored. A failure of the disk is
logged and counted, and the crawl goes on without a cache.

Opens the cache of a spider, if its crawl is to have one.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import trio

from trawl.blocking import Blocking
from trawl.cache.policy import CacheResult, Policy, make_policy
from trawl.cache.settings import CacheSettings
from trawl.cache.store import CacheEntry, Store, make_entry, make_response
from trawl.errors import IgnoreRequest, UsageError
from trawl.http import Fetch, FileResponse, Outcome, Replace, Request, Response, fingerprint, scheme_of
from trawl.observe import Stats

__all__ = ["Cache", "Prepare", "open_cache"]

CLOSE_GRACE = 5.0
"""Seconds that closing the file may take."""


@asynccontextmanager
async def open_cache(
    settings: CacheSettings,
    *,
    name: str,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    stats: Stats,
    ignored_statuses: Sequence[int] = (),
    prepare: Prepare | None = None,
) -> AsyncGenerator[Cache | None, None]:
    """The cache of a spider, open; None where it is not enabled. Leaving closes it.

    Args:
        settings: The settings of the cache.
        name: The spider's: its file is named after it.
        blocking: How the file is read and written.
        now_utc: Wall time.
        stats: Where it counts.
        ignored_statuses: Statuses that are not kept.
        prepare: Adds to a request what the middleware will add.

    Raises:
        SettingsError: ``HTTPCACHE_POLICY`` names no policy, or one that needs what is not installed.
        UsageError: The file can't be opened.
    """
    if not settings.httpcache_enabled:
        yield None
        return
    # No crawl without a cache reads these, and SQLite.
    from trawl.cache.cache import Cache  # noqa: PLC0415
    from trawl.cache.store import Error, Store  # noqa: PLC0415

    policy = make_policy(settings)
    file = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    path = Path(settings.httpcache_dir) / f"{file.lstrip('.') or '_'}.sqlite3"
    try:
        store = await blocking.run(partial(Store, path, compresses=settings.httpcache_gzip))
    except (OSError, Error) as error:
        raise UsageError(f"HTTPCACHE_DIR: the cache {str(path)!r} can't be opened: {error}") from error
    try:
        yield Cache(
            settings,
            policy=policy,
            store=store,
            blocking=blocking,
            now_utc=now_utc,
            stats=stats,
            ignored_statuses=ignored_statuses,
            prepare=prepare,
        )
    finally:
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await blocking.run(store.close)


logger: logging.Logger = logging.getLogger("trawl.cache")

MAX_STALE = 10_000
"""Stale responses that are remembered until their request is sent; beyond that it is sent without conditions."""

Prepare = Callable[[Request], Request]
"""A request with the fields that it will be sent with, for ``Vary``."""


class Cache:
    """Responses on disk.

    Args:
        settings: What is kept, and for how long.
        policy: What it goes by.
        store: Where it is.
        blocking: How the store is asked.
        now_utc: Wall time.
        stats: Counts ``httpcache/hit``, ``/miss``, ``/store``, ``/uncacheable``, ``/revalidate``, ``/invalidate``,
            ``/ignore`` and ``/error``.
        ignored_statuses: Statuses that are not kept besides those of the settings: what is sent again.
        prepare: Adds what the middleware will add.
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
        self._stale: OrderedDict[bytes, tuple[Request, CacheResult]] = OrderedDict()
        self._told: set[str] = set()  # what has failed

    async def find(self, requests: Sequence[Request]) -> list[Callable[[Request], Awaitable[Outcome]] | None]:
        """For each request how it is answered from here; None: it has to be sent. A checkpoint if one is looked up.

        Nothing is held meanwhile, and no body is read: each is when its answer is given.
        """
        answers: list[Callable[[Request], Awaitable[Outcome]] | None] = [None] * len(requests)
        asked = [index for index, request in enumerate(requests) if self._is_ours(request)]
        keys = [fingerprint(requests[index]) for index in asked]
        if not keys:
            return answers
        try:
            found = await self._blocking.run(self._store.find, keys)
        except sqlite3.Error as error:
            self._broken("looking up", error)
            found = [[] for _ in keys]
        now = self._now()
        for index, key, stored in zip(asked, keys, found, strict=True):
            answers[index] = self._answer(requests[index], key, stored, now)
        return answers

    def middleware(self, fetch: Fetch) -> Fetch:
        """The layer next to the wire."""

        async def send(request: Request) -> Outcome:
            key = fingerprint(request) if self._is_kept(request) else b""
            request, stale = self._conditional(request, key) if self._stale else (request, None)
            asked_at = self._now()
            outcome = await fetch(request)
            response = outcome.response
            if response is not None and not outcome.is_cached and key and outcome.then is None:
                try:
                    await self._heard(key, stale, outcome, response, asked_at)
                except sqlite3.Error as error:
                    self._broken("storing", error)
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
            return partial(self._given, choice.stored)
        self._stats.inc("httpcache/miss")
        if self._settings.httpcache_ignore_missing:
            return self._ignored
        if choice.stored is not None:
            self._stale[key] = (request, choice)
            if len(self._stale) > MAX_STALE:
                self._stale.popitem(last=False)
        return None

    async def _given(self, stored: CacheEntry, request: Request) -> Outcome:
        """The outcome of a hit."""
        try:
            body = await self._blocking.run(self._store.body, stored.id)
        except (sqlite3.Error, zlib.error) as error:
            self._broken("reading a body", error)
            body = None
        if body is None:  # dropped meanwhile, by another process or a newer one: look again, or send it
            meta = {**request.meta, "dont_cache": True}
            return Outcome(request, is_cached=True, then=Replace(request.replace(meta=meta), reason="httpcache_gone"))
        self._stats.inc("httpcache/hit")
        now = trio.current_time()
        response = make_response(stored, body, request)
        return Outcome(request, response=response, started_at=now, ended_at=now, is_cached=True)

    async def _ignored(self, request: Request) -> Outcome:
        self._stats.inc("httpcache/ignore")
        await trio.lowlevel.checkpoint()
        error = IgnoreRequest(f"{request!r}: it is not in the cache, and HTTPCACHE_IGNORE_MISSING is set")
        return Outcome(request, error=error, is_cached=True)

    def _conditional(self, request: Request, key: bytes) -> tuple[Request, CacheEntry | None]:
        """A request with the conditions under which the stale response may be given."""
        known = self._stale.pop(key, None)
        if known is None:
            return request, None
        _, choice = known
        request = request.replace()
        for name, value in choice.conditions or ():
            request.headers[name] = value
        return request, choice.stored

    async def _heard(
        self, key: bytes, stale: CacheEntry | None, outcome: Outcome, response: Response, asked_at: float
    ) -> None:
        """Take a response from the wire in."""
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
        elif self._is_passed_by(outcome, response) or not policy.may_store(sent, response):
            self._stats.inc("httpcache/uncacheable")
        else:
            stored = make_entry(sent, response, asked_at=asked_at, came_at=now)
            await self._blocking.run(self._put, key, stored, response.body, sent)
            self._stats.inc("httpcache/store")

    def _is_passed_by(self, outcome: Outcome, response: Response) -> bool:
        """Whether a response is not kept, whatever the policy: it is sent again, or it went to a file of its own."""
        return outcome.is_trigger or response.status in self._ignored_statuses or isinstance(response, FileResponse)

    def _put(self, key: bytes, stored: CacheEntry, body: bytes, sent: Request) -> None:
        older = self._store.find([key])[0]
        replaced = [each.id for each in older if self._policy.takes_place_of(sent, each)]
        self._store.put(key, stored, body, replaced)

    def _is_kept(self, request: Request) -> bool:
        """Whether the cache has anything to do with a request."""
        return not request.meta_get("dont_cache") and scheme_of(request.url) not in (
            self._settings.httpcache_ignore_schemes
        )

    def _is_ours(self, request: Request) -> bool:
        return self._is_kept(request) and self._policy.may_answer(request)

    def _now(self) -> float:
        return self._now_utc().timestamp()

    def _broken(self, what: str, error: Exception) -> None:
        """Count a failure of the disk, and tell the first of its kind: on a full disk each page would have one."""
        self._stats.inc("httpcache/error")
        if what not in self._told:
            self._told.add(what)
            logger.error("%s in the cache failed: %s (more of this is only counted, as httpcache/error)", what, error)
