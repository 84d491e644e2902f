"""Connecting to hosts. Attempts for several addresses start one by one and run in parallel (RFC 8305)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import attrs
import trio

from trawl.address_guard import AddressGuard
from trawl.errors import AddressRefused
from trawl.transport.base import words_of
from trawl.transport.resolver import Address, Resolve
from trawl.transport.settings import BindAddress

__all__ = ["ConnectOptions", "allowed", "dial", "interleaved"]

ATTEMPT_DELAY = 0.25
"""Seconds between the start of one attempt and the start of the next, parallel attempt (RFC 8305, 5)."""


@attrs.frozen
class ConnectOptions:
    """Options of a connection. If ``uds``, the path of a Unix socket, is set, it is used for every host."""

    bind_address: BindAddress | None = None
    socket_options: tuple[tuple[Any, ...], ...] = ()
    uds: str | None = None


_DEFAULT = ConnectOptions()


def interleaved(addresses: Sequence[Address]) -> list[Address]:
    """Return the addresses in an order that alternates between IPv6 and IPv4, starting with the first (RFC 8305, 4)."""
    if not addresses:
        return []
    first = [address for address in addresses if address.family == addresses[0].family]
    others = [address for address in addresses if address.family != addresses[0].family]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


async def dial(
    host: str, port: int, resolve: Resolve, guard: AddressGuard | None = None, options: ConnectOptions = _DEFAULT
) -> trio.SocketStream:
    """Connect to ``host``, trying each of its addresses. Cancelling closes all opened sockets. Always a checkpoint.

    Raises:
        AddressRefused: If ``guard`` allows no address of ``host``.
        OSError: If no connection can be opened. It is ``socket.gaierror`` if the name has no address, otherwise the
            error of the first address that failed.
    """
    if options.uds is not None:
        return await _connected(Address(socket.AF_UNIX, options.uds), options)
    addresses = interleaved(await resolve(host, port))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    if guard is not None:
        addresses = allowed(host, addresses, guard)
    if len(addresses) == 1:
        return await _connected(addresses[0], options)
    return await _race(addresses, options)


def allowed(host: str, addresses: list[Address], guard: AddressGuard) -> list[Address]:
    """Return the allowed addresses, for connecting without another lookup. Raises AddressRefused if there are none."""
    refused = guard.refused(host, [str(address.sockaddr[0]) for address in addresses])
    found = [address for address in addresses if str(address.sockaddr[0]) not in refused]
    if not found:
        address, kind = next(iter(refused.items()))
        raise AddressRefused(f"refused: its address {address} is {kind} (see ALLOW_PRIVATE_ADDRESSES)")
    return found


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
    if bind_address.port and os.name == "posix":  # reuse the port, which stays in use for a minute after a connection
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        await sock.bind((bind_address.host, bind_address.port))
    # ``gaierror`` is an ``OSError`` too. It is raised if the local address has another family, not because of the host.
    except OSError as error:
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
                # RFC 8305, 5: start the next attempt after a delay, or as soon as this one fails.
                with trio.move_on_after(ATTEMPT_DELAY):
                    await failed.wait()
    except BaseException:
        for stream in won:
            stream.socket.close()
        raise
    for stream in won[1:]:  # close the others if two attempts succeeded at the same time
        stream.socket.close()
    if not won:
        raise failures[0]
    return won[0]
