"""No control character of a page reaches the terminal: the real command on a real (pseudo) terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.net.badserver import Connection, serving

pty = pytest.importorskip("pty")

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[6n\x9b31m\u202e\x85forged"
"""Retitles the window, clears it, makes the terminal type, colours, turns text round, forges a line."""

SEQUENCES = ["\x1b]", "\x07", "\x1b[2J", "\x1b[6n", "\x9b", "\u202e", "\x85"]

SPIDER = """
import trawl

class Evil(trawl.Spider):
    name = "evil"
    url = ""

    async def start(self):
        for path in ("page", "reason", "location", "greeting", "coding", "retry", "raise"):
            yield trawl.Request(self.url + path, errback=None)

    def parse(self, response):
        title = response.css("title::text").get("")
        self.logger.warning("title: %s of %r with %r", title, response, response.headers)
        self.logger.warning(title)
        self.crawl.stats.inc("download_error_count/" + title)
        print(repr(title))
        if response.url.endswith("raise"):
            raise ValueError(title)
        yield {"title": title, title: 1}
        yield from response.follow_all(css="a")
        yield response.follow("/last", self.last)

    def last(self, response):
        raise trawl.CloseSpider(response.css("title::text").get(""))
"""

SETTINGS = ["DOWNLOAD_DELAY=0", "DOWNLOAD_DELAY_PER_SLOT=0", "RETRY_ENABLED=false", "BACKOFF_HTTP_CODES=[]"]
SETTINGS += ["BACKOFF_EXCEPTIONS=[]", "ROBOTSTXT_OBEY=false", "BACKOFF_GIVE_UP_AFTER=0.01"]


async def evil(connection: Connection) -> None:
    """Says it in every place that a server has."""
    path = connection.head.split(b" ")[1].decode()
    text = EVIL.encode()
    if path == "/greeting":
        await connection.send(text + b"\r\n\r\n")
    elif path == "/reason":
        await connection.send(b"HTTP/1.1 404 " + text + b"\r\nContent-Length: 0\r\n\r\n")
    elif path == "/location":
        await connection.send(b"HTTP/1.1 302 Found\r\nLocation: file:///" + text + b"\r\nContent-Length: 0\r\n\r\n")
    elif path == "/coding":
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + text + b"\r\n\r\n")
    elif path == "/retry":
        await connection.send(b"HTTP/1.1 429 No\r\nRetry-After: " + text + b"\r\nContent-Length: 0\r\n\r\n")
    else:
        body = b"<title>%b</title><a href='/%b'>a</a><a href='x%b:y'>b</a>" % (text, text, text)
        await connection.answer(
            body,
            "200 OK",
            "Content-Type: text/html; charset=utf-8",
            "X-Evil: \u202e\x85".encode("utf-8").decode("latin-1"),
        )


def shown(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit status and all that the terminal got."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    got = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                got += os.read(master, 65_536)
            except OSError:  # the last one has closed the terminal
                break
    os.close(master)
    return process.wait(), got.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize("level", ["INFO", pytest.param("DEBUG", marks=pytest.mark.sweep)])
async def test_a_page_says_nothing_to_the_terminal(tmp_path: Path, level: str) -> None:
    (tmp_path / "evil.py").write_text(SPIDER)
    async with serving(evil) as server:
        command = [sys.executable, "-m", "trawl", "crawl", "evil.py", "-a", f"url={server.url}", "--log-level", level]
        command += [part for setting in SETTINGS for part in ("-s", setting)] + ["-o", "-:csv"]
        status, text = await trio.to_thread.run_sync(shown, command, tmp_path)
    assert status in {0, 1}, text
    assert "owned" in text
    assert "forged" in text
    assert [sequence for sequence in SEQUENCES if sequence in text] == []
