"""Host names looked up: by the system in threads, or by name servers asked on Trio; remembered; fixed for a crawl.

A lookup by the system goes through the seam for blocking work as one that may be abandoned. ``getaddrinfo`` can hang
for minutes on a name server that is gone: under Trio's default limiter forty such names would stop every other thread
in the program, and a lookup that can't be abandoned would hold up each timeout and the end of the crawl.

A name server may give its addresses in another order each time. Limits by address hold only if a request goes to the
address that it was charged to, so a crawl looks each host up once, whatever the port (:class:`CrawlResolver`), and both
the throttling and the connections use that answer.
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
"""Lookups left to their threads; beyond that number those that have ended are forgotten."""

LIFETIME = 60.0
"""Seconds that an address is believed; ``getaddrinfo`` does not tell what the name server allows. As browsers do."""

MAX_NAMES = 10_000
"""Names remembered; the one looked up first goes first."""

LOOKUP_TIMEOUT = 10.0
"""Seconds that a lookup may take before its host counts as one without an address: a callback waits for it."""

MAX_HOSTS = 100_000
"""Hosts whose addresses a crawl remembers."""

MIN_LIFETIME = 1.0
"""Seconds that a name server's answer lasts at least: some servers say 0."""

_FAMILIES = {"AAAA": socket.AF_INET6, "A": socket.AF_INET}  # IPv6 goes first (RFC 8305, 4)


@attrs.frozen
class Address:
    """The address of a socket.

    Attributes:
        family: ``socket.AF_INET``, ``socket.AF_INET6`` or ``socket.AF_UNIX``.
        sockaddr: The address as the socket module has it for this family.
    """

    family: int
    sockaddr: tuple[Any, ...] | str


class AddressList(list[Address]):
    """Addresses with a known lifetime.

    Attributes:
        lifetime: Seconds that they last.
    """

    def __init__(self, addresses: Iterable[Address], *, lifetime: float) -> None:
        super().__init__(addresses)
        self.lifetime: float = lifetime


Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Looks up the addresses of a host and port, best first. Raises ``socket.gaierror`` when there is none."""


def literal_address(host: str, port: int) -> Address | None:
    """Return the address that ``host`` is itself; None if it is a name."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET6, (host, port, 0, 0)) if version == 6 else Address(socket.AF_INET, (host, port))


def _getaddrinfo(host: str, port: int) -> list[Address]:
    # Bytes, so that Python's own IDNA (2003) does not touch a host that is in ASCII form already.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


@attrs.define
class _ThreadLookup:
    """One call of ``getaddrinfo``, in its thread."""

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
    """Looks names up as the system does, through the seam for blocking work. Addresses need no lookup.

    A lookup that was given up and still hangs is not made twice: its name has no address until it ends, so that no
    name takes more than one thread.

    Args:
        blocking: Runs the lookups; None: in threads of their own.
    """

    def __init__(self, blocking: Blocking | None = None) -> None:
        self._blocking = blocking or ThreadBlocking()
        self._left: dict[str, _ThreadLookup] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Look ``host`` up. Cancelling leaves the lookup to its thread. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address, or no name server has told yet.
        """
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
        """Remember a lookup that goes on though its caller has given up."""
        if len(self._left) >= MAX_LEFT:
            self._left = {host: each for host, each in self._left.items() if each.is_running}
        self._left[lookup.host] = lookup


@attrs.define
class _ActiveLookup:
    done: trio.Event = attrs.Factory(trio.Event)
    error: OSError | None = None


class ResolverCache:
    """Calls ``resolve`` once for each name and lifetime, however many tasks wait for the answer.

    A failure is raised in all tasks that wait for it, and not remembered. When the task that asks is cancelled, one of
    those that wait asks again.

    Args:
        resolve: Looks names up.
        lifetime: Seconds that an answer is believed; None: the answer's own lifetime, or ``LIFETIME``.
        max_names: Names remembered.
    """

    def __init__(self, resolve: Resolve, *, lifetime: float | None = None, max_names: int = MAX_NAMES) -> None:
        self._resolve = resolve
        self._lifetime = lifetime
        self._max_names = max_names
        self._known: dict[tuple[str, int], tuple[float, Sequence[Address]]] = {}
        self._pending: dict[tuple[str, int], _ActiveLookup] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of ``host``. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address.
        """
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
        """Look ``host`` up anew next time: nothing answers at the known addresses."""
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
        # Put in anew at the end, so that the oldest answers are forgotten first.
        self._known.pop(key, None)
        if len(self._known) >= self._max_names:
            del self._known[next(iter(self._known))]
        lifetime = self._lifetime
        if lifetime is None:
            lifetime = addresses.lifetime if isinstance(addresses, AddressList) else LIFETIME
        self._known[key] = trio.current_time() + lifetime, addresses
        return addresses


class CrawlResolver:
    """The addresses of hosts, looked up once each and kept: a host does not move while a crawl runs.

    Itself a resolver for transports. A failure is not remembered.

    Args:
        resolve: Looks names up.
    """

    __slots__ = ("_resolve",)

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = ResolverCache(resolve, lifetime=inf, max_names=MAX_HOSTS)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of ``host``, best first. Always a checkpoint.

        Raises:
            OSError: ``socket.gaierror``: the name has no address.
        """
        # Without its port, so that a host is looked up once for all of them.
        found = await self._resolve(host, 0)
        return [attrs.evolve(each, sockaddr=(each.sockaddr[0], port, *each.sockaddr[2:])) for each in found]

    async def address_of(self, host: str) -> str | None:
        """Return the address that is tried first for ``host``; None if it has none within ``LOOKUP_TIMEOUT``.

        Always a checkpoint.

        Args:
            host: A name or address, with or without a port, as throttling scopes are written: ``[::1]:8080``.
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
    """Asks the system's name servers by dnspython, without threads; their answers last as long as they say.

    Cancelling ends a lookup. Names without a dot (``localhost``, those of the own network) are looked up as the system
    does; the system's file of hosts is not read for others.

    Args:
        system: Looks up names without a dot; None: in threads.
        resolver: dnspython's resolver; None: one for the system's name servers.

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
        """Return the addresses of ``host`` with their lifetime. Always a checkpoint.

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
            name = dns.name.from_text(host)  # a name with its root: no search in the own domain
            return await self._resolver.resolve(name, record, raise_on_no_answer=False)
        except dns.exception.DNSException as error:
            return error


def _addresses(
    host: str, port: int, answers: dict[str, dns.resolver.Answer | dns.exception.DNSException]
) -> AddressList:
    """Return the addresses of both answers, with the shorter lifetime.

    Raises:
        socket.gaierror: There is none: ``EAI_NONAME`` if a server has said that there is none or can't be one,
            ``EAI_AGAIN`` if no server has answered.
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
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server told: {str(errors[0])[:200]}") from errors[0]
    raise socket.gaierror(socket.EAI_NONAME, f"there is no address of {host!r}")
