"""What may be kept, what may be given, and what has to be asked for again: two policies, one interface. Pure.

How old a stored response is, and how old it may get (RFC 9111, 4.2). Pure: the time is handed in.

hishel, whose rules the rest of the policy is, reads the machine's clock where it counts ages; a simulated crawl has
another one. So this part is here.

The cache of a browser (RFC 9111), as hishel knows its rules.

hishel's states decide what may be stored, and what a 304 changes. The rest of it is not used: its transports and stores
run on AnyIO's threads, past the one seam for blocking work, and sit behind the throttle, where a hit has waited for a
place already; and it reads the machine's clock to count ages, which are counted in :mod:`trawl.cache.policy` here.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs
import hishel

from trawl.cache.settings import CacheSettings
from trawl.cache.store import CacheEntry, Fields
from trawl.errors import SettingsError
from trawl.http import SAFE_METHODS, Headers, Request, Response, parse_date

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
]

HEURISTIC_SHARE = 0.1
"""A response that says nothing of its age is fresh for this part of the time since it was changed (RFC 9111, 4.2.2)."""

MAX_HEURISTIC = 7 * 86_400.0
"""Seconds. No guess goes further than a week."""

_HEURISTIC_STATUSES = frozenset({200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501})  # RFC 9110, 15.1


def directives_of(values: Iterable[str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """The directives of ``Cache-Control`` by name in lower case; the value of one that has none is "" (RFC 9111, 5.2).

    Args:
        values: The field's values.
        ignored: Names that are left out.
    """
    found: dict[str, str] = {}
    for part in ",".join(values).split(","):  # a comma inside quotes cuts a list of field names, of which only the
        name, _, value = part.partition("=")  # first then counts as the directive's: it is the directive that matters
        if name.strip():
            found.setdefault(name.strip().lower(), value.strip().strip('"'))
    for name in ignored:
        found.pop(name.lower(), None)
    return found


def lifetime_of(stored: CacheEntry, directives: Mapping[str, str]) -> float:
    """For how many seconds a response is fresh, from when it was made; a private cache obeys no ``s-maxage``."""
    headers = stored.headers
    if (seconds := _seconds(directives.get("max-age"))) is not None:
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
    """How many seconds old a response is at ``now`` (epoch seconds), its way through other caches included (4.2.3)."""
    headers = stored.headers
    made = _moment(headers.get("Date"))
    apparent = 0.0 if made is None else max(0.0, stored.came_at - made)
    told = (_seconds(headers.get("Age")) or 0.0) + (stored.came_at - stored.asked_at)
    return max(apparent, told) + max(0.0, now - stored.came_at)


def is_fresh(stored: CacheEntry, directives: Mapping[str, str], wishes: Mapping[str, str], now: float) -> bool:
    """Whether a response may be given without asking its server (RFC 9111, 4.2 and 5.2).

    Args:
        stored: The response.
        directives: What it says in ``Cache-Control``.
        wishes: What the request says there.
        now: Epoch seconds.
    """
    if "no-cache" in directives or "no-cache" in wishes:
        return False
    age, lifetime = age_of(stored, now), lifetime_of(stored, directives)
    oldest = _seconds(wishes.get("max-age"))
    if oldest is not None and age > oldest:
        return False
    if age + (_seconds(wishes.get("min-fresh")) or 0.0) < lifetime:
        return True
    if "max-stale" not in wishes or "must-revalidate" in directives:
        return False
    most = _seconds(wishes["max-stale"])
    return age - lifetime <= (math.inf if most is None else most)


def _seconds(text: str | None) -> float | None:
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return float(text[:12])


def _moment(text: str | None) -> float | None:
    moment = None if text is None else parse_date(text)
    return None if moment is None else moment.timestamp()


@attrs.frozen
class CacheResult:
    """Which of the stored responses a request gets.

    Attributes:
        stored: The response; None: there is none.
        conditions: None: it may be given at once. Else the fields with which its server is asked whether it still may.
    """

    stored: CacheEntry | None = None
    conditions: Fields | None = None


class Policy(Protocol):
    """What a cache goes by."""

    def may_answer(self, request: Request) -> bool:
        """Whether a request may be answered from the cache at all."""
        ...

    def choose(self, request: Request, stored: Sequence[CacheEntry], now: float) -> CacheResult:
        """Which of the responses to the same method, URL and body a request gets, at ``now`` (epoch seconds)."""
        ...

    def may_store(self, request: Request, response: Response) -> bool:
        """Whether a response is kept; ``request`` is as it was sent."""
        ...

    def takes_place_of(self, request: Request, stored: CacheEntry) -> bool:
        """Whether the response to ``request`` replaces an older one."""
        ...

    def refreshed(
        self, stored: CacheEntry, response: Response, *, asked_at: float, came_at: float
    ) -> CacheEntry | None:
        """A stored response after its server said that it still holds (304); None: it spoke of another."""
        ...

    def invalidates(self, request: Request, response: Response) -> bool:
        """Whether a response means that what is kept of its URL does not hold any more."""
        ...


class DummyPolicy:
    """Whatever was answered once is answered so again: for the time in which a spider is written."""

    def may_answer(self, request: Request) -> bool:
        """Every request may."""
        return True

    def choose(self, request: Request, stored: Sequence[CacheEntry], now: float) -> CacheResult:
        """The latest, at once."""
        return CacheResult(max(stored, key=_came_at)) if stored else CacheResult()

    def may_store(self, request: Request, response: Response) -> bool:
        """Everything but a 304, which is no answer by itself."""
        return response.status != 304

    def takes_place_of(self, request: Request, stored: CacheEntry) -> bool:
        """There is one response for a method, URL and body."""
        return True

    def refreshed(
        self, stored: CacheEntry, response: Response, *, asked_at: float, came_at: float
    ) -> CacheEntry | None:
        """Nothing is ever asked for again."""
        return None

    def invalidates(self, request: Request, response: Response) -> bool:
        """Nothing does."""
        return False


def _came_at(stored: CacheEntry) -> float:
    return stored.came_at


_ALWAYS = frozenset({"always", "dummy", "dummypolicy"})

_RFC = frozenset({"rfc9111", "rfc7234", "rfc2616", "rfc2616policy"})


def make_policy(settings: CacheSettings) -> Policy:
    """The policy that ``HTTPCACHE_POLICY`` names.

    Raises:
        SettingsError: There is none of that name, or hishel is not installed.
    """
    name = settings.httpcache_policy
    plain = name.rpartition(".")[2].lower()
    if plain in _ALWAYS:
        return DummyPolicy()
    if plain not in _RFC:
        raise SettingsError(f"HTTPCACHE_POLICY must be 'always' or 'rfc9111', not {name!r}", "HTTPCACHE_POLICY")
    try:
        from trawl.cache.policy import Rfc9111Policy  # noqa: PLC0415 - hishel is an extra, and not every crawl has a cache
    except ImportError as error:
        raise SettingsError(
            f"HTTPCACHE_POLICY = {name!r} needs hishel: pip install 'trawl-crawler[cache]'", "HTTPCACHE_POLICY"
        ) from error
    return Rfc9111Policy(
        always_store=settings.httpcache_always_store, ignored=settings.httpcache_ignore_response_cache_controls
    )


_OPTIONS: hishel.CacheOptions = {"shared": False, "supported_methods": ["GET", "HEAD"], "allow_stale": False}


class Rfc9111Policy:
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

    def choose(self, request: Request, stored: Sequence[CacheEntry], now: float) -> CacheResult:
        """The latest that fits the request's fields: at once while it is fresh, else with conditions."""
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

    def takes_place_of(self, request: Request, stored: CacheEntry) -> bool:
        """Whether both are the same variant."""
        return is_variant(request, stored)

    def refreshed(
        self, stored: CacheEntry, response: Response, *, asked_at: float, came_at: float
    ) -> CacheEntry | None:
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


def is_variant(request: Request, stored: CacheEntry) -> bool:
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
