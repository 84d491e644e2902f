"""A site for browsers: ``rendered_site.py``. Its pages need a style, two scripts and one JSON each.

It prints its port, and after a line on standard input the times of all requests by host, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Running", "serving"]

FILLER = "<p>" + "lorem ipsum dolor sit amet consectetur " * 60 + "</p>"

APP = """(async () => {
  const list = await (await fetch('/api/' + document.body.dataset.page)).json();
  const ul = document.createElement('ul');
  for (const each of list) {
    const li = document.createElement('li');
    li.className = 'item';
    li.textContent = each.title + ' ' + each.price;
    ul.appendChild(li);
  }
  document.body.appendChild(ul);
})(); /* """

PAGE = """<!doctype html><html><head><title>page {number}</title><link rel=stylesheet href=/style.css>
<script src=http://127.0.0.2:{port}/lib.js></script></head><body data-page={number}><h1>Page {number}</h1>{filler}
<img src=/1.png><img src=/2.png><script src=/app.js></script></body></html>"""

FILES = {
    "/app.js": ("text/javascript", f"{APP}{'x' * 60_000} */"),
    "/lib.js": ("text/javascript", f"window.lib = 1; /* {'y' * 80_000} */"),
    "/style.css": ("text/css", f".item {{color: #333}} /* {'z' * 10_000} */"),
    "/robots.txt": ("text/plain", ""),
}

SEEN: dict[str, list[tuple[float, str]]] = defaultdict(list)


class Handler(BaseHTTPRequestHandler):
    """Responds with a page, its data or a file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Respond."""
        SEEN[self.headers["Host"]].append((time.monotonic(), self.path))
        number, cached = self.path.rpartition("/")[2], ""
        if self.path.startswith("/page/"):
            kind, text = "text/html", PAGE.format(number=number, port=self.request.getsockname()[1], filler=FILLER)
        elif self.path.startswith("/api/"):
            items = [{"title": f"Item {number}-{each}", "price": each} for each in range(10)]
            kind, text = "application/json", json.dumps(items)
        else:
            kind, text = FILES.get(self.path, ("image/png", ""))
            cached = "public, max-age=3600"
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if cached:
            self.send_header("Cache-Control", cached)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Running:
    """The running site.

    Attributes:
        port: Its port.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._read())

    def seen(self) -> dict[str, list[tuple[float, str]]]:
        """Return the times and paths of all requests since the last call, by host."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, list[tuple[float, str]]] = json.loads(self._read())
        return found

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def serving() -> Iterator[Running]:
    """Run the site in its own process, so that its processor time is not measured."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def main() -> None:
    """Serve until standard input ends."""
    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for _ in sys.stdin:
        print(json.dumps(SEEN), flush=True)
        SEEN.clear()


if __name__ == "__main__":
    main()
