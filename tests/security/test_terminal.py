"""No control character of a page reaches the terminal: the real command on a real (pseudo) terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tests.net.badserver import Connection, serving
from trawl.cli.shell import _Console, _with_colors
from trawl.observe import printable

pty = pytest.importorskip("pty")

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[6n\x9b31m\u202e\x85forged"
"""Retitles the window, clears it, makes the terminal type, colours, turns text round, forges a line."""

ALL = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x2070))]
ALL += ["\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\ufff9", "\ufffa", "\ufffb", "\U000e0001", "\udc80"]

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

OTHER = """
import warnings

class Other(Evil):
    name = "other"

    def parse(self, response):
        title = response.css("title::text").get("")
        warnings.warn("warned of " + title)
        yield {"title": title, "fields": dict(response.headers)}
        yield trawl.Request(self.url + "next", cb_kwargs={"title": title}, meta={"title": title}, callback=self.last)

    def last(self, response, title):
        raise trawl.IgnoreRequest(title)
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
@pytest.mark.long
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


def test_every_control_character_is_escaped() -> None:
    assert [character for character in ALL if printable(character).isprintable() is False] == []
    kept = printable("".join(ALL), keeps_lines=True)
    assert {character for character in kept if not character.isprintable()} == {"\t", "\n"}


FAST = ["-a", "url=URL", *(part for setting in SETTINGS for part in ("-s", setting))]
COMMANDS = [
    ["fetch", "URLpage"],
    ["fetch", "URLpage", "--headers"],
    ["parse", "URLpage", "--spider", "evil.py:Other"],
    ["shell", "URLpage", "-c", "response.text"],
    ["shell", "URLpage", "-c", "int(response.css('title::text').get())"],
    ["crawl", "evil.py:Evil", *FAST, "--stats", "-"],
    ["crawl", "evil.py:Other", *FAST, "-o", "-:xml"],
]


@pytest.mark.sweep
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2] + command[-1:]))
async def test_no_command_lets_a_page_say_anything_to_the_terminal(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "evil.py").write_text(SPIDER + OTHER)
    async with serving(evil) as server:
        words = [sys.executable, "-m", "trawl", *(word.replace("URL", server.url) for word in command)]
        status, text = await trio.to_thread.run_sync(shown, words, tmp_path)
    assert status in {0, 1}, text
    assert [sequence for sequence in SEQUENCES if sequence in text] == []


def test_no_traceback_of_a_session_says_anything_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    session: Any = SimpleNamespace(names={}, run=exec)
    _Console(session).push(f"raise ValueError({EVIL!r})")
    text = capsys.readouterr().err + _with_colors(f"\x1b[31mValueError\x1b[0m: {EVIL}")
    assert text.count("owned") == 2
    assert "\x1b[31mValueError\x1b[0m: " in text  # IPython's own colours
    assert [sequence for sequence in SEQUENCES if sequence in text] == []
