"""Lookups of host names: by the system in threads, or by dnspython on Trio.

A lookup by the system is blocking work that can be abandoned (:mod:`trawl.blocking`), because ``getaddrinfo`` can hang
for minutes if a name server is dead, and would delay each timeout and the end of the crawl.

A name server may return addresses in another order each time. But limits by address are kept only if a request is sent
to the address whose limit has counted it. So a crawl looks up each host once, for all ports (:class:`CrawlResolver`),
for both throttling and connections.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trawl.blocking import Blocking, ThreadBlocking
from trawl.errors import SettingsError

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.exception
    import dns.resolver

__all__ = [
    "LOOKUP_TIMEOUT",
    "Address",
    "AddressList",
    "CrawlResolver",
    "DnsResolver",
    "Resolve",
    "ResolverCache",
    "ThreadResolver",
    "literal_address",
]

MAX_LEFT = 1_000
"""Number of recorded abandoned lookups above which lookups that have ended are removed."""

LIFETIME = 60.0
"""Seconds for which an address is cached, as in browsers. ``getaddrinfo`` does not return the TTL."""

MAX_NAMES = 10_000
"""Maximum number of cached names. The oldest lookup is dropped first."""

LOOKUP_TIMEOUT = 10.0
"""Maximum seconds of a lookup for a waiting callback. After this time, the host counts as having no address."""

MAX_HOSTS = 100_000
"""Maximum number of hosts whose addresses a crawl remembers."""

MIN_LIFETIME = 1.0
"""Minimum lifetime of a DNS response in seconds. It is needed because some servers send 0."""

_FAMILIES = {"AAAA": socket.AF_INET6, "A": socket.AF_INET}  # IPv6 comes first (RFC 8305, 4)


@attrs.frozen
class Address:
    """The address of a socket. ``sockaddr`` has the form of the socket module for its family."""

    family: int
    sockaddr: tuple[Any, ...] | str


class AddressList(list[Address]):
    """Addresses that are valid for ``lifetime`` seconds."""

    def __init__(self, addresses: Iterable[Address], *, lifetime: float) -> None:
        super().__init__(addresses)
        self.lifetime: float = lifetime


Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns the addresses of a host and port, best first. Raises ``socket.gaierror`` if there are none."""


def literal_address(host: str, port: int) -> Address | None:
    """Return ``host`` as an address; None if it is a name."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET6, (host, port, 0, 0)) if version == 6 else Address(socket.AF_INET, (host, port))


def _getaddrinfo(host: str, port: int) -> list[Address]:
    # Pass bytes, so that Python's own IDNA (2003) does not change a host in ASCII form.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


@attrs.define
class _ThreadLookup:
    """One call of ``getaddrinfo`` in a thread."""

    host: str
    port: int
    is_running: bool = False

    def __call__(self) -> list[Address]:
        self.is_running = True
        try:
            return _getaddrinfo(self.host, self.port)
        finally:
            self.is_running = False


class ThreadResolver:
    """Looks up names with the system, as blocking work. Addresses need no lookup.

    While an abandoned lookup of a name hangs, further lookups of the name fail without a thread, so that no name takes
    more than one thread.
    """

    def __init__(self, blocking: Blocking | None = None) -> None:
        self._blocking = blocking or ThreadBlocking()
        self._left: dict[str, _ThreadLookup] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Look up ``host``. Cancelling abandons the lookup in its thread. Always a checkpoint."""
        literal = literal_address(host, port)
        if literal is not None:
            await trio.lowlevel.checkpoint()
            return [literal]
        left = self._left.pop(host, None)
        if left is not None and left.is_running:
            self._left[host] = left
            await trio.lowlevel.checkpoint()
            raise socket.gaierror(socket.EAI_AGAIN, "an earlier lookup of it has not ended")
        lookup = _ThreadLookup(host, port)
        try:
            found = await self._blocking.run_abandonable(lookup)
        finally:
            if lookup.is_running:
                self._leave(lookup)
        return list(dict.fromkeys(found))

    def _leave(self, lookup: _ThreadLookup) -> None:
        """Record a lookup that is still running although its caller was cancelled."""
        if len(self._left) >= MAX_LEFT:
            self._left = {host: each for host, each in self._left.items() if each.is_running}
        self._left[lookup.host] = lookup


@attrs.define
class _ActiveLookup:
    done: trio.Event = attrs.Factory(trio.Event)
    error: OSError | None = None


class ResolverCache:
    """Calls ``resolve`` once for each name and lifetime, even if several tasks wait for the result.

    A failure is raised in all waiting tasks, and not cached. If the task that runs the lookup is cancelled, one of the
    waiting tasks repeats the lookup. Without ``lifetime`` (in seconds), the result's own lifetime counts, or
    ``LIFETIME``.
    """

    def __init__(self, resolve: Resolve, *, lifetime: float | None = None, max_names: int = MAX_NAMES) -> None:
        self._resolve = resolve
        self._lifetime = lifetime
        self._max_names = max_names
        self._known: dict[tuple[str, int], tuple[float, Sequence[Address]]] = {}
        self._pending: dict[tuple[str, int], _ActiveLookup] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of ``host``. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        key = host, port
        while True:
            until, addresses = self._known.get(key, (0.0, ()))
            if addresses and trio.current_time() < until:
                return addresses
            pending = self._pending.get(key)
            if pending is None:
                return await self._ask(key)
            await pending.done.wait()
            if pending.error is not None:
                raise type(pending.error)(*pending.error.args) from pending.error

    def forget(self, host: str, port: int) -> None:
        """Remove ``host`` from the cache. The caller does this if connections to all known addresses failed."""
        self._known.pop((host, port), None)

    async def _ask(self, key: tuple[str, int]) -> Sequence[Address]:
        pending = self._pending[key] = _ActiveLookup()
        try:
            addresses = await self._resolve(*key)
        except OSError as error:
            pending.error = error
            raise
        finally:
            del self._pending[key]
            pending.done.set()
        # Remove an old entry first, so that the new one is at the end and the oldest results are dropped first.
        self._known.pop(key, None)
        if len(self._known) >= self._max_names:
            del self._known[next(iter(self._known))]
        lifetime = self._lifetime
        if lifetime is None:
            lifetime = addresses.lifetime if isinstance(addresses, AddressList) else LIFETIME
        self._known[key] = trio.current_time() + lifetime, addresses
        return addresses


class CrawlResolver:
    """The addresses of hosts, each looked up once, so that a host keeps its addresses during a crawl.

    Transports can use this object as their resolver. A failure is not cached.
    """

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = ResolverCache(resolve, lifetime=inf, max_names=MAX_HOSTS)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of ``host``, best first. Always a checkpoint."""
        # Pass 0 as the port, so that a host is looked up once for all ports.
        found = await self._resolve(host, 0)
        return [attrs.evolve(each, sockaddr=(each.sockaddr[0], port, *each.sockaddr[2:])) for each in found]

    async def address_of(self, host: str) -> str | None:
        """Return the first address of ``host``; None if the lookup finds none within ``LOOKUP_TIMEOUT``. A checkpoint.

        ``host`` is a name or address, with or without a port, written like a throttling scope, for example
        ``[::1]:8080``.
        """
        with trio.move_on_after(LOOKUP_TIMEOUT):
            try:
                found = await self._resolve(_bare(host), 0)
            except OSError:
                return None
            return str(found[0].sockaddr[0]) if found else None
        return None


def _bare(scope: str) -> str:
    """Return a host without port and brackets."""
    if scope.startswith("["):
        return scope[1 : scope.index("]")]
    return scope.partition(":")[0] if scope.count(":") == 1 else scope


class DnsResolver:
    """Queries the system's name servers with dnspython, without threads, and uses the TTL of their responses.

    Cancelling ends a lookup. ``system`` gets addresses and names without a dot, such as ``localhost``. For other names,
    the system's hosts file is not read.

    Raises:
        SettingsError: If dnspython is not installed, or the system has no name server configured.
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
        """Return the addresses of ``host`` with their lifetime. Always a checkpoint."""
        if literal_address(host, port) is not None or "." not in host.rstrip("."):
            return await self._system(host, port)
        answers: dict[str, dns.resolver.Answer | dns.exception.DNSException] = {}

        async def ask(record: str) -> None:
            answers[record] = await self._query(host, record)

        async with trio.open_nursery() as nursery:
            for record in _FAMILIES:
                nursery.start_soon(ask, record)
        return _addresses(host, port, answers)

    async def _query(self, host: str, record: str) -> dns.resolver.Answer | dns.exception.DNSException:
        import dns.exception  # noqa: PLC0415
        import dns.name  # noqa: PLC0415

        try:
            name = dns.name.from_text(host)  # make the name absolute, so that local search domains are not used
            return await self._resolver.resolve(name, record, raise_on_no_answer=False)
        except dns.exception.DNSException as error:
            return error


def _addresses(
    host: str, port: int, answers: dict[str, dns.resolver.Answer | dns.exception.DNSException]
) -> AddressList:
    """Return the addresses of both responses, with the shorter lifetime.

    Without addresses, the error has the code ``EAI_NONAME`` if a server has reported that the name does not exist or
    the name is invalid, and ``EAI_AGAIN`` if no server has responded.
    """
    import dns.exception  # noqa: PLC0415
    import dns.resolver  # noqa: PLC0415

    found: list[Address] = []
    lifetimes: list[float] = []
    errors: list[Exception] = []
    for record, family in _FAMILIES.items():
        answer = answers[record]
        if isinstance(answer, Exception):
            errors.append(answer)
        elif answer.rrset is not None:
            lifetimes.append(max(float(answer.rrset.ttl), MIN_LIFETIME))
            rest = (0, 0) if family == socket.AF_INET6 else ()
            found += [Address(family, (each.address, port, *rest)) for each in answer.rrset]
    if found:
        return AddressList(found, lifetime=min(lifetimes))
    if errors and isinstance(errors[0], dns.exception.Timeout | dns.resolver.NoNameservers):
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server responded: {str(errors[0])[:200]}") from errors[0]
    raise socket.gaierror(socket.EAI_NONAME, f"{host!r} has no address")
