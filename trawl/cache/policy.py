"""What may be kept, what may be given, and what has to be asked for again: two policies, one interface. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from trawl.cache.settings import CacheSettings
from trawl.cache.stored import Fields, Stored
from trawl.errors import SettingsError
from trawl.http import Request, Response

__all__ = ["Always", "Choice", "Policy", "policy_named"]


@attrs.frozen
class Choice:
    """Which of the stored responses a request gets.

    Attributes:
        stored: The response; None: there is none.
        conditions: None: it may be given at once. Else the fields with which its server is asked whether it still may.
    """

    stored: Stored | None = None
    conditions: Fields | None = None


class Policy(Protocol):
    """What a cache goes by."""

    def may_answer(self, request: Request) -> bool:
        """Whether a request may be answered from the cache at all."""
        ...

    def choose(self, request: Request, stored: Sequence[Stored], now: float) -> Choice:
        """Which of the responses to the same method, URL and body a request gets, at ``now`` (epoch seconds)."""
        ...

    def may_store(self, request: Request, response: Response) -> bool:
        """Whether a response is kept; ``request`` is as it was sent."""
        ...

    def takes_place_of(self, request: Request, stored: Stored) -> bool:
        """Whether the response to ``request`` replaces an older one."""
        ...

    def refreshed(self, stored: Stored, response: Response, *, asked_at: float, came_at: float) -> Stored | None:
        """A stored response after its server said that it still holds (304); None: it spoke of another."""
        ...

    def invalidates(self, request: Request, response: Response) -> bool:
        """Whether a response means that what is kept of its URL does not hold any more."""
        ...


class Always:
    """Whatever was answered once is answered so again: for the time in which a spider is written."""

    def may_answer(self, request: Request) -> bool:
        """Every request may."""
        return True

    def choose(self, request: Request, stored: Sequence[Stored], now: float) -> Choice:
        """The latest, at once."""
        return Choice(max(stored, key=_came_at)) if stored else Choice()

    def may_store(self, request: Request, response: Response) -> bool:
        """Everything but a 304, which is no answer by itself."""
        return response.status != 304

    def takes_place_of(self, request: Request, stored: Stored) -> bool:
        """There is one response for a method, URL and body."""
        return True

    def refreshed(self, stored: Stored, response: Response, *, asked_at: float, came_at: float) -> Stored | None:
        """Nothing is ever asked for again."""
        return None

    def invalidates(self, request: Request, response: Response) -> bool:
        """Nothing does."""
        return False


def _came_at(stored: Stored) -> float:
    return stored.came_at


_ALWAYS = frozenset({"always", "dummy", "dummypolicy"})
_RFC = frozenset({"rfc9111", "rfc7234", "rfc2616", "rfc2616policy"})


def policy_named(settings: CacheSettings) -> Policy:
    """The policy that ``HTTPCACHE_POLICY`` names.

    Raises:
        SettingsError: There is none of that name, or hishel is not installed.
    """
    name = settings.httpcache_policy
    plain = name.rpartition(".")[2].lower()
    if plain in _ALWAYS:
        return Always()
    if plain not in _RFC:
        raise SettingsError(f"HTTPCACHE_POLICY must be 'always' or 'rfc9111', not {name!r}", "HTTPCACHE_POLICY")
    try:
        from trawl.cache.rfc9111 import Rfc9111  # noqa: PLC0415 - hishel is an extra, and not every crawl has a cache
    except ImportError as error:
        raise SettingsError(
            f"HTTPCACHE_POLICY = {name!r} needs hishel: pip install 'trawl-crawler[cache]'", "HTTPCACHE_POLICY"
        ) from error
    return Rfc9111(
        always_store=settings.httpcache_always_store, ignored=settings.httpcache_ignore_response_cache_controls
    )
