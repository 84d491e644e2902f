"""Addresses of names, remembered for a while, each name being looked up by one task at a time."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from trawl.transport.dial import Address, LastingAddresses, Resolve

__all__ = ["CachedResolver"]

LIFETIME = 60.0
"""Seconds that an address is believed; ``getaddrinfo`` does not tell what the name server allows. As browsers do."""

MOST_NAMES = 10_000
"""Names remembered; the one looked up first goes first."""


@attrs.define
class _Lookup:
    done: trio.Event = attrs.Factory(trio.Event)
    error: OSError | None = None


class CachedResolver:
    """Asks ``resolve`` once for each name and lifetime, however many wait for it.

    A failure is told to all who waited for it, and not remembered. When the task that asks is cancelled, one of those
    who wait asks again.

    Args:
        resolve: Looks names up.
        lifetime: Seconds that an answer is believed; None: as long as it says itself, or ``LIFETIME``.
        most_names: Names remembered.
    """

    def __init__(self, resolve: Resolve, *, lifetime: float | None = None, most_names: int = MOST_NAMES) -> None:
        self._resolve = resolve
        self._lifetime = lifetime
        self._most_names = most_names
        self._known: dict[tuple[str, int], tuple[float, Sequence[Address]]] = {}
        self._lookups: dict[tuple[str, int], _Lookup] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of ``host``. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address.
        """
        await trio.lowlevel.checkpoint()
        key = host, port
        while True:
            until, addresses = self._known.get(key, (0.0, ()))
            if addresses and trio.current_time() < until:
                return addresses
            lookup = self._lookups.get(key)
            if lookup is None:
                return await self._ask(key)
            await lookup.done.wait()
            if lookup.error is not None:
                raise type(lookup.error)(*lookup.error.args) from lookup.error

    def forget(self, host: str, port: int) -> None:
        """Look ``host`` up anew next time: nobody answers at the addresses that are known."""
        self._known.pop((host, port), None)

    async def _ask(self, key: tuple[str, int]) -> Sequence[Address]:
        lookup = self._lookups[key] = _Lookup()
        try:
            addresses = await self._resolve(*key)
        except OSError as error:
            lookup.error = error
            raise
        finally:
            del self._lookups[key]
            lookup.done.set()
        self._known.pop(key, None)
        if len(self._known) >= self._most_names:
            del self._known[next(iter(self._known))]
        lifetime = self._lifetime
        if lifetime is None:
            lifetime = addresses.lifetime if isinstance(addresses, LastingAddresses) else LIFETIME
        self._known[key] = trio.current_time() + lifetime, addresses
        return addresses
