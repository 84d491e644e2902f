"""The near end of our connections: the address, and perhaps the port, that they come from."""

from __future__ import annotations

import socket
from contextlib import closing
from ipaddress import ip_address

import attrs

from trawl.errors import RequestInvalid, SettingsError
from trawl.http import Request

__all__ = ["BindAddress"]

_MAX_PORT = 65_535
"""The largest number of a port."""


@attrs.frozen
class BindAddress:
    """Where connections come from.

    Attributes:
        host: An address of this machine.
        port: The port that each comes from; 0: one that is free.
    """

    host: str
    port: int = 0

    @classmethod
    def of(cls, value: object) -> BindAddress:
        """Read an address, or an address and a port, as ``DOWNLOAD_BIND_ADDRESS`` and ``bindaddress`` have them.

        Raises:
            ValueError: It is neither. Names are not looked up: which of its addresses would be meant?
        """
        host, port = value if isinstance(value, tuple | list) and len(value) == 2 else (value, 0)
        try:
            if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, int):
                raise ValueError
            ip_address(host)
        except ValueError:
            raise ValueError(f"an address of this machine, or that and a port, not {value!r}") from None
        if not 0 <= port <= _MAX_PORT:
            raise ValueError(f"a port is 0 to {_MAX_PORT}, not {port}")
        return cls(host, port)

    @classmethod
    def wished(cls, request: Request) -> BindAddress | None:
        """What ``bindaddress`` in the meta of ``request`` says; None: nothing.

        Raises:
            RequestInvalid: It is no address.
        """
        value = request.meta_get("bindaddress")
        if not value:
            return None
        try:
            return cls.of(value)
        except ValueError as error:
            raise RequestInvalid(f"its bindaddress must be {error}") from error

    def check(self) -> None:
        """See that this machine has the address, by taking a port of it for a moment.

        Raises:
            SettingsError: It has not, so that no connection could be made.
        """
        family = socket.AF_INET6 if ip_address(self.host).version == 6 else socket.AF_INET
        name = "DOWNLOAD_BIND_ADDRESS"
        try:
            with closing(socket.socket(family)) as probe:
                probe.bind((self.host, 0))
        except OSError as error:
            raise SettingsError(f"{name}: no connection can come from {self.host}: {error.strerror}", name) from error
