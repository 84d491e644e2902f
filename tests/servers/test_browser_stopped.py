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
from typing import Any

import pytest

from tests.servers.rendering import PATH, wanted
from trawl.browser.devtools import PROFILE

pytestmark = pytest.mark.servers

SHOP = """
    async def start(self):
        yield trawl.Request(SITE, meta={"browser": trawl.Page(wait_for="h1")})

    def parse(self, response):
        yield {"title": response.css("h1::text").get()}
"""

ACCOUNT = """
    async def start(self):
        page = trawl.Page(run="log_in")
        yield trawl.Request(SITE + "login", self.logged_in, meta={"session": "anna", "browser": page})

    async def log_in(self, page):
        await page.click("button")
        await page.wait_for("h2")

    def logged_in(self, response):
        yield {"login": response.css("h2::text").get()}
        yield trawl.Request(SITE, meta={"session": "anna", "browser": trawl.Page(wait_for="h1")})

    def parse(self, response):
        yield {"title": response.css("h1::text").get()}
"""

PAGE = b"""<body><script>fetch('/api').then(r => r.text()).then(t => {
const h = document.createElement('h1'); h.textContent = t; document.body.append(h) })</script></body>"""

LOGIN = b"""<body><button>log in</button><script>document.querySelector('button').onclick = async () => {
const r = await fetch('/cookie', {method: 'POST'}); document.cookie = 'dark=yes';
const h = document.createElement('h2'); h.textContent = r.status; document.body.append(h) }</script></body>"""


class Site(ThreadingHTTPServer):
    """Serves pages. The first response to the request of the first page is delayed until ``released``."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Responds with a page, its data or a cookie."""

    server: Any

    def do_GET(self) -> None:
        """Respond."""
        self.server.paths.append(self.path)
        body = LOGIN if self.path == "/login" else PAGE
        if self.path == "/api":
            cookies = sorted(self.headers.get("Cookie", "").split("; "))
            body = " ".join(["ready", *cookies]).strip().encode()
            self.server.asked.set()
            self.server.released.wait(120)
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/plain" if self.path == "/api" else "text/html")
        if self.path == "/cookie":
            self.send_header("Set-Cookie", "sid=7; HttpOnly; SameSite=Strict")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

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


def stopped_and_resumed(folder: Path, methods: str, number: signal.Signals, site: Site) -> list[Any]:
    """Stop a job while its page waits for a request, and resume it. Returns its items."""
    wanted()
    head = f'import trawl\nSITE = "http://127.0.0.1:{site.server_address[1]}/"\n\nclass Shop(trawl.Spider):\n'
    (folder / "shop.py").write_text(f'{head}    name = "shop"\n{methods}')
    values = [f"JOB_DIR={folder}/job", "BROWSER_SANDBOX=False", f"BROWSER_PATH={PATH}", "DOWNLOAD_DELAY_PER_SLOT=0"]
    command = [sys.executable, "-m", "trawl", "crawl", "shop.py", "-o", "items.jsonl", "-q"]
    command += [word for value in values for word in ("-s", value)]
    with subprocess.Popen(command, cwd=folder) as first:
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
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_stopped_with_an_open_page_renders_it_once(tmp_path: Path, number: signal.Signals) -> None:
    """Rows: the first Ctrl-C; Python is killed."""
    with serving() as site:
        assert stopped_and_resumed(tmp_path, SHOP, number, site) == [{"title": "ready"}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_job_keeps_the_login_that_a_page_of_its_session_has_made(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving() as site:
        items = stopped_and_resumed(tmp_path, ACCOUNT, number, site)
        assert items == [{"login": "200"}, {"title": "ready dark=yes sid=7"}]
        assert (site.paths.count("/login"), site.paths.count("/cookie")) == (1, 1)
