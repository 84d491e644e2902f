"""Loaded by each crawl's process. Names under ``.example`` resolve to the test's site, and no other name resolves.

So a project can name its sites without a port, as real projects do.
"""

from __future__ import annotations

import os
import socket
from typing import Any

SITE = ("127.0.0.1", int(os.environ["SITE_PORT"]))
ADDRESS = "93.184.215.14"
"""The address of all names. It is not a private address, and no request is ever sent to it."""

_getaddrinfo, _gethostbyname = socket.getaddrinfo, socket.gethostbyname
_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


def _address(host: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name == "localhost" or name.replace(".", "").isdigit():
        return name
    if name.endswith(".example"):
        return ADDRESS
    raise socket.gaierror(socket.EAI_NONAME, f"no such name: {name}")


def _place(address: Any) -> Any:
    return SITE if isinstance(address, tuple) and address[0] == ADDRESS else address


def getaddrinfo(host: Any, *words: Any, **more: Any) -> Any:
    return _getaddrinfo(_address(host), *words, **more)


def gethostbyname(host: Any) -> str:
    return _gethostbyname(_address(host))


def connect(self: socket.socket, address: Any) -> None:
    _connect(self, _place(address))


def connect_ex(self: socket.socket, address: Any) -> int:
    return _connect_ex(self, _place(address))


socket.getaddrinfo = getaddrinfo
socket.gethostbyname = gethostbyname
socket.socket.connect = connect  # type: ignore[assignment, method-assign]
socket.socket.connect_ex = connect_ex  # type: ignore[assignment, method-assign]
