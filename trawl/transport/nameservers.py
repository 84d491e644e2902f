"""Names looked up by asking name servers ourselves, on Trio: no threads, and what servers say lasts as they say."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from trawl.errors import SettingsError
from trawl.transport.dial import Address, LastingAddresses, Resolve, ThreadResolver, literal_address

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.exception
    import dns.resolver

__all__ = ["NameServers"]

LEAST_LIFETIME = 1.0
"""Seconds that an answer lasts at least: some servers say 0."""

_FAMILIES = {"AAAA": socket.AF_INET6, "A": socket.AF_INET}  # IPv6 goes first (RFC 8305, 4)


class NameServers:
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
) -> LastingAddresses:
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
        return LastingAddresses(found, lifetime=min(lifetimes))
    if errors and not _is_final(errors[0]):
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server told: {str(errors[0])[:200]}") from errors[0]
    raise socket.gaierror(socket.EAI_NONAME, f"there is no address of {host!r}")


def _is_final(error: Exception) -> bool:
    """Whether a server has said that there is no such name, or there can't be."""
    import dns.exception  # noqa: PLC0415
    import dns.resolver  # noqa: PLC0415

    return not isinstance(error, dns.exception.Timeout | dns.resolver.NoNameservers)
