"""``trawl demo``, as a process that a user starts and stops."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from trawl.cli import main
from trawl.http import Request
from trawl.testing.demo import DemoSite


@contextmanager
def demo(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port, and its URL."""
    command = [sys.executable, "-m", "trawl", "demo", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            yield server, next(word for word in line.split() if word.startswith("http"))
        finally:
            server.kill()


@contextmanager
def connected(url: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with closing(connection):
        yield connection


def got(connection: http.client.HTTPConnection, path: str, **options: object) -> tuple[int, bytes]:
    connection.request("GET", path, **options)  # type: ignore[arg-type]
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_the_site_until_a_signal_and_ends_well(number: int) -> None:
    site = DemoSite(lambda: 0.0)
    with demo() as (server, url), connected(url) as connection:
        for path in (
            "/",
            "/page/10/",
            "/tag/love/",
            "/author/Emily-Bronte",
            "/api/quotes?page=2",
            "/sitemap.xml",
            "/no",
        ):
            expected = site(Request(f"{url.rstrip('/')}{path}"))
            assert got(connection, path) == (expected.status, expected.body)
        connection.request("GET", "/trouble/hang")
        server.send_signal(number)
        assert server.wait(60) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""


def test_a_body_is_cut_off_a_page_is_slow_and_a_head_has_no_body() -> None:
    with demo("--verbose") as (server, url):
        with connected(url) as connection, pytest.raises(http.client.IncompleteRead):
            got(connection, "/trouble/cut")
        with connected(url) as connection:
            assert got(connection, "/slow?seconds=0.01")[0] == 200
            connection.request("HEAD", "/")
            assert connection.getresponse().read() == b""
            assert got(connection, "/robots.txt", headers={"Content-Length": "70000"})[0] == 413
        server.terminate()
        assert server.stderr is not None
        assert '"GET /trouble/cut HTTP/1.1" 200 -\n' in server.stderr.read()


def test_a_port_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["demo", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert said == f"trawl: port {port} of 127.0.0.1 is taken; use another --port, or 0 for a free port\n"


def test_an_address_of_another_machine_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--bind", "192.0.2.1", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert said == "trawl: 192.0.2.1 is not an address of this machine; omit --bind for 127.0.0.1\n"


def test_a_crawl_does_not_load_it() -> None:
    program = "import sys; import trawl._run, trawl.cli.crawl; print([n for n in sys.modules if 'demo' in n])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout == "[]\n"
