"""The cache of a browser (RFC 9111), as hishel knows its rules.

hishel's states decide what may be stored, and what a 304 changes. The rest of it is not used: its transports and stores
run on AnyIO's threads, past the one seam for blocking work, and sit behind the throttle, where a hit has waited for a
place already; and it reads the machine's clock to count ages, which are counted in :mod:`trawl.cache.freshness` here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import attrs
import hishel

from trawl.cache.freshness import directives_of, is_fresh
from trawl.cache.policy import Choice
from trawl.cache.stored import Fields, Stored
from trawl.http import SAFE_METHODS, Headers, Request, Response

__all__ = ["Rfc9111", "is_variant"]

_OPTIONS: hishel.CacheOptions = {"shared": False, "supported_methods": ["GET", "HEAD"], "allow_stale": False}


class Rfc9111:
    """A private cache: one crawl is one user.

    Args:
        always_store: Keep also what says nothing of its age.
        ignored: Directives of ``Cache-Control`` in responses that are not obeyed.
    """

    def __init__(self, *, always_store: bool = False, ignored: Iterable[str] = ()) -> None:
        self._always_store = always_store
        self._ignored = tuple(ignored)

    def may_answer(self, request: Request) -> bool:
        """GET and HEAD without a range, and without conditions of the user's own."""
        if request.method not in {"GET", "HEAD"}:
            return False
        headers = request.headers
        if any(name in headers for name in ("Range", "If-None-Match", "If-Modified-Since")):
            return False
        return "no-store" not in directives_of(headers.getlist("Cache-Control"))

    def choose(self, request: Request, stored: Sequence[Stored], now: float) -> Choice:
        """The latest that fits the request's fields: at once while it is fresh, else with conditions."""
        fitting = [each for each in stored if is_variant(request, each)]
        if not fitting:
            return Choice()
        latest = max(fitting, key=lambda each: each.came_at)
        wishes = directives_of(request.headers.getlist("Cache-Control"))
        directives = directives_of(latest.headers.getlist("Cache-Control"), self._ignored)
        if is_fresh(latest, directives, wishes, now):
            return Choice(latest)
        headers = latest.headers
        asked = (("If-None-Match", headers.get("ETag")), ("If-Modified-Since", headers.get("Last-Modified")))
        conditions = tuple((name, value) for name, value in asked if value)  # RFC 9111, 4.3.1
        return Choice(latest, conditions) if conditions else Choice()

    def may_store(self, request: Request, response: Response) -> bool:
        """As RFC 9111, 3 says; a response that could only be given after its server was asked is worth it too."""
        if "no-store" in directives_of(request.headers.getlist("Cache-Control")):
            return False
        told = self._shown(response.headers)
        if self._always_store:
            return response.status not in {206, 304} and "no-store" not in directives_of(told.getlist("Cache-Control"))
        asked = hishel.Request(request.method, request.url, _headers(request.headers.items_list()))
        came = hishel.Response(response.status, _headers(told.items_list()))
        next_state = hishel.CacheMiss(request=asked, options=_OPTIONS).next(came)
        return isinstance(next_state, hishel.StoreAndUse)

    def takes_place_of(self, request: Request, stored: Stored) -> bool:
        """Whether both are the same variant."""
        return is_variant(request, stored)

    def refreshed(self, stored: Stored, response: Response, *, asked_at: float, came_at: float) -> Stored | None:
        """The stored response with the fields of the 304 (RFC 9111, 3.2 and 4.3.4)."""
        entry = hishel.Entry(
            id=uuid.UUID(int=stored.id),
            request=hishel.Request(stored.method, stored.url, _headers(stored.sent)),
            response=hishel.Response(stored.status, _headers(stored.fields)),
        )
        state = hishel.NeedRevalidation(
            request=entry.request, original_request=entry.request, revalidating_entries=[entry], options=_OPTIONS
        )
        told = hishel.Response(304, _headers(response.headers.items_list()))
        next_state = state.next(told)
        if not isinstance(next_state, hishel.NeedToBeUpdated):
            return None
        fields = _fields(next_state.updating_entries[0].response.headers)
        return attrs.evolve(stored, fields=fields, asked_at=asked_at, came_at=came_at)

    def invalidates(self, request: Request, response: Response) -> bool:
        """A method that changes things, and succeeded (RFC 9111, 4.4)."""
        return request.method not in SAFE_METHODS and 200 <= response.status < 400

    def _shown(self, headers: Headers) -> Headers:
        """Fields without the directives that are not obeyed."""
        if not self._ignored or "cache-control" not in headers:
            return headers
        shown = headers.copy()
        directives = directives_of(headers.getlist("Cache-Control"), self._ignored)
        shown["Cache-Control"] = ", ".join(f"{name}={value}" if value else name for name, value in directives.items())
        return shown


def is_variant(request: Request, stored: Stored) -> bool:
    """Whether a request has the same fields as the one that was answered, of those that ``Vary`` names (4.1)."""
    names = [name.strip() for value in stored.headers.getlist("Vary") for name in value.split(",") if name.strip()]
    if not names:
        return True
    sent = Headers(stored.sent)
    return "*" not in names and all(request.headers.get(name) == sent.get(name) for name in names)


def _headers(fields: Iterable[tuple[str, str]]) -> hishel.Headers:
    by_name: dict[str, list[str]] = {}
    for name, value in fields:
        by_name.setdefault(name.lower(), []).append(value)
    return hishel.Headers(dict(by_name))


def _fields(headers: hishel.Headers) -> Fields:
    return tuple((name, value) for name in headers for value in headers.get_list(name) or ())
