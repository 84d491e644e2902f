"""Where hosts are: one answer for each, shared by what throttles by address and what connects.

A name server may give its addresses in another order each time. Limits by address hold only if a request goes where it
was charged, so the look-up is made once for each host, whatever the port, and both sides go by its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import attrs
import trio

from trawl.transport.dial import Address, Resolve
from trawl.transport.http11.names import CachedResolver

__all__ = ["LOOKUP_LIMIT", "Whereabouts"]

LOOKUP_LIMIT = 10.0
"""Seconds that a look-up may take before its host counts as one without an address: a callback waits for it."""

MOST_HOSTS = 100_000
"""Hosts whose addresses are remembered."""


class Whereabouts:
    """The addresses of hosts, looked up once each and kept: a host does not move while a crawl runs.

    Itself a resolver, to be given to a transport. A failure is not remembered.

    Args:
        resolve: Looks names up.
    """

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = CachedResolver(resolve, lifetime=inf, most_names=MOST_HOSTS)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of ``host``, best first. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address.
        """
        found = await self._resolve(host, 0)
        return [attrs.evolve(each, sockaddr=(each.sockaddr[0], port, *each.sockaddr[2:])) for each in found]

    async def address_of(self, host: str) -> str | None:
        """The address that is tried first for ``host``, as text; None where it has none, or none in time.

        Args:
            host: A name or address, with or without a port, as throttling scopes are written: ``[::1]:8080``.

        Always a checkpoint.
        """
        with trio.move_on_after(LOOKUP_LIMIT):
            try:
                found = await self._resolve(_bare(host), 0)
            except OSError:
                return None
            return str(found[0].sockaddr[0]) if found else None
        return None


def _bare(scope: str) -> str:
    """A host without port and brackets."""
    if scope.startswith("["):
        return scope[1 : scope.index("]")]
    return scope.partition(":")[0] if scope.count(":") == 1 else scope
