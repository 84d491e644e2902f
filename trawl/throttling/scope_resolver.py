"""The scopes that a request counts in, and its amount in each scope.

The first source that names any scope applies: meta ``throttling_scopes``, meta ``download_slot``, the manager's
``get_scopes()``, and the request's host, or its address with ``CONCURRENT_REQUESTS_PER_IP``. A download slot is
Scrapy's: it names one scope, which has a host's delay and places.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from trawl.http import host_scope
from trawl.http.notes import notes_of
from trawl.throttling.managers import awaited, is_overridden, parsed
from trawl.throttling.scopes import BROWSER, ScopeAmounts, normal_id, scope_amounts_of
from trawl.tracebacks import contained

if TYPE_CHECKING:
    from trawl.http import Request
    from trawl.throttling.scope_table import ScopePolicies

__all__ = ["SESSION", "AddressOf", "ScopeResolver"]

SESSION = "session:"  # the prefix of the id of a session's scope; the session's name follows

AddressOf = Callable[[str], Awaitable[str | None]]
"""Function that returns the address of a host (as ``host`` or ``host:port``), or None if it has none."""

_ADDRESSES = 100_000  # maximum number of hosts with a remembered address


class ScopeResolver:
    """Finds the scopes of requests. ``policies`` receives the ids that are requests' own hosts."""

    def __init__(self, manager: Any, policies: ScopePolicies, address_of: AddressOf | None) -> None:
        self._manager = manager
        self._policies = policies
        self._address_of = address_of
        # True if the manager names scopes itself, so that it must be called.
        self.asks_manager: bool = is_overridden(manager, "get_scopes") and hasattr(manager, "get_scopes")
        # True if the scopes are always known at once.
        self.never_waits: bool = not self.asks_manager and address_of is None
        self._addresses: dict[str, str] = {}

    def of_nowait(self, request: Request) -> ScopeAmounts | None:
        """Return the scopes of a request; None if :meth:`of` must call a user's manager. Raises as :meth:`of` does."""
        if not request.has_meta:
            return self._by_host(request)
        amounts = self._by_meta(request)
        return None if amounts is None else _with_session_and_browser(amounts, request)

    def _by_meta(self, request: Request) -> ScopeAmounts | None:
        named = request.meta_get("throttling_scopes")
        if named is not None:
            if isinstance(named, Iterator):  # an iterator can be read only once, but a redirect reads it again
                request.meta["throttling_scopes"] = named = tuple(named)
            return self._noted(scope_amounts_of(named), request)
        slot = request.meta_get("download_slot")
        is_told = slot is None or slot in (host_scope(request.url), notes_of(request).told_slot)
        if not is_told and (id := normal_id(str(slot))):
            self._policies.own_host(id, is_slot=True)
            return ((id, None),)
        return self._by_host(request)

    def _by_host(self, request: Request) -> ScopeAmounts | None:
        if self.asks_manager:
            return None
        host = host_scope(request.url)
        if not host:
            return ()
        if self._address_of is not None:
            address = self._addresses.get(host)
            return None if address is None else ((address, None),)
        if "." not in host:
            self._policies.own_host(host)
        return ((host, None),)

    async def of(self, request: Request) -> ScopeAmounts:
        """Return the scopes of a request, calling the manager. A checkpoint only if the manager's method is one.

        Raises:
            TypeError: If the manager's value is not a set of scopes.
            ValueError: If an id is empty, or an amount is negative.
            Exception: All exceptions of the manager.
        """
        amounts = self.of_nowait(request)
        if amounts is not None:
            return amounts
        if self.asks_manager:
            with contained:
                named = await awaited(self._manager.get_scopes(request))
            amounts = self._noted(parsed(self._manager, "get_scopes", named, scope_amounts_of), request)
        else:
            amounts = self._noted(((await self.own_scope(request), None),), request)
        return _with_session_and_browser(amounts, request)

    async def own_scope(self, request: Request) -> str:
        """Return the default scope of a request: its host, or the host's address. "" for a URL without a host.

        A checkpoint if an address must be looked up. A host without an address keeps its name.
        """
        host = host_scope(request.url)
        if self._address_of is None or not host:
            return host
        known = self._addresses.get(host)
        if known is not None:
            return known
        address = await self._address_of(host)
        if address is None:
            return host
        self._addresses[host] = normal_id(address)
        if len(self._addresses) > _ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        return self._addresses[host]

    def _noted(self, amounts: ScopeAmounts, request: Request) -> ScopeAmounts:
        """Record the ids that are their request's own host, which is known only here."""
        for id, _ in amounts:
            if "." not in id and id == host_scope(request.url):
                self._policies.own_host(id)
        return amounts

    def scope_of_host(self, host: str) -> str:
        """Return the scope of requests to a host: the host, or its address if hosts are throttled by address."""
        return self._addresses.get(host, host)


def _with_session_and_browser(amounts: ScopeAmounts, request: Request) -> ScopeAmounts:
    """Add the scope of the request's session, unless meta names the scopes, and the scope of rendered pages."""
    added: dict[str, float | None] = {}
    session = request.meta_get("session")
    if session is not None and request.meta_get("throttling_scopes") is None:
        added[f"{SESSION}{session}"] = None
    if request.meta_get("browser") and not notes_of(request).has_tab:
        added[BROWSER] = None
    return tuple(sorted({**dict(amounts), **added}.items())) if added else amounts
