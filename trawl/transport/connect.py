"""From a host's name to a connected socket: look the name up, try its addresses in a staggered race (RFC 8305).

Look-ups go through the seam for blocking work, as what may be abandoned. ``getaddrinfo`` can hang for minutes on a name
server that is gone; under Trio's default limiter forty such names would stop every other thread in the program, and a
look-up that can't be abandoned would hold up each timeout and the end of the crawl.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any

import attrs
import trio

from trawl.addresses import AddressGuard
from trawl.blocking import Blocking, ThreadBlocking
from trawl.errors import AddressRefused
from trawl.transport.bind_address import BindAddress
from trawl.transport.response_limits import words_of

__all__ = [
    "Address",
    "AddressList",
    "ConnectOptions",
    "Resolve",
    "ThreadResolver",
    "dial",
    "interleaved",
    "is_short_of_files",
    "literal_address",
]

ATTEMPT_DELAY = 0.25
"""Seconds that an address has before the next one is tried beside it (RFC 8305, 5)."""


@attrs.frozen
class Address:
    """Where to connect to.

    Attributes:
        family: ``socket.AF_INET``, ``socket.AF_INET6`` or ``socket.AF_UNIX``.
        sockaddr: As the socket module has it for this family.
    """

    family: int
    sockaddr: tuple[Any, ...] | str


class AddressList(list[Address]):
    """Addresses of which somebody has said how long they last.

    Args:
        addresses: They.
        lifetime: How long; seconds.

    Attributes:
        lifetime: How long; seconds.
    """

    def __init__(self, addresses: Iterable[Address], *, lifetime: float) -> None:
        super().__init__(addresses)
        self.lifetime: float = lifetime


@attrs.frozen
class ConnectOptions:
    """How connections are made, besides where to.

    Attributes:
        bind_address: The address and port that they come from; None: the system chooses.
        socket_options: Level, option and value of ``setsockopt``, set before connecting.
        uds: The path of a Unix socket that stands for every host; None: there is none.
    """

    bind_address: BindAddress | None = None
    socket_options: tuple[tuple[Any, ...], ...] = ()
    uds: str | None = None


_USUAL = ConnectOptions()

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""The addresses of a host and port, best first. Raises ``socket.gaierror`` when there is none."""

MAX_LEFT = 1_000
"""Look-ups left to their threads beyond which those that have ended are forgotten."""


@attrs.define
class _LookUp:
    """One call of ``getaddrinfo``, in its thread."""

    host: str
    port: int
    is_running: bool = False

    def __call__(self) -> list[Address]:
        self.is_running = True
        try:
            return _look_up(self.host, self.port)
        finally:
            self.is_running = False


class ThreadResolver:
    """Looks names up as the system does, through the seam for blocking work. Addresses need no look-up.

    A look-up that was given up and still hangs is not made twice: its name has no address as long as it does, so that
    no name takes more than one thread.

    Args:
        blocking: How look-ups are done; in threads of their own if None.
    """

    def __init__(self, blocking: Blocking | None = None) -> None:
        self._blocking = blocking or ThreadBlocking()
        self._left: dict[str, _LookUp] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of ``host``. Cancelling leaves the look-up to its thread. Always a checkpoint.

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
            raise socket.gaierror(socket.EAI_AGAIN, "an earlier look-up of it has not ended")
        look_up = _LookUp(host, port)
        try:
            found = await self._blocking.run_abandonable(look_up)
        finally:
            if look_up.is_running:
                self._leave(look_up)
        return list(dict.fromkeys(found))

    def _leave(self, look_up: _LookUp) -> None:
        """Remember a look-up that goes on though nobody waits for it."""
        if len(self._left) >= MAX_LEFT:
            self._left = {host: each for host, each in self._left.items() if each.is_running}
        self._left[look_up.host] = look_up


def literal_address(host: str, port: int) -> Address | None:
    """The address that ``host`` is itself; None: it is a name."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET6, (host, port, 0, 0)) if version == 6 else Address(socket.AF_INET, (host, port))


def _look_up(host: str, port: int) -> list[Address]:
    # Bytes, so that Python's own IDNA (2003) does not touch a host that is in ASCII form already.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


def interleaved(addresses: Sequence[Address]) -> list[Address]:
    """The addresses with their families taking turns, the first one's first (RFC 8305, 4)."""
    if not addresses:
        return []
    first = [address for address in addresses if address.family == addresses[0].family]
    others = [address for address in addresses if address.family != addresses[0].family]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


def is_short_of_files(error: BaseException | None) -> bool:
    """Whether what failed did so because this process, or the system, may open no more files (``ulimit -n``).

    A look-up that could open none says only that it failed, so then it is tried whether there is a file to be had.
    """
    found = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    if isinstance(found, socket.gaierror):
        try:
            os.close(os.dup(2))
        except OSError as refusal:
            found = refusal
    return isinstance(found, OSError) and found.errno in {errno.EMFILE, errno.ENFILE}


async def dial(
    host: str, port: int, resolve: Resolve, guard: AddressGuard | None = None, options: ConnectOptions = _USUAL
) -> trio.SocketStream:
    """A connection to ``host``; every address is tried. Cancelling closes what was opened. Always a checkpoint.

    Args:
        host: A name, or an address without brackets.
        port: Where.
        resolve: Looks names up.
        guard: Says which addresses may be connected to; None: all.
        options: How.

    Raises:
        AddressRefused: None of its addresses may be connected to.
        OSError: ``socket.gaierror`` if the name has no address, else the first address's refusal.
    """
    if options.uds is not None:
        return await _connected(Address(socket.AF_UNIX, options.uds), options)
    addresses = interleaved(await resolve(host, port))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    if guard is not None:
        addresses = _vetted(host, addresses, guard)
    if len(addresses) == 1:
        return await _connected(addresses[0], options)
    return await _race(addresses, options)


def _vetted(host: str, addresses: list[Address], guard: AddressGuard) -> list[Address]:
    """Those of ``addresses`` that may be connected to; no await between this and the connection."""
    refused = guard.refused(host, [str(address.sockaddr[0]) for address in addresses])
    if not refused:
        return addresses
    vetted = [address for address in addresses if str(address.sockaddr[0]) not in refused]
    if not vetted:
        address, kind = next(iter(refused.items()))
        raise AddressRefused(f"refused: its address {address} is {kind} (see ALLOW_PRIVATE_ADDRESSES)")
    return vetted


async def _connected(address: Address, options: ConnectOptions) -> trio.SocketStream:
    sock = trio.socket.socket(address.family, socket.SOCK_STREAM)
    try:
        for option in options.socket_options:
            sock.setsockopt(*option)
        if options.bind_address is not None and options.uds is None:
            await _bind(sock, options.bind_address)
        await sock.connect(address.sockaddr)
        return trio.SocketStream(sock)
    except BaseException:
        sock.close()
        raise


async def _bind(sock: trio.socket.SocketType, bind_address: BindAddress) -> None:
    if bind_address.port and os.name == "posix":  # else it is not ours again until a minute after the last connection
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        await sock.bind((bind_address.host, bind_address.port))
    except OSError as error:  # a ``gaierror`` if it is of the other family, which must not be taken for the host's
        at = f" port {bind_address.port}" if bind_address.port else ""
        raise OSError(f"it can't come from {bind_address.host}{at} ({words_of(error)})") from error


async def _race(addresses: Sequence[Address], options: ConnectOptions) -> trio.SocketStream:
    won: list[trio.SocketStream] = []
    failures: list[OSError] = []

    async def attempt(address: Address, failed: trio.Event) -> None:
        try:
            stream = await _connected(address, options)
        except OSError as error:
            failures.append(error)
            failed.set()
        else:
            won.append(stream)
            nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(ATTEMPT_DELAY):
                    await failed.wait()
    except BaseException:
        for stream in won:
            stream.socket.close()
        raise
    for stream in won[1:]:  # two arrived in the same instant
        stream.socket.close()
    if not won:
        raise failures[0]
    return won[0]
