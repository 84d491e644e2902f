"""Names looked up by asking name servers ourselves, on Trio: no threads, and what servers say lasts as they say.

Addresses of names, remembered for a while, each name being looked up by one task at a time.

Where hosts are: one answer for each, shared by what throttles by address and what connects.

A name server may give its addresses in another order each time. Limits by address hold only if a request goes where it
was charged, so the look-up is made once for each host, whatever the port, and both sides go by its answer.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio

from trawl.errors import SettingsError
from trawl.transport.connect import Address, AddressList, Resolve, ThreadResolver, literal_address

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.exception
    import dns.resolver

__all__ = ["LOOKUP_TIMEOUT", "CrawlResolver", "DnsResolver", "ResolverCache"]

LIFETIME = 60.0
"""Seconds that an address is believed; ``getaddrinfo`` does not tell what the name server allows. As browsers do."""

MAX_NAMES = 10_000
"""Names remembered; the one looked up first goes first."""


@attrs.define
class _Lookup:
    done: trio.Event = attrs.Factory(trio.Event)
    error: OSError | None = None


class ResolverCache:
    """Asks ``resolve`` once for each name and lifetime, however many wait for it.

    A failure is told to all who waited for it, and not remembered. When the task that asks is cancelled, one of those
    who wait asks again.

    Args:
        resolve: Looks names up.
        lifetime: Seconds that an answer is believed; None: as long as it says itself, or ``LIFETIME``.
        max_names: Names remembered.
    """

    def __init__(self, resolve: Resolve, *, lifetime: float | None = None, max_names: int = MAX_NAMES) -> None:
        self._resolve = resolve
        self._lifetime = lifetime
        self._max_names = max_names
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
        if len(self._known) >= self._max_names:
            del self._known[next(iter(self._known))]
        lifetime = self._lifetime
        if lifetime is None:
            lifetime = addresses.lifetime if isinstance(addresses, AddressList) else LIFETIME
        self._known[key] = trio.current_time() + lifetime, addresses
        return addresses


LOOKUP_TIMEOUT = 10.0
"""Seconds that a look-up may take before its host counts as one without an address: a callback waits for it."""

MAX_HOSTS = 100_000
"""Hosts whose addresses are remembered."""


class CrawlResolver:
    """The addresses of hosts, looked up once each and kept: a host does not move while a crawl runs.

    Itself a resolver, to be given to a transport. A failure is not remembered.

    Args:
        resolve: Looks names up.
    """

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = ResolverCache(resolve, lifetime=inf, max_names=MAX_HOSTS)

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
        with trio.move_on_after(LOOKUP_TIMEOUT):
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


LEAST_LIFETIME = 1.0
"""Seconds that an answer lasts at least: some servers say 0."""

_FAMILIES = {"AAAA": socket.AF_INET6, "A": socket.AF_INET}  # IPv6 goes first (RFC 8305, 4)


class DnsResolver:
    """Asks the name servers that the system is set up with, by dnspython.

    A look-up that is cancelled is over: none is left to a thread. Names without a dot (``localhost``, those of the own
    network) are looked up as the system does; the system's file of hosts is not read for others.

    Args:
        system: Looks up names without a dot; None: in threads.
        resolver: dnspython's; None: one for the system's name servers.

    Raises:
        SettingsError: dnspython is not installed, or the system names no name server.
    """

    def __init__(self, system: Resolve | None = None, resolver: dns.asyncresolver.Resolver | None = None) -> None:
        try:
            import dns.asyncresolver  # noqa: PLC0415 - of the dns extra
            import dns.resolver  # noqa: PLC0415
        except ImportError as error:
            words = "DNS_RESOLVER = 'dnspython' needs the dns extra: pip install 'trawl-crawler[dns]'"
            raise SettingsError(words, "DNS_RESOLVER") from error
        try:
            self._resolver: dns.asyncresolver.Resolver = resolver or dns.asyncresolver.Resolver()
        except dns.resolver.NoResolverConfiguration as error:
            raise SettingsError(f"DNS_RESOLVER = 'dnspython': {error}", "DNS_RESOLVER") from error
        self._system: Resolve = system or ThreadResolver()

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of ``host``, and how long they last. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address, or no name server has told.
        """
        literal = literal_address(host, port)
        if literal is not None:
            await trio.lowlevel.checkpoint()
            return [literal]
        if "." not in host.rstrip("."):
            return await self._system(host, port)
        answers: dict[str, dns.resolver.Answer | dns.exception.DNSException] = {}

        async def ask(kind: str) -> None:
            answers[kind] = await self._asked(host, kind)

        async with trio.open_nursery() as nursery:
            for kind in _FAMILIES:
                nursery.start_soon(ask, kind)
        return _addresses(host, port, answers)

    async def _asked(self, host: str, kind: str) -> dns.resolver.Answer | dns.exception.DNSException:
        import dns.exception  # noqa: PLC0415
        import dns.name  # noqa: PLC0415

        try:
            name = dns.name.from_text(host)  # a name with its root: no search in the own domain
            return await self._resolver.resolve(name, kind, raise_on_no_answer=False)
        except dns.exception.DNSException as error:
            return error


def _addresses(
    host: str, port: int, answers: dict[str, dns.resolver.Answer | dns.exception.DNSException]
) -> AddressList:
    """What the two answers come to."""
    found: list[Address] = []
    lifetimes: list[float] = []
    errors: list[Exception] = []
    for kind, family in _FAMILIES.items():
        answer = answers[kind]
        if isinstance(answer, Exception):
            errors.append(answer)
        elif answer.rrset is not None:
            lifetimes.append(max(float(answer.rrset.ttl), LEAST_LIFETIME))
            rest = (0, 0) if family == socket.AF_INET6 else ()
            found += [Address(family, (record.address, port, *rest)) for record in answer.rrset]
    if found:
        return AddressList(found, lifetime=min(lifetimes))
    if errors and not _is_final(errors[0]):
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server told: {str(errors[0])[:200]}") from errors[0]
    raise socket.gaierror(socket.EAI_NONAME, f"there is no address of {host!r}")


def _is_final(error: Exception) -> bool:
    """Whether a server has said that there is no such name, or there can't be."""
    import dns.exception  # noqa: PLC0415
    import dns.resolver  # noqa: PLC0415

    return not isinstance(error, dns.exception.Timeout | dns.resolver.NoNameservers)
