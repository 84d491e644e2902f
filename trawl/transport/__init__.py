"""The wire: requests out, whole responses in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trawl.transport.base import OnSent, Transport
from trawl.transport.settings import TransportSettings

if TYPE_CHECKING:
    from trawl.transport.http11 import Http11Transport
    from trawl.transport.httpx_ import HTTP11Transport, HttpxTransport
    from trawl.transport.router import ChosenTransport

__all__ = [
    "ChosenTransport",
    "HTTP11Transport",
    "Http11Transport",
    "HttpxTransport",
    "OnSent",
    "Transport",
    "TransportSettings",
]


def __getattr__(name: str) -> Any:
    if name == "ChosenTransport":
        from trawl.transport.router import ChosenTransport  # noqa: PLC0415 - a simulated crawl needs no wire

        return ChosenTransport
    if name == "Http11Transport":
        from trawl.transport.http11 import Http11Transport  # noqa: PLC0415 - a simulated crawl needs no wire

        return Http11Transport
    if name in {"HTTP11Transport", "HttpxTransport"}:
        from trawl.transport import httpx_  # noqa: PLC0415 - importing httpx takes 0.2 s

        return getattr(httpx_, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
