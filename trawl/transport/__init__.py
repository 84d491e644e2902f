"""Transports: they send requests and read whole responses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trawl.transport.base import OnSent, Transport
from trawl.transport.settings import TransportSettings

if TYPE_CHECKING:
    from trawl.transport.http11.transport import Http11Transport
    from trawl.transport.httpx_adapter import HTTP11Transport
    from trawl.transport.httpx_transport import HttpxTransport
    from trawl.transport.router import TransportRouter

__all__ = [
    "TransportRouter",
    "HTTP11Transport",
    "Http11Transport",
    "HttpxTransport",
    "OnSent",
    "Transport",
    "TransportSettings",
]


_HOMES = {
    "TransportRouter": "trawl.transport.router",
    "HTTP11Transport": "trawl.transport.httpx_adapter",
    "Http11Transport": "trawl.transport.http11.transport",
    "HttpxTransport": "trawl.transport.httpx_transport",
}
"""Classes that are loaded on first use, with their modules. A simulated crawl needs none of them, and importing httpx
takes 0.2 s.
"""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
