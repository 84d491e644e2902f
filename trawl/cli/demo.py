"""The command ``trawl demo``: serves the site of :mod:`trawl.testing.demo` on this machine until Ctrl-C.

It uses the HTTP server of Python's standard library, with a thread for each connection. Do not expose it to an open
network.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6, gaierror
from socketserver import ThreadingTCPServer
from urllib.parse import quote

from trawl.errors import UsageError
from trawl.http import Request
from trawl.observe import printable
from trawl.testing.demo import DemoSite
from trawl.testing.hosts import SimulatedResponse

__all__ = ["demo_command"]

LARGEST_BODY_BYTES = 65_536
IDLE = 75.0  # maximum seconds that a connection may be idle


def demo_command(bind: str, port: int, *, is_verbose: bool) -> None:
    """Serve the site until Ctrl-C or SIGTERM. Port 0 selects a free port."""
    with _ended_by_sigterm():
        try:
            server = DemoServer(bind, port, is_verbose=is_verbose)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", 0)
            if isinstance(error, gaierror) or number == errno.EADDRNOTAVAIL:
                raise UsageError(f"{bind} is not an address of this machine; omit --bind for 127.0.0.1") from error
            why = "is taken" if number == errno.EADDRINUSE else f"can't be listened on ({error})"
            raise UsageError(f"port {port} of {bind} {why}; use another --port, or 0 for a free port") from error
        with server:
            print(f"a site of quotes and books is at {server.url} until Ctrl-C", flush=True)
            server.serve_forever()


class DemoServer(ThreadingTCPServer):
    """A server for the site. Its socket listens as soon as the server is created. ``url`` is the first page's."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, bind: str, port: int, *, is_verbose: bool = False) -> None:
        self.address_family: int = AF_INET6 if ":" in bind else AF_INET
        self.is_verbose: bool = is_verbose
        self.site: DemoSite = DemoSite(time.monotonic)
        self.one_at_a_time: threading.Lock = threading.Lock()  # the site has state
        self.closed: threading.Event = threading.Event()
        super().__init__((bind, port), _Handler)
        name = f"[{bind}]" if ":" in bind else bind
        self.url: str = f"http://{name}:{self.server_address[1]}/"

    def server_close(self) -> None:
        """Close the socket, and end all waits."""
        self.closed.set()
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print an error, except for errors of clients that closed their connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """Handles one connection, in its own thread."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE
    wbufsize = -1  # write head and body together
    disable_nagle_algorithm = True
    server: DemoServer

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > LARGEST_BODY_BYTES:
            self.close_connection = True
            self._send(SimulatedResponse(413, "a body of this kind or size is not accepted\n"))
            return
        url = f"http://{self.headers.get('Host') or self.server.url[7:-1]}{quote(self.path, safe='/?&=%+;,:@!$()*~')}"
        try:
            request = Request(url, method=self.command, headers=self.headers.items(), body=self.rfile.read(int(length)))
        except ValueError as error:
            self.close_connection = True
            self._send(SimulatedResponse(400, f"{error}\n"))
            return
        with self.server.one_at_a_time:
            answer = self.server.site(request)
        self.server.closed.wait(answer.latency)
        self._send(answer)

    do_HEAD = do_POST = do_GET

    def _send(self, answer: SimulatedResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        body = answer.body
        if answer.error is not None:
            body = body[: len(body) // 2]
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def version_string(self) -> str:
        return "trawl-demo"

    def log_message(self, format: str, *arguments: object) -> None:
        if self.server.is_verbose:
            print(printable(format % arguments), file=sys.stderr, flush=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Leave the block at the first SIGTERM or Ctrl-C."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
