"""A resolver for tests whose servers have many names on this machine."""

from __future__ import annotations

import socket

import trio

from trawl.transport.resolver import Address

__all__ = ["LoopbackNames"]


class LoopbackNames:
    """Resolves names below ``localhost`` to this machine (RFC 6761, section 6.3)."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Return loopback addresses, or raise an error for other names."""
        await trio.lowlevel.checkpoint()
        self.asked.add(host)
        if not host.endswith(".localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "only names below localhost are known here")
        return [Address(socket.AF_INET, ("127.0.0.1", port))]
