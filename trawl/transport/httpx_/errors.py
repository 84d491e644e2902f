"""What httpcore raises, as our own errors: the one table."""

from __future__ import annotations

import socket
import ssl

import attrs
import httpcore

from trawl.errors import (
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    NameNotResolved,
    ProxyFailed,
    ReadTimeout,
    ResponseBroken,
)
from trawl.transport.errors import protocol_words, system_error, tls_failure, words_of
from trawl.transport.settings import TransportSettings

__all__ = ["BODY_BROKEN", "LEFT", "ErrorContext", "is_foreign", "mapped"]

_MAPPED: tuple[tuple[type[Exception], type[DownloadError], str], ...] = (
    (httpcore.ConnectTimeout, ConnectTimeout, "no connection within {connect:g} s"),
    (httpcore.ReadTimeout, ReadTimeout, "nothing came for {read:g} s"),
    (httpcore.WriteTimeout, ReadTimeout, "the server took nothing for {read:g} s"),
    (httpcore.TimeoutException, DownloadTimeout, "timed out"),
    (httpcore.ConnectError, ConnectFailed, "no connection: {cause}"),
    (httpcore.NetworkError, ResponseBroken, "the connection broke: {cause}"),
    (Exception, DownloadError, "it can't be sent: {cause}"),
)
"""httpcore's error, ours, and what it says. The first that fits counts."""

BODY_BROKEN = (httpcore.ProtocolError, httpcore.ReadError)
"""What httpcore raises when a body does not come to its end."""

LEFT = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)
"""What httpcore raises when a server has closed a connection that was idle."""

_HTTP_2 = frozenset({"h2", "hpack", "hyperframe"})
_PACKAGES = _HTTP_2 | {"httpcore", "socksio"}
_SLIPS = (AssertionError, LookupError, ValueError)
"""What httpcore and the packages under it raise for input that they did not expect."""

_NOT_REACHED = ("502 ", "503 ", "504 ", "unreachable", "Connection refused", "TTL expired", "not allowed", "403 ")
"""What a proxy says that works, but can't or may not reach the host."""


@attrs.frozen
class ErrorContext:
    """What is known about an exchange that failed.

    Attributes:
        host: Whom it was with.
        proxy: The proxy it went through, if any; as people see it.
        is_on_the_way: The proxy has not let it through yet.
        settings: The limits that may have passed.
    """

    host: str
    proxy: str | None
    is_on_the_way: bool
    settings: TransportSettings


def is_foreign(error: Exception) -> bool:
    """Whether the network, or what came over it, made httpcore or a package under it raise ``error``."""
    return _package(error) in _PACKAGES or isinstance(error, _SLIPS)


def _package(error: object) -> str:
    return type(error).__module__.partition(".")[0]


def mapped(error: Exception, around: ErrorContext) -> DownloadError:
    """Our error for one of httpcore's."""
    failure = _proxys(error, around) if around.proxy and around.is_on_the_way else _servers(error, around)
    failure.__cause__ = error
    return failure


def _servers(error: Exception, around: ErrorContext) -> DownloadError:
    system = None if isinstance(error, httpcore.ProtocolError) else system_error(error)
    words = words_of(system or error)
    if isinstance(system, socket.gaierror):
        return NameNotResolved(f"the name {around.host!r} has no address ({words})")
    if isinstance(system, ssl.SSLError) and isinstance(error, httpcore.ConnectError):
        return tls_failure(system)
    inner = error.args[0] if isinstance(error, httpcore.LocalProtocolError) and error.args else error
    if isinstance(error, httpcore.RemoteProtocolError) or _package(inner) in _HTTP_2:
        return ResponseBroken(protocol_words(words))
    kind, text = next((ours, text) for theirs, ours, text in _MAPPED if isinstance(error, theirs))
    connect, read = around.settings.download_connect_timeout, around.settings.download_read_timeout
    return kind(text.format(cause=words, connect=connect, read=read))


def _proxys(error: Exception, around: ErrorContext) -> DownloadError:
    """Our error for one on the way to the host."""
    system = system_error(error)
    words = words_of(system or error)
    if isinstance(error, httpcore.ProxyError):
        reaches = not any(sign in words for sign in _NOT_REACHED)
        return ProxyFailed(f"the proxy {around.proxy} refuses: {words}", is_of_proxy=reaches)
    if isinstance(error, httpcore.TimeoutException):
        seconds = around.settings.download_connect_timeout
        return ProxyFailed(f"no connection through the proxy {around.proxy} within {seconds:g} s", is_of_proxy=True)
    if isinstance(system, ssl.SSLError):
        words = tls_failure(system).cause
    return ProxyFailed(f"no connection through the proxy {around.proxy}: {words}", is_of_proxy=True)
