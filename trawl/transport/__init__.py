"""Transports: they send requests and read whole responses.

:class:`TransportRouter` chooses one for each request: our own HTTP/1.1, or httpcore for proxies and HTTP/2.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trawl.errors import SettingsError
from trawl.transport.base import OnSent, Transport
from trawl.transport.settings import TransportSettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine

    from trawl.address_guard import AddressGuard
    from trawl.http import Outcome, Request
    from trawl.transport.http11.transport import Http11Transport
    from trawl.transport.httpx_adapter import HTTP11Transport
    from trawl.transport.httpx_transport import HttpxTransport
    from trawl.transport.resolver import Resolve

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
    "HTTP11Transport": "trawl.transport.httpx_adapter",
    "Http11Transport": "trawl.transport.http11.transport",
    "HttpxTransport": "trawl.transport.httpx_transport",
}
"""Classes that are loaded on first use. A simulated crawl needs none of them, and importing httpx takes 0.2 s."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TransportRouter:
    """Sends requests with our own HTTP/1.1, or with httpcore if they use a proxy or HTTP/2.

    A request has a proxy if ``request.meta["proxy"]`` names one. With ``HTTP2_ENABLED``, HTTP/2 is offered to ``https``
    servers.

    Args:
        settings: Timeouts, limits and ``HTTP2_ENABLED``.
        resolve: Looks up names; None for the system's lookup in threads.
        ssl_context: Decides which servers are trusted; None for the certificates of certifi or ``SSL_CERT_FILE``.
        guard: Decides to which addresses the crawl may connect; None for all.
        keeps_received: Whether outcomes have the received bytes (:attr:`trawl.http.Outcome.received`), for an archive.

    Raises:
        SettingsError: If HTTP/2 is enabled but its package is not installed, or this machine does not have the address
            ``DOWNLOAD_BIND_ADDRESS``.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
        guard: AddressGuard | None = None,
        keeps_received: bool = False,
    ) -> None:
        from trawl.transport.http11.transport import Http11Transport  # noqa: PLC0415 - a simulated crawl has no wire

        if settings.http2_enabled and find_spec("h2") is None:
            words = "HTTP2_ENABLED needs the http2 extra: pip install 'trawl-crawler[http2]'"
            raise SettingsError(words, "HTTP2_ENABLED")
        if settings.bind_address is not None:
            settings.bind_address.check()
        self._settings = settings
        self._options: dict[str, Any] = {"resolve": resolve, "ssl_context": ssl_context, "guard": guard}
        self._options["keeps_received"] = keeps_received
        self._own = Http11Transport(settings, **self._options, room=self._room_of_other)
        self._other: HttpxTransport | None = None

    def send(self, request: Request, on_sent: OnSent) -> Coroutine[Any, Any, Outcome]:
        """Send ``request`` once and read the whole response. A failure is the outcome's error.

        Cancelling drops the connection. Always a checkpoint.
        """
        if request.meta_get("proxy") or (self._settings.http2_enabled and request.url.startswith("https:")):
            return self._httpxs().send(request, on_sent)
        # This function is not async, because it runs for every page, and another coroutine would cost time.
        return self._own.send(request, on_sent)

    async def aclose(self) -> None:
        """Close all connections without waiting for the peers. Safe to call twice."""
        if self._other is not None:
            await self._other.aclose()
        await self._own.aclose()

    def _httpxs(self) -> Transport:
        if self._other is None:
            from trawl.transport.httpx_transport import HttpxTransport  # noqa: PLC0415 - few crawls need it

            self._other = HttpxTransport(self._settings, **self._options, room=self._own.make_room)
        return self._other

    async def _room_of_other(self) -> bool:
        return self._other is not None and await self._other.make_room()
