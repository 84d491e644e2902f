"""Measures the cost of a request: ``python -m benchmarks.transport [--pages 4000] [--connections 64] [--tls]``.

It starts an nginx on loopback with one page of 5.5 kB (or its own server in another process if there is no nginx), and
requests the page in three ways: with the bare loop (Trio streams and httptools, without error handling, limits or
a pool), with ``Http11Transport``, and with ``HttpxTransport``. The three ways take turns for several rounds. The table
shows the medians of requests per second and of processor time, each with its ratio to the bare loop. It also shows the
task steps and I/O waits per request, which other programs on the machine do not affect. An instrument counts them in a
separate round.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import httptools
import trio

from trawl.http import Headers, Request
from trawl.transport import HttpxTransport, TransportSettings
from trawl.transport.base import Transport
from trawl.transport.http11 import Http11Transport

PAGE = b"<title>a page</title>" + b"<p>some text, some text, and a <a href='/'>link</a></p>\n" * 97
ROUNDS = 5
HEADERS = Headers({"User-Agent": "trawl", "Accept": "text/html,application/xhtml+xml", "Accept-Language": "en"})

NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000; default_type text/html;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{plain}; {tls} root {folder}; }}
}}
"""

Ask = Callable[[], Awaitable[None]]
"""Sends one request and reads its response."""

Taken = tuple[float, float]
"""Elapsed seconds, and seconds of processor time of this process."""

Bench = Callable[[str, ssl.SSLContext | None, int, int], Awaitable[Taken]]
"""Requests a URL a number of times over a number of connections."""


class Steps(trio.abc.Instrument):
    """Counts the steps of Trio."""

    def __init__(self) -> None:
        self.steps = self.waits = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task."""
        self.steps += 1

    def before_io_wait(self, timeout: float) -> None:
        """Count a wait for I/O."""
        self.waits += 1


async def timed(asks: list[Ask], pages: int) -> Taken:
    """Distribute ``pages`` requests among permanent workers, and return the time."""
    left = pages

    async def work(ask: Ask) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await ask()

    async with trio.open_nursery() as nursery:  # open all connections before the measurement
        for ask in asks:
            nursery.start_soon(ask)
    began, began_own = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for ask in asks:
            nursery.start_soon(work, ask)
    return time.perf_counter() - began, time.process_time() - began_own


class Sink:
    """The minimal protocol for httptools."""

    def __init__(self) -> None:
        self.is_done = False
        self.size = 0

    def on_body(self, body: bytes) -> None:
        """Count the bytes."""
        self.size += len(body)

    def on_message_complete(self) -> None:
        """Record that the response is complete."""
        self.is_done = True


async def bare(url: str, context: ssl.SSLContext | None, pages: int, connections: int) -> Taken:
    """Measure Trio streams with httptools."""
    host, _, port = url.split("/")[2].partition(":")
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    message = f"GET /page HTTP/1.1\r\nHost: {host}:{port}\r\n{fields}\r\n".encode()

    @asynccontextmanager
    async def asking() -> AsyncGenerator[Ask, None]:
        stream: trio.abc.Stream = await trio.open_tcp_stream(host, int(port))
        if context is not None:
            stream = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
        sink = Sink()
        parser = httptools.HttpResponseParser(sink)

        async def ask() -> None:
            await stream.send_all(message)
            while not sink.is_done:
                parser.feed_data(await stream.receive_some(65_536))
            if sink.size != len(PAGE):
                raise RuntimeError("a page of another size")
            sink.is_done, sink.size = False, 0

        try:
            yield ask
        finally:
            await trio.aclose_forcefully(stream)

    async def opened(asks: list[Ask], left: int) -> Taken:
        if not left:
            return await timed(asks, pages)
        async with asking() as ask:
            return await opened([*asks, ask], left - 1)

    return await opened([], connections)


async def through(transport: Transport, url: str, pages: int, connections: int) -> Taken:
    """Measure a transport."""

    async def ask() -> None:
        outcome = await transport.send(Request(url, headers=HEADERS), lambda: None)
        if outcome.response is None or len(outcome.response.body) != len(PAGE):
            raise RuntimeError(f"no page: {outcome.error or outcome.response}")

    try:
        return await timed([ask] * connections, pages)
    finally:
        await transport.aclose()


async def http11(url: str, context: ssl.SSLContext | None, pages: int, connections: int) -> Taken:
    """Measure trawl's own transport."""
    settings = TransportSettings(compression_enabled=False)
    return await through(Http11Transport(settings, ssl_context=context), url, pages, connections)


async def httpx(url: str, context: ssl.SSLContext | None, pages: int, connections: int) -> Taken:
    """Measure the transport that uses httpx's connections."""
    settings = TransportSettings(compression_enabled=False)
    return await through(HttpxTransport(settings, ssl_context=context), url, pages, connections)


def free_port() -> int:
    """Return a port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(tls: bool) -> Iterator[tuple[str, str, ssl.SSLContext | None]]:
    """Run a server. Yields the server's name, the page's URL, and the TLS context."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if binary is None and tls:
        raise SystemExit("TLS is measured with nginx, and there is none")
    context: ssl.SSLContext | None = None
    with tempfile.TemporaryDirectory() as name:
        folder, plain, secure, more = Path(name), free_port(), free_port(), ""
        folder.chmod(0o755)
        (folder / "page").write_bytes(PAGE)
        if tls:
            import trustme  # noqa: PLC0415 - only needed for TLS

            authority = trustme.CA()
            authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "cert.pem"))
            context = ssl.create_default_context()
            authority.configure_trust(context)
            pem = f"{folder}/cert.pem"
            more = f"listen 127.0.0.1:{secure} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};"
        (folder / "conf").write_text(NGINX.format(folder=folder, plain=plain, tls=more))
        command = [binary, "-e", f"{folder}/error.log", "-c", f"{folder}/conf"] if binary else _own_server(plain)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(plain)
                url = f"https://127.0.0.1:{secure}/page" if tls else f"http://127.0.0.1:{plain}/page"
                yield ("nginx" if binary else "a server of our own"), url, context
            finally:
                process.terminate()


def _wait_for(port: int) -> None:
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit("the server did not start")


def _own_server(port: int) -> list[str]:
    return [sys.executable, "-c", f"import benchmarks.transport as b; b.serve({port})"]


def serve(port: int) -> None:
    """Serve the page with Trio until killed."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE

    async def handle(stream: trio.SocketStream) -> None:
        received = b""
        async for data in stream:
            received += data
            while b"\r\n\r\n" in received:
                received = received.partition(b"\r\n\r\n")[2]
                await stream.send_all(answer)

    async def main() -> None:
        await trio.serve_tcp(handle, port, host="127.0.0.1")

    trio.run(main)


BENCHES: dict[str, Bench] = {"bare loop": bare, "Http11Transport": http11, "HttpxTransport": httpx}


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pages", type=int, default=4_000)
    options.add_argument("--connections", type=int, default=64)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--tls", action="store_true")
    given = options.parse_args()
    with serving(given.tls) as (server, url, context):
        taken: dict[str, list[Taken]] = {name: [] for name in BENCHES}
        for _ in range(given.rounds):
            for name, bench in BENCHES.items():
                taken[name].append(trio.run(bench, url, context, given.pages, given.connections))
        wire = "TLS" if given.tls else "plain"
        print(f"{server}, {wire}, {given.connections} connections, {given.pages} pages a round")
        print(f"{'':18}{'requests/s':>12}{'ratio':>7}{'own us':>8}{'ratio':>7}{'steps':>7}{'waits':>7}")
        reference = medians(taken["bare loop"])
        for name, bench in BENCHES.items():
            (seconds, own), steps = medians(taken[name]), Steps()
            trio.run(bench, url, context, given.pages, given.connections, instruments=[steps])
            sent = given.pages + given.connections
            print(
                f"{name:18}{given.pages / seconds:12,.0f}{reference[0] / seconds:7.2f}"
                f"{own / given.pages * 1e6:8.0f}{reference[1] / own:7.2f}"
                f"{steps.steps / sent:7.2f}{steps.waits / sent:7.2f}"
            )


def medians(taken: list[Taken]) -> Taken:
    """Return the medians of both times."""
    return median(seconds for seconds, _ in taken), median(own for _, own in taken)


if __name__ == "__main__":
    main()
