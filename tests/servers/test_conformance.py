"""Side by side with stock httpx against servers that others have written: nginx, and httpbin under wsgiref.

Three ways ask for the same: httpx over its own transport, httpx over ours, and the crawl's transport. What a client can
see of the answers is the same: status, fields, body; or the kind of error.
"""

from __future__ import annotations

import gzip
import random
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest
import trio
import trustme

from tests.servers.nginx import free_port, running, unavailable
from trawl.errors import ConnectFailed, DownloadError, ResponseBroken
from trawl.http import Headers, Request
from trawl.transport import HTTP11Transport, TransportRouter, TransportSettings

pytestmark = pytest.mark.servers

LIMIT = 30.0
"""Seconds that one answer may take: a bound for a machine that is busy, nothing to measure."""

CHANGING = {"date", "etag", "expires"}
"""Fields that differ from one answer to the next."""

FIELDS = {"Connection": "keep-alive", "User-Agent": "trawl", "Accept": "*/*"}

Ask = dict[str, Any]
"""What is asked: ``path``, and if wanted ``method``, ``headers``, ``content``."""

KINDS: list[tuple[type[Exception], type[DownloadError]]] = [
    (httpx.ConnectError, ConnectFailed),
    (httpx.RemoteProtocolError, ResponseBroken),
    (httpx.ReadError, ResponseBroken),
]
"""httpx's errors and ours."""


def facts(status: int, fields: list[tuple[str, str]], body: bytes) -> tuple[object, ...]:
    kept = sorted((name.lower(), value) for name, value in fields if name.lower() not in CHANGING)
    if body.startswith(b"\x1f\x8b"):  # gzip notes the time (RFC 1952, 2.3.1)
        body = body[:4] + bytes(4) + body[8:]
    return status, kept, body


async def by_httpx(transport: httpx.AsyncBaseTransport, base: str, asks: list[Ask]) -> list[object]:
    """What a client of httpx sees: raw bodies, one connection after another."""
    seen: list[object] = []
    async with httpx.AsyncClient(transport=transport, timeout=LIMIT, trust_env=False) as client:
        for ask in asks:
            options = {**ask, "headers": {**FIELDS, "Accept-Encoding": "identity", **ask.get("headers", {})}}
            path, method = options.pop("path"), options.pop("method", "GET")
            try:
                async with client.stream(method, base + path, **options) as response:
                    body = b"".join([piece async for piece in response.aiter_raw()])
                fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
                seen.append(facts(response.status_code, fields, body))
            except httpx.HTTPError as error:
                seen.append(type(error))
    return seen


async def by_trawl(trusted: ssl.SSLContext | None, base: str, asks: list[Ask]) -> list[object]:
    """What the crawl's transport gives, bodies undecoded."""
    wire = TransportRouter(TransportSettings(compression_enabled=False, download_timeout=LIMIT), ssl_context=trusted)
    seen: list[object] = []
    for ask in asks:
        headers = Headers({**FIELDS, "Accept-Encoding": "identity", **ask.get("headers", {})})
        request = Request(base + ask["path"], method=ask.get("method", "GET"), headers=headers, body=ask.get("content"))
        outcome = await wire.send(request, lambda: None)
        if outcome.response is None:
            seen.append(next((theirs for theirs, ours in KINDS if isinstance(outcome.error, ours)), outcome.error))
        else:
            response = outcome.response
            seen.append(facts(response.status, response.headers.items_list(), response.body))
    await wire.aclose()
    return seen


async def compared(base: str, asks: list[Ask], trusted: ssl.SSLContext | None = None) -> list[Any]:
    """Ask all three; their answers are the same."""
    verify = True if trusted is None else trusted
    theirs = await by_httpx(httpx.AsyncHTTPTransport(verify=verify), base, asks)
    for seen in (
        await by_httpx(HTTP11Transport(verify=verify), base, asks),
        await by_trawl(trusted, base, asks),
    ):
        for ask, expected, found in zip(asks, theirs, seen, strict=True):
            assert found == expected, ask
    return theirs


PAGE = b"<p>a page</p>\n" * 500
LARGE = random.Random(0).randbytes(3_000_000)

NGINX: list[Ask] = [
    {"path": "/page.html"},
    {"path": "/page.html", "method": "HEAD"},
    {"path": "/page.html?q=%20a&b=c#top"},
    {"path": "/page.html", "headers": {"Accept-Encoding": "gzip"}},  # in chunks
    {"path": "/page.html", "method": "HEAD", "headers": {"Accept-Encoding": "gzip"}},
    {"path": "/ready.html", "headers": {"Accept-Encoding": "gzip"}},  # compressed beforehand: with a length
    {"path": "/empty.html"},
    {"path": "/large.bin"},
    {"path": "/large.bin", "method": "HEAD"},
    {"path": "/large.bin", "headers": {"Range": "bytes=10-19"}},
    {"path": "/large.bin", "headers": {"Range": "bytes=99999999-"}},
    {"path": "/page.html", "headers": {"If-None-Match": "*"}},
    {"path": "/missing"},
    {"path": "/missing", "method": "HEAD"},
    {"path": "/folder"},
    {"path": "/page.html", "method": "POST", "content": b"x" * 100_000},
    {"path": "/page.html", "method": "DELETE"},
    {"path": "/page.html", "method": "OPTIONS"},
    {"path": "/page.html", "method": "TRACE"},
    {"path": "/page.html", "headers": {"Connection": "close"}},
    {"path": "/204"},
    {"path": "/444"},
    {"path": "/page.html"},
    {"path": "/upload", "method": "PUT", "content": b"x" * 2_000_000, "headers": {"Expect": "100-continue"}},
    {"path": "/page.html", "headers": {"X-Long": "x" * 50_000}},
    {"path": "/many"},
    {"path": "/" + "x" * 10_000},
    {"path": "/page.html"},
]

SERVER = """
        gzip_min_length 1;
        location /204 { return 204; }
        location /444 { return 444; }
        location /upload { client_max_body_size 1m; return 405; }
        location /many { add_header X-A b; add_header X-A c; add_header Set-Cookie a=b; return 200 "many"; }
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    (folder / "folder").mkdir()
    for name, content in (("page.html", PAGE), ("ready.html", PAGE), ("empty.html", b""), ("large.bin", LARGE)):
        (folder / name).write_bytes(content)
    (folder / "ready.html.gz").write_bytes(gzip.compress(PAGE))
    return folder


async def test_nginx_says_the_same_to_all(root: Path, tmp_path: Path) -> None:
    with running(tmp_path, root, server=SERVER) as nginx:
        seen = await compared(f"http://{nginx.host}", NGINX)
    statuses = [fact[0] if isinstance(fact, tuple) else fact for fact in seen]
    assert statuses[:10] == [200, 200, 200, 200, 200, 200, 200, 200, 200, 206]
    assert {301, 304, 404, 405, 416} <= set(statuses)
    assert httpx.RemoteProtocolError in statuses
    assert seen[3][2] != seen[0][2]


async def test_nginx_over_tls_says_the_same_to_all(root: Path, tmp_path: Path) -> None:
    authority, port = trustme.CA(), free_port()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "cert.pem"))
    pem = f"{tmp_path}/cert.pem"
    tls = f"listen 127.0.0.1:{port} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};"
    trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode("ascii"))
    with running(tmp_path, root, server=SERVER + tls) as nginx:
        await compared(f"https://127.0.0.1:{port}", NGINX, trusted)
        assert await compared(f"https://{nginx.host}", [{"path": "/"}], trusted) == [httpx.ConnectError]


async def test_a_connection_that_nginx_has_had_enough_of_is_replaced(root: Path, tmp_path: Path) -> None:
    with running(tmp_path, root, server="keepalive_timeout 1h; keepalive_requests 3;") as nginx:
        seen = await compared(f"http://{nginx.host}", [{"path": "/page.html"}] * 10)
    assert [fact[0] for fact in seen] == [200] * 10


HTTPBIN: list[Ask] = [
    *({"path": f"/status/{status}"} for status in (200, 204, 301, 304, 400, 401, 404, 418, 429, 500, 503)),
    *({"path": f"/status/{status}", "method": "HEAD"} for status in (200, 404)),
    *({"path": "/anything/a%2Fb?x=%C3%A9&y=1&y=2", "method": method} for method in ("GET", "DELETE", "PATCH")),
    *({"path": f"/{name}"} for name in ("get", "gzip", "deflate", "brotli", "json", "xml", "html", "robots.txt")),
    {"path": "/encoding/utf8"},
    {"path": "/image/png"},
    {"path": "/headers", "headers": {"X-A": "b", "Cookie": "a=b; c=d"}},
    {"path": "/post", "method": "POST", "content": b"a=b&c=d"},
    {"path": "/put", "method": "PUT", "content": bytes(range(256)) * 100},
    {"path": "/bytes/100000?seed=1"},
    {"path": "/stream/20"},
    {"path": "/stream-bytes/50000?seed=1&chunk_size=1000"},
    {"path": "/range/1000", "headers": {"Range": "bytes=10-99"}},
    {"path": "/drip?duration=0&numbytes=20&code=200&delay=0"},
    {"path": "/cookies/set?a=b&c=d"},
    {"path": "/response-headers?X-A=b&X-A=c"},
    {"path": "/redirect/2"},
    {"path": "/absolute-redirect/1"},
    {"path": "/basic-auth/me/secret"},
    {"path": "/basic-auth/me/secret", "headers": {"Authorization": "Basic bWU6c2VjcmV0"}},
]


class Quiet(WSGIRequestHandler):
    """Keeps no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Threaded(ThreadingMixIn, WSGIServer):
    """A thread a connection."""

    daemon_threads = True


@pytest.fixture(scope="module")
def httpbin() -> Iterator[str]:
    try:
        from httpbin import app
    except ImportError:
        unavailable("httpbin", "pip install httpbin")
    server = make_server("127.0.0.1", 0, app, server_class=Threaded, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(LIMIT)
    server.server_close()


async def test_httpbin_says_the_same_to_all(httpbin: str) -> None:
    with trio.fail_after(10 * LIMIT):
        seen = await compared(httpbin, HTTPBIN)
    assert all(isinstance(fact, tuple) for fact in seen)


async def test_the_crawls_transport_undoes_every_coding_of_httpbin(httpbin: str) -> None:
    wire = TransportRouter(TransportSettings())
    for path, word in (("gzip", "gzipped"), ("deflate", "deflated"), ("brotli", "brotli")):
        outcome = await wire.send(Request(f"{httpbin}/{path}"), lambda: None)
        assert outcome.response is not None
        assert outcome.response.json()[word] is True
    await wire.aclose()
