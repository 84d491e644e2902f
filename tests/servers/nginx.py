"""A real nginx on loopback, with its own configuration and access log."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NoReturn

import attrs
import pytest

BINARY = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
START_WITHIN = 60.0
"""Seconds."""
SETTLED = "settled.invalid"
"""The host of a request whose only purpose is to wait for the requests before it."""

CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    types {{ text/html html; text/css css; application/javascript js; text/plain txt py; image/png png; }}
    log_format hits '$msec\t$request_time\t$http_host\t$request_method\t$request_uri\t$status';
    access_log {folder}/access.log hits;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000;
    gzip on;
    gzip_static on;
    {extra}
    server {{
        listen 127.0.0.1:{port};
        root {root};
        {server}
    }}
}}
"""


@attrs.frozen
class Hit:
    """A request that nginx received.

    Attributes:
        at: Arrival time, in seconds since the epoch, to the millisecond.
        host: The Host header, including the port.
    """

    at: float
    host: str
    method: str
    target: str
    status: int


@attrs.frozen
class Nginx:
    """A running nginx."""

    port: int
    folder: Path

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.port}"

    def hits(self) -> list[Hit]:
        """Return the access log so far, in the order of the requests."""
        self._settle()
        lines = (self.folder / "access.log").read_text(encoding="utf-8").splitlines()
        hits = sorted((read_hit(line) for line in lines), key=lambda hit: hit.at)
        return [hit for hit in hits if hit.host != SETTLED]

    def _settle(self) -> None:
        """Send one more request, because nginx logs a request after its response and before the next request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_WITHIN)
        try:
            connection.request("HEAD", "/", headers={"Host": SETTLED})
            connection.getresponse().read()
        finally:
            connection.close()


def read_hit(line: str) -> Hit:
    """Parse a line of the access log."""
    ended, took, host, method, target, status = line.split("\t")
    return Hit(float(ended) - float(took), host, method, target, int(status))


def unavailable(what: str, package: str) -> NoReturn:
    """Skip the test. Fail it instead if continuous integration should have installed the program."""
    reason = f"{what} is not installed: apt-get install {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def running(folder: Path, root: Path, *, extra: str = "", server: str = "") -> Iterator[Nginx]:
    """Run an nginx that serves ``root`` while the block runs.

    Args:
        folder: The folder for its configuration and logs.
        root: The folder with the files to serve.
        extra: Directives of the http block.
        server: Directives of the server block.
    """
    if BINARY is None:
        unavailable("nginx", "nginx-light")
    port = free_port()
    configuration = CONFIGURATION.format(folder=folder, root=root, port=port, extra=extra, server=server)
    (folder / "nginx.conf").write_text(configuration, encoding="utf-8")
    command = [str(BINARY), "-e", f"{folder}/error.log", "-p", str(folder), "-c", f"{folder}/nginx.conf"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            wait_for(port, process)
            yield Nginx(port, folder)
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port that was free a moment ago, because nginx can't choose a free port itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until nginx listens on the port.

    Raises:
        RuntimeError: If it does not listen within START_WITHIN seconds, or has ended. The error has nginx's output.
    """
    deadline = time.monotonic() + START_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    process.terminate()
    raise RuntimeError(f"nginx did not start: {process.stderr.read().decode() if process.stderr else ''}")
