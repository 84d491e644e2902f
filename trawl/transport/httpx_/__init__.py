"""What httpx and its core are used for: HTTP/2 and proxies for a crawl, and our own HTTP/1.1 for httpx's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trawl.transport.httpx_.adapter import HTTP11Transport
    from trawl.transport.httpx_.transport import HttpxTransport

__all__ = ["HTTP11Transport", "HttpxTransport"]


def __getattr__(name: str) -> Any:
    if name == "HTTP11Transport":
        from trawl.transport.httpx_.adapter import HTTP11Transport  # noqa: PLC0415 - importing httpx takes 0.2 s

        return HTTP11Transport
    if name == "HttpxTransport":
        from trawl.transport.httpx_.transport import HttpxTransport  # noqa: PLC0415 - nor its core, where nobody wants it

        return HttpxTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
