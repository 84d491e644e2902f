"""A job with an open page in a real Chromium that is stopped by Ctrl-C or killed, and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.rendering import PATH, wanted
from trawl.browser.devtools import PROFILE

pytestmark = pytest.mark.servers

SPIDER = """import trawl

class Shop(trawl.Spider):
    name = "shop"

    async def start(self):
        yield trawl.Request("http://127.0.0.1:{port}/", meta={{"browser": trawl.Page(wait_for="h1")}})

    def parse(self, response):
        yield {{"title": response.css("h1::text").get()}}
"""

PAGE = b"""<body><script>fetch('/api').then(r => r.text()).then(t => {
const h = document.createElement('h1'); h.textContent = t; document.body.append(h) })</script></body>"""


class Site(ThreadingHTTPServer):
    """Serves a page. The first response to its own request is delayed until ``released``."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Responds with the page or its data."""

    def do_GET(self) -> None:
        """Respond."""
        body = PAGE
        if self.path == "/api":
            body = b"ready"
            assert isinstance(self.server, Site)
            self.server.asked.set()
            self.server.released.wait(120)
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/plain" if self.path == "/api" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site
    site.shutdown()
    site.server_close()


def left(pid: int) -> list[str]:
    """Return the processes of the Chromium of a process."""
    mark, found = f"{PROFILE}{pid}-".encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_stopped_with_an_open_page_renders_it_once(tmp_path: Path, number: signal.Signals) -> None:
    """Rows: the first Ctrl-C; Python is killed."""
    wanted()
    with serving() as site:
        (tmp_path / "shop.py").write_text(SPIDER.format(port=site.server_address[1]))
        words = ["-s", f"JOB_DIR={tmp_path}/job", "-s", "BROWSER_SANDBOX=False", "-s", f"BROWSER_PATH={PATH}"]
        command = [sys.executable, "-m", "trawl", "crawl", "shop.py", "-o", "items.jsonl", "-q", *words]
        with subprocess.Popen(command, cwd=tmp_path) as first:
            try:
                assert site.asked.wait(120)
                first.send_signal(number)
                if number == signal.SIGKILL:
                    first.wait()
                site.released.set()
                first.wait(120)
            finally:
                first.kill()
        until = time.monotonic() + 120
        while left(first.pid):
            assert time.monotonic() < until
            time.sleep(0.05)
        subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    items = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert items == [{"title": "ready"}]
