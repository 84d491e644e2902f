"""Cache policies: which responses may be stored, and which may be used without a request. Pure, without I/O.

hishel decides which responses RFC 9111 allows a cache to store, and how a 304 updates a response. Ages are computed
here, because hishel reads the machine's clock. hishel's transports are not used, because they are called after the
throttle, so a request would wait for a slot even if its response is stored. Its stores need AnyIO's threads.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from trawl.cache import CacheSettings
from trawl.cache.store import CacheEntry, Fields
from trawl.errors import SettingsError
from trawl.http import SAFE_METHODS, Headers, Request, Response, parse_date

if TYPE_CHECKING:
    import hishel

__all__ = [
    "HEURISTIC_SHARE",
    "CacheResult",
    "DummyPolicy",
    "Policy",
    "Rfc9111Policy",
    "age_of",
    "directives_of",
    "is_fresh",
    "is_variant",
    "lifetime_of",
    "make_policy",
    "seconds_of",
]

HEURISTIC_SHARE = 0.1
"""Lifetime of a response without an explicit one, as a share of the time since its last change (RFC 9111, 4.2.2)."""

MAX_HEURISTIC = 7 * 86_400.0
"""Maximum lifetime, in seconds, of a response without an explicit lifetime."""

_HEURISTIC_STATUSES = frozenset({200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501})  # RFC 9110, 15.1


def directives_of(values: Iterable[str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """Return the directives of ``Cache-Control`` by lower-case name; "" if there is no value (RFC 9111, 5.2)."""
    found: dict[str, str] = {}
    # If a directive has a quoted list of header names, the split at commas keeps only the first name in its value. This
    # is harmless, because only the directive's own name is used.
    for part in ",".join(values).split(","):
        name, _, value = part.partition("=")
        if name.strip():
            found.setdefault(name.strip().lower(), value.strip().strip('"'))
    for name in ignored:
        found.pop(name.lower(), None)
    return found


def lifetime_of(stored: CacheEntry, directives: Mapping[str, str]) -> float:
    """Return the seconds for which a response is fresh after its ``Date``. A private cache ignores ``s-maxage``."""
    headers = stored.headers
    if (seconds := seconds_of(directives.get("max-age"))) is not None:
        return seconds
    made = _moment(headers.get("Date"))
    made = stored.came_at if made is None else made
    expires = headers.getlist("Expires")
    if expires:
        until = _moment(expires[0])
        return 0.0 if until is None else until - made
    changed = _moment(headers.get("Last-Modified"))
    if changed is None or (stored.status not in _HEURISTIC_STATUSES and "public" not in directives):
        return 0.0
    return min(MAX_HEURISTIC, max(0.0, made - changed) * HEURISTIC_SHARE)


def age_of(stored: CacheEntry, now: float) -> float:
    """Return the seconds of a response's age at ``now`` (epoch), with time in other caches (RFC 9111, 4.2.3)."""
    headers = stored.headers
    made = _moment(headers.get("Date"))
    apparent = 0.0 if made is None else max(0.0, stored.came_at - made)
    told = (seconds_of(headers.get("Age")) or 0.0) + (stored.came_at - stored.asked_at)
    return max(apparent, told) + max(0.0, now - stored.came_at)


def is_fresh(stored: CacheEntry, directives: Mapping[str, str], wishes: Mapping[str, str], now: float) -> bool:
    """Return whether a response may be used without a request to its server (RFC 9111, 4.2 and 5.2).

    ``directives`` and ``wishes`` are in ``Cache-Control`` of the response and of the request. ``now`` is epoch seconds.
    """
    if "no-cache" in directives or "no-cache" in wishes:
        return False
    age, lifetime = age_of(stored, now), lifetime_of(stored, directives)
    max_age = seconds_of(wishes.get("max-age"))
    if max_age is not None and age > max_age:
        return False
    if age + (seconds_of(wishes.get("min-fresh")) or 0.0) < lifetime:
        return True
    if "max-stale" not in wishes or "must-revalidate" in directives:
        return False
    max_stale = seconds_of(wishes["max-stale"])
    return age - lifetime <= (math.inf if max_stale is None else max_stale)


def is_variant(request: Request, stored: CacheEntry) -> bool:
    """Return whether a request and the stored request have the same values in the headers that ``Vary`` names (4.1)."""
    names = [name.strip() for value in stored.headers.getlist("Vary") for name in value.split(",") if name.strip()]
    if not names:
        return True
    sent = Headers(stored.sent)
    return "*" not in names and all(request.headers.get(name) == sent.get(name) for name in names)


def seconds_of(text: str | None) -> float | None:
    """Return a number of seconds in a header (RFC 9111, 1.2.2); None if there is none."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return float(text[:12])


def _moment(text: str | None) -> float | None:
    moment = None if text is None else parse_date(text)
    return None if moment is None else moment.timestamp()


@attrs.frozen
class CacheResult:
    """The stored response to use, and headers for a conditional request if it must be validated first."""

    stored: CacheEntry | None = None
    conditions: Fields | None = None


class DummyPolicy:
    """Stores every response and uses it forever. Useful while you write a spider."""

    def may_answer(self, request: Request) -> bool:
        """Return True."""
        return True

    def choose(self, request: Request, stored: Sequence[CacheEntry], now: float) -> CacheResult:
        """Return the latest response to the same method, URL and body, without conditions."""
        return CacheResult(max(stored, key=lambda each: each.came_at)) if stored else CacheResult()

    def may_store(self, request: Request, response: Response) -> bool:
        """Return True unless the response is a 304, which has no body."""
        return response.status != 304

    def takes_place_of(self, request: Request, stored: CacheEntry) -> bool:
        """Return True, because one response is kept for each method, URL and body."""
        return True

    def refreshed(
        self, stored: CacheEntry, response: Response, *, asked_at: float, came_at: float
    ) -> CacheEntry | None:
        """Return None, because responses are never revalidated."""
        return None

    def invalidates(self, request: Request, response: Response) -> bool:
        """Return False."""
        return False


class Rfc9111Policy:
    """A private cache as in a browser. A crawl counts as one user.

    With ``always_store``, responses without a lifetime are stored too. The directives in ``ignored`` have no effect in
    the ``Cache-Control`` of responses.
    """

    def __init__(self, *, always_store: bool = False, ignored: Iterable[str] = ()) -> None:
        try:
            import hishel  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise SettingsError(
                "HTTPCACHE_POLICY = 'rfc9111' needs hishel: pip install 'trawl-crawler[cache]'", "HTTPCACHE_POLICY"
            ) from error
        self._hishel = hishel
        methods = ["GET", "HEAD"]
        self._options: hishel.CacheOptions = {"shared": False, "supported_methods": methods, "allow_stale": False}
        self._always_store = always_store
        self._ignored = tuple(ignored)

    def may_answer(self, request: Request) -> bool:
        """Return whether the method is GET or HEAD, and the request has neither a range nor its own conditions."""
        if request.method not in {"GET", "HEAD"}:
            return False
        headers = request.headers
        if any(name in headers for name in ("Range", "If-None-Match", "If-Modified-Since")):
            return False
        return "no-store" not in directives_of(headers.getlist("Cache-Control"))

    def choose(self, request: Request, stored: Sequence[CacheEntry], now: float) -> CacheResult:
        """Return the latest response that matches the request's headers. If it is stale at ``now``, add conditions."""
        fitting = [each for each in stored if is_variant(request, each)]
        if not fitting:
            return CacheResult()
        latest = max(fitting, key=lambda each: each.came_at)
        wishes = directives_of(request.headers.getlist("Cache-Control"))
        directives = directives_of(latest.headers.getlist("Cache-Control"), self._ignored)
        if is_fresh(latest, directives, wishes, now):
            return CacheResult(latest)
        headers = latest.headers
        asked = (("If-None-Match", headers.get("ETag")), ("If-Modified-Since", headers.get("Last-Modified")))
        conditions = tuple((name, value) for name, value in asked if value)  # RFC 9111, 4.3.1
        return CacheResult(latest, conditions) if conditions else CacheResult()

    def may_store(self, request: Request, response: Response) -> bool:
        """Return whether RFC 9111, 3 allows storing the response, even if each use requires a revalidation."""
        if "no-store" in directives_of(request.headers.getlist("Cache-Control")):
            return False
        fields = self._effective(response.headers)
        if self._always_store:
            directives = directives_of(fields.getlist("Cache-Control"))
            return response.status not in {206, 304} and "no-store" not in directives
        asked = self._hishel.Request(request.method, request.url, self._headers(request.headers.items_list()))
        came = self._hishel.Response(response.status, self._headers(fields.items_list()))
        next_state = self._hishel.CacheMiss(request=asked, options=self._options).next(came)
        return isinstance(next_state, self._hishel.StoreAndUse)

    def takes_place_of(self, request: Request, stored: CacheEntry) -> bool:
        """Return whether a response to the request would be the same variant as the stored response."""
        return is_variant(request, stored)

    def refreshed(
        self, stored: CacheEntry, response: Response, *, asked_at: float, came_at: float
    ) -> CacheEntry | None:
        """Return the stored response, updated by a 304 (RFC 9111, 4.3.4); None if the 304 is for another response."""
        entry = self._hishel.Entry(
            id=uuid.UUID(int=stored.id),
            request=self._hishel.Request(stored.method, stored.url, self._headers(stored.sent)),
            response=self._hishel.Response(stored.status, self._headers(stored.fields)),
        )
        state = self._hishel.NeedRevalidation(
            request=entry.request, original_request=entry.request, revalidating_entries=[entry], options=self._options
        )
        next_state = state.next(self._hishel.Response(304, self._headers(response.headers.items_list())))
        if not isinstance(next_state, self._hishel.NeedToBeUpdated):
            return None
        headers = next_state.updating_entries[0].response.headers
        fields = tuple((name, value) for name in headers for value in headers.get_list(name) or ())
        return attrs.evolve(stored, fields=fields, asked_at=asked_at, came_at=came_at)

    def invalidates(self, request: Request, response: Response) -> bool:
        """Return whether an unsafe method succeeded (RFC 9111, 4.4)."""
        return request.method not in SAFE_METHODS and 200 <= response.status < 400

    def _effective(self, headers: Headers) -> Headers:
        """Return the headers without ignored directives."""
        if not self._ignored or "cache-control" not in headers:
            return headers
        effective = headers.copy()
        directives = directives_of(headers.getlist("Cache-Control"), self._ignored).items()
        effective["Cache-Control"] = ", ".join(f"{name}={value}" if value else name for name, value in directives)
        return effective

    def _headers(self, fields: Iterable[tuple[str, str]]) -> hishel.Headers:
        by_name: dict[str, list[str]] = {}
        for name, value in fields:
            by_name.setdefault(name.lower(), []).append(value)
        return self._hishel.Headers(dict(by_name))


Policy = DummyPolicy | Rfc9111Policy
"""Decides which responses are stored and used."""


def make_policy(settings: CacheSettings) -> Policy:
    """Return the policy that ``HTTPCACHE_POLICY`` names. Raises SettingsError if there is none."""
    name = settings.httpcache_policy
    plain = name.rpartition(".")[2].lower()
    if plain in {"always", "dummy", "dummypolicy"}:
        return DummyPolicy()
    if plain not in {"rfc9111", "rfc7234", "rfc2616", "rfc2616policy"}:
        raise SettingsError(f"HTTPCACHE_POLICY must be 'always' or 'rfc9111', not {name!r}", "HTTPCACHE_POLICY")
    return Rfc9111Policy(
        always_store=settings.httpcache_always_store, ignored=settings.httpcache_ignore_response_cache_controls
    )
