"""Processes that share a job in a real server, while they and the server are killed: nothing lost, twice or early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from tests.servers.stores import StoreProcess, running_store

pytestmark = pytest.mark.servers

HOSTS, PAGES = 8, 110
DELAY = 0.2
LEASE = 4.0
PATIENCE = 60.0
"""Seconds within which all is over."""

SPIDER = f"""
import trawl

class Shop(trawl.Spider):
    name = "shop"

    def __init__(self, port):
        super().__init__()
        self.start_urls = [f"http://127.0.0.{{n}}:{{port}}/0" for n in range(1, {HOSTS} + 1)]

    def parse(self, response):
        yield {{"url": response.url}}
        yield from response.follow_all(css="a")
"""
SETTINGS = [
    *("ALLOW_PRIVATE_ADDRESSES=true", "ROBOTSTXT_OBEY=false", f"DOWNLOAD_DELAY={DELAY}", "DOWNLOAD_DELAY_PER_SLOT=0"),
    *("RANDOMIZE_DOWNLOAD_DELAY=false", f"JOB_LEASE={LEASE}", "RETRY_TIMES=0"),
]
NOISE = 0.04
"""Seconds by which the site, a thread a request on a busy machine, may see a gap shorter than it was."""


class Site(BaseHTTPRequestHandler):
    """Linked pages, on as many addresses of this machine as are asked for; knows when each was asked."""

    protocol_version = "HTTP/1.1"
    asked: dict[str, list[float]]
    under_way: dict[str, int]
    most: dict[str, int]
    lock = threading.Lock()

    def do_GET(self) -> None:
        host = self.headers["Host"]
        with self.lock:
            self.asked[host].append(time.monotonic())
            self.under_way[host] += 1
            self.most[host] = max(self.most[host], self.under_way[host])
        number = int(self.path.lstrip("/"))
        places = [f"/{each}" for each in (2 * number + 1, 2 * number + 2) if each < PAGES]
        body = "".join(f'<a href="{each}">x</a>' for each in [*places, "/0"]).encode()
        with self.lock:
            self.under_way[host] -= 1
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        with suppress(OSError):  # who asked was killed
            self.end_headers()
            self.wfile.write(body)

    def handle(self) -> None:
        """Answer until the connection ends, by whatever end."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[tuple[int, type[Site]]]:
    """The site, on all loopback addresses."""
    kind = type(
        "ThisSite", (Site,), {"asked": defaultdict(list), "under_way": defaultdict(int), "most": defaultdict(int)}
    )
    server = ThreadingHTTPServer(("0.0.0.0", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port, kind
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Processes:
    """Runs of the command on one job."""

    def __init__(self, folder: Path, store: StoreProcess, port: int, stack: ExitStack) -> None:
        self.folder = folder
        self.feed = folder / "items.jsonl"
        self._url = store.url("shop")
        self._port = port
        self._stack = stack
        self._count = 0
        (folder / "shop.py").write_text(SPIDER, "utf-8")

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start one."""
        options = [word for setting in SETTINGS for word in ("-s", setting)]
        command = [sys.executable, "-m", "trawl", "crawl", "shop.py", "-a", f"port={self._port}", "--job", self._url]
        self._count += 1
        log = self._stack.enter_context((self.folder / f"log-{self._count}").open("wb"))
        process = subprocess.Popen([*command, *options, *more], cwd=self.folder, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def first(self) -> subprocess.Popen[bytes]:
        """Start the one that writes the feed."""
        return self.start("-o", str(self.feed))

    def until_joined(self) -> None:
        """Wait until the one that was started last has joined, so that it hears signals as a crawl does."""
        until = time.monotonic() + PATIENCE
        while "takes its share" not in self.log():
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)

    def log(self, number: int | None = None) -> str:
        """What one has said; None: the last one."""
        return (self.folder / f"log-{number or self._count}").read_text("utf-8")

    def wait_for(self, count: int, site: type[Site]) -> None:
        """Wait until so many more requests have come to the site."""
        until = time.monotonic() + PATIENCE
        since = sum(map(len, site.asked.values()))
        while sum(map(len, site.asked.values())) < since + count:
            assert time.monotonic() < until, "nothing is sent any more"
            time.sleep(0.02)


def test_nothing_is_lost_twice_or_early_while_processes_and_the_server_are_killed(tmp_path: Path) -> None:
    with serving() as (port, site), running_store("redis", tmp_path) as store, ExitStack() as stack:
        processes = Processes(tmp_path, store, port, stack)
        first = processes.first()
        processes.wait_for(20, site)
        second = processes.start()
        processes.until_joined()
        processes.wait_for(30, site)
        second.kill()
        third = processes.start()
        processes.until_joined()
        processes.wait_for(30, site)
        store.kill()
        store.start()
        processes.wait_for(30, site)
        third.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE)  # as long as it takes others to go on in its place
        third.send_signal(signal.SIGCONT)
        fourth = processes.start()
        processes.until_joined()
        processes.wait_for(30, site)
        fourth.send_signal(signal.SIGINT)
        assert fourth.wait(PATIENCE) == 130, processes.log()  # stopped by Ctrl-C
        assert first.wait(PATIENCE) == 0, processes.log(1)
        urls = [json.loads(line)["url"] for line in processes.feed.read_text("utf-8").splitlines()]
        assert sorted(urls) == sorted(
            f"http://127.0.0.{host}:{port}/{page}" for host in range(1, HOSTS + 1) for page in range(PAGES)
        )
        for host, times in site.asked.items():
            assert min(later - earlier for earlier, later in pairwise(times)) >= DELAY - NOISE, host
        assert max(site.most.values()) == 1
        again = sum(map(len, site.asked.values())) - len(urls)
        assert again <= 4 * HOSTS  # what was under way at each of the four ends
