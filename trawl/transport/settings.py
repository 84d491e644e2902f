"""The settings of transports, and the local address of connections."""

from __future__ import annotations

import socket
from contextlib import closing
from ipaddress import ip_address
from typing import Annotated, Literal

import attrs
from msgspec import Meta, Struct

from trawl.errors import RequestInvalid, SettingsError
from trawl.http import Request

__all__ = ["BindAddress", "TransportSettings"]

_MAX_PORT = 65_535
"""The largest port number."""


@attrs.frozen
class BindAddress:
    """The local address of connections: an IP address of this machine, and a port; 0 for any free port."""

    host: str
    port: int = 0

    @classmethod
    def of(cls, value: object) -> BindAddress:
        """Parse an address, or an address and a port, as in ``DOWNLOAD_BIND_ADDRESS`` and ``bindaddress``.

        Raises ValueError for any other value. Host names are not accepted, because a name may have several addresses.
        """
        host, port = value if isinstance(value, tuple | list) and len(value) == 2 else (value, 0)
        try:
            if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, int):
                raise ValueError
            ip_address(host)
        except ValueError:
            raise ValueError(f"an address of this machine, or an address and a port, not {value!r}") from None
        if not 0 <= port <= _MAX_PORT:
            raise ValueError(f"an address and a port from 0 to {_MAX_PORT}, not {port}")
        return cls(host, port)

    @classmethod
    def for_request(cls, request: Request) -> BindAddress | None:
        """Return the address in the request's meta ``bindaddress``, or raise RequestInvalid if it is not one."""
        value = request.meta_get("bindaddress")
        if not value:
            return None
        try:
            return cls.of(value)
        except ValueError as error:
            raise RequestInvalid(f"its bindaddress must be {error}") from error

    def check(self) -> None:
        """Bind a socket to the address for a moment. Raises SettingsError if this machine does not have it."""
        family = socket.AF_INET6 if ip_address(self.host).version == 6 else socket.AF_INET
        name = "DOWNLOAD_BIND_ADDRESS"
        try:
            with closing(socket.socket(family)) as probe:
                probe.bind((self.host, 0))
        except OSError as error:
            raise SettingsError(f"{name}: no connection can come from {self.host}: {error.strerror}", name) from error


class TransportSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Time limits, sizes, TLS, name lookups, compression and WARC files.

    Attributes:
        download_timeout: Maximum time for one request, from connecting to the last byte. Meta ``download_timeout``
            overrides it.
        download_connect_timeout: Maximum time for opening a connection, including the TLS handshake.
        download_read_timeout: Maximum time during which a server sends nothing, or accepts nothing.
        download_maxsize: Maximum size of a body, as sent and after decompression; a larger one is an error. 0 disables
            the limit. Meta ``download_maxsize`` overrides it.
        download_warnsize: Log a warning for a larger body. 0 disables the warning. Meta ``download_warnsize`` overrides
            it.
        download_fail_on_dataloss: Treat a body that ends early as an error. If False, the response has the flag
            ``dataloss`` and the received part. Meta ``download_fail_on_dataloss`` overrides it. A body without a length
            that came over TLS and did not end with TLS's ``close_notify`` always has the flag, because it may be
            truncated.
        download_verify_certificates: Refuse a server whose certificate is expired, belongs to another host, or is not
            signed by a known authority.
        allow_private_addresses: Allow connections to loopback, private, link-local and other addresses that are not
            public. None: allow them if a start URL names such an address itself.
        download_keepalive_timeout: Keep an idle connection for this long. 0 closes it at once.
        download_bind_address: Local address, or address and port, of connections, including connections to proxies.
            None: the system chooses. Name lookups do not use it. Meta ``bindaddress`` overrides it.
        dns_resolver: How names are looked up. ``system``: by the system, in threads, with a cache of one minute.
            ``dnspython``: without threads, with a cache for the TTL of the DNS response; needs the ``dns`` extra.
        http2_enabled: Offer HTTP/2 to ``https`` servers; needs the ``http2`` extra. HTTP/1.1 takes less processor time.
        compression_enabled: Request compressed bodies and decompress them. If False, bodies stay as sent.
        warc_file: Write all traffic to WARC files: ``crawl.warc.gz`` makes ``crawl-00001.warc.gz`` and so on; existing
            files are not changed. Empty: no files. Needs the ``warc`` extra.
        warc_max_bytes: Size of a WARC file at which the next one is started.
        warc_bodies: Write the bodies of responses to WARC files. If False, only those of robots.txt are written.
    """

    download_timeout: Annotated[float, Meta(gt=0, title="s")] = 180.0
    download_connect_timeout: Annotated[float, Meta(gt=0, title="s")] = 30.0
    download_read_timeout: Annotated[float, Meta(gt=0, title="s")] = 60.0
    download_maxsize: Annotated[int, Meta(ge=0, title="bytes")] = 1_073_741_824
    download_warnsize: Annotated[int, Meta(ge=0, title="bytes")] = 33_554_432
    download_fail_on_dataloss: bool = True
    download_verify_certificates: bool = True
    allow_private_addresses: bool | None = None
    download_keepalive_timeout: Annotated[float, Meta(ge=0, title="s")] = 30.0
    download_bind_address: str | tuple[str, int] | None = None
    dns_resolver: Literal["system", "dnspython"] = "system"
    http2_enabled: bool = False
    compression_enabled: bool = True
    warc_file: str = ""
    warc_max_bytes: Annotated[int, Meta(gt=0, title="bytes")] = 1_000_000_000

    warc_bodies: bool = True

    def __post_init__(self) -> None:
        """Check ``download_bind_address``."""
        if self.download_bind_address is not None:
            try:
                BindAddress.of(self.download_bind_address)
            except ValueError as error:
                raise SettingsError(f"DOWNLOAD_BIND_ADDRESS must be {error}", "DOWNLOAD_BIND_ADDRESS") from error

    @property
    def bind_address(self) -> BindAddress | None:
        """Local address of connections; None if the system chooses."""
        return None if self.download_bind_address is None else BindAddress.of(self.download_bind_address)
