"""examples/transport.py, run as its documentation says, against the standard library's own server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from examples.transport import AT_ONCE, check


class Site(ThreadingHTTPServer):
    """Counts its connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """``/NUMBER`` is that many bytes; anything else leads to ``/7``."""

    server: Site
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = b"x" * int(self.path[1:]) if self.path[1:].isdecimal() else b""
        self.send_response(200 if body else 302)
        if not body:
            self.send_header("Location", "/7")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Site]:
    with Site() as site:
        thread = Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


def test_it_prints_a_line_a_page(examples: Path) -> None:
    with serving() as site:
        pages = [f"{site.url}/100000", f"{site.url}/moved", "http://127.0.0.1:1/"]
        command = [sys.executable, str(examples / "transport.py"), *pages]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"200 100000 {pages[0]}",
        f"200 7 {pages[1]}",
        "ConnectError http://127.0.0.1:1/: no connection: Connection refused",
    ]


@pytest.mark.parametrize("pages", [1, 10 * AT_ONCE])
async def test_few_connections_serve_many_pages(pages: int) -> None:
    with serving() as site:
        lines = await check([f"{site.url}/{number}" for number in range(1, pages + 1)])
        assert lines == [f"200 {number} {site.url}/{number}" for number in range(1, pages + 1)]
        assert site.connections <= AT_ONCE
