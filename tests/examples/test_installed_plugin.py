"""examples/plugin, built and installed by pip, and used by a ``trawl`` of a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SPIDER = """
import trawl


class Pages(trawl.Spider):
    name = "pages"
    start_urls = ["PAGE"]

    def parse(self, response):
        yield {"url": response.url, "stamp": response.text}

    def closed(self, reason):
        print("tally", self.crawler.stats.get_value("parcel/200"))
"""
PROJECT = """
[tool.trawl]
DOWNLOADER_MIDDLEWARES = { parcel = 450 }
WATCHERS = { tally = 0 }
"""


class Page(BaseHTTPRequestHandler):
    """Answers with the stamp that a request came with."""

    def do_GET(self) -> None:
        body = (self.headers["X-Parcel"] or "none").encode()
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    """The URL of a page on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the plugin; nothing is asked of a network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), "./source"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def trawl(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in ``folder``, with what is installed in ``site``."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "trawl", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_pip_has_installed_acts_by_name(site: Path, page: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    (tmp_path / "pages.py").write_text(SPIDER.replace("PAGE", page), "utf-8")
    free = ("-s", "DOWNLOAD_DELAY=0", "-s", "DOWNLOAD_DELAY_PER_SLOT=0")
    feeds = ("-O", "seen.urls", "-O", "all.jsonl")
    done = trawl(site, tmp_path, "crawl", "pages.py", *feeds, "-s", "FRONTIER=counting", "--quiet", *free)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "tally 1\n")
    assert (tmp_path / "seen.urls").read_text("utf-8") == f"{page}\n"
    assert (tmp_path / "all.jsonl").read_text("utf-8") == f'{{"url":"{page}","stamp":"1"}}\n'


def test_its_word_is_one_of_the_commands_that_pip_has_installed(site: Path, tmp_path: Path) -> None:
    done = trawl(site, tmp_path, "parcel", "--name", "me")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a middleware, a format, a frontier, a watcher and a word, for me\n"
    assert trawl(tmp_path, tmp_path, "parcel").returncode == 2  # without it there is no such word
