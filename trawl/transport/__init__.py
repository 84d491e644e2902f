"""The wire: requests out, whole responses in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trawl.transport.base import OnSent, Transport
from trawl.transport.settings import TransportSettings

if TYPE_CHECKING:
    from trawl.transport.httpx_ import HttpxTransport

__all__ = ["HttpxTransport", "OnSent", "Transport", "TransportSettings"]


def __getattr__(name: str) -> Any:
    if name == "HttpxTransport":
        from trawl.transport.httpx_ import HttpxTransport  # noqa: PLC0415 - importing httpx takes 0.2 s

        return HttpxTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
