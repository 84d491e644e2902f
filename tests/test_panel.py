"""The panel without a browser: its address, its guard, its stream, and the end of a crawl with readers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import trawl
from tests.watched_crawl import crawl_with
from trawl.cli import main
from trawl.engine import Crawl
from trawl.engine.steering import View
from trawl.errors import UsageError
from trawl.http import Outcome, Request, Response
from trawl.panel import FILES, HEADERS, STATIC, Address, CrawlPage, Guard, Panel, parse_address, view_of
from trawl.settings import Layer, load
from trawl.transport import OnSent

TOKEN = "a-token-of-many-characters"


@pytest.fixture
def address() -> Iterator[Address]:
    made = parse_address("0")
    yield made
    made.socket.close()


# -- the address


def test_the_panel_listens_on_this_machine_alone_by_default(address: Address) -> None:
    host, port = address.socket.getsockname()
    assert host == "127.0.0.1"
    assert address.url == f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize("text", ["", "x", "a:b", "127.0.0.1:99999", "-1", "8100/"])
def test_a_value_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write \[HOST:\]PORT"):
        parse_address(text)


def test_a_port_in_use_is_one_line_and_nothing_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(
        "import trawl\nclass One(trawl.Spider):\n    name = 'one'\n    start_urls = ['http://127.0.0.1:9/']\n"
        "    def parse(self, response): raise SystemExit('it was sent')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        assert main(["crawl", "one.py", "--quiet", "--panel", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"trawl: --panel {port}: the port is in use: choose another one, or 0 for a free one\n"
    )


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="it can't listen there"):
        parse_address("192.0.2.1:0", TOKEN)


def test_another_address_needs_a_token_of_a_safe_length() -> None:
    with pytest.raises(UsageError, match="set PANEL_TOKEN to a secret"):
        parse_address("0.0.0.0:0")
    for token in ("short", "with/slashes/and?more", "ünicode-ünicode-ünicode"):
        with pytest.raises(UsageError, match="PANEL_TOKEN: use at least 16"):
            parse_address("0.0.0.0:0", token)


def test_without_the_option_nothing_of_the_panel_is_imported() -> None:
    code = (
        "import sys, trawl.cli.crawl, trawl.cli.app; print([m for m in ('hypercorn', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- the guard


async def asked(
    address: Address, headers: Mapping[str, str] | None = None, *, method: str = "GET", path: str = "/"
) -> tuple[int, str, dict[str, str]]:
    """Return the status code, the path that the application saw, and the headers."""
    seen: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    host = f"127.0.0.1:{address.socket.getsockname()[1]}"
    given = {"host": host, **(headers or {})}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw, "query_string": b""}
    await Guard(app, address)(scope, None, send)  # type: ignore[arg-type]
    answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], seen[0] if seen else "", answer


async def test_every_response_has_the_safe_headers_refusals_included(address: Address) -> None:
    for headers in ({}, {"host": "evil.example"}):
        _, _, answer = await asked(address, headers)
        assert HEADERS.items() <= answer.items()
    assert "'unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "", "192.0.2.1"]
)
async def test_a_host_that_is_not_the_panels_gets_421(address: Address, host: str) -> None:
    port = address.socket.getsockname()[1]
    assert (await asked(address, {"host": f"{host}:{port}" if host[:3] != "127" else host}))[0] == 421
    assert (await asked(address, {"host": f"LOCALHOST:{port}"}))[0] == 200


async def test_two_host_headers_get_421(address: Address) -> None:
    sent: list[Any] = []
    guard = Guard(None, address)  # type: ignore[arg-type]

    async def send(message: Any) -> None:
        sent.append(message)

    host = f"127.0.0.1:{address.socket.getsockname()[1]}".encode()
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"evil.example"), (b"host", host)]}
    await guard(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 421


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "headers",
    [
        {**JSON, "origin": "http://evil.example"},
        {**JSON, "origin": "null"},
        {**JSON, "origin": "https://127.0.0.1"},
        {**JSON, "sec-fetch-site": "cross-site"},
        {**JSON, "sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {},
    ],
    ids=str,
)
async def test_an_order_of_another_site_gets_403(address: Address, headers: dict[str, str]) -> None:
    assert (await asked(address, headers, method="POST", path="/order"))[0] == 403


async def test_an_order_of_the_page_and_of_a_program_passes(address: Address) -> None:
    origin = {"origin": address.url.rstrip("/"), "sec-fetch-site": "same-origin"}
    for headers in (JSON, {**JSON, **origin}):
        assert (await asked(address, headers, method="POST", path="/order"))[0] == 200


async def test_the_token_is_the_first_part_of_every_path() -> None:
    address = parse_address("127.0.0.1:0", TOKEN)
    with address.socket:
        assert address.url.endswith(f"/{TOKEN}/")
        for path in ("/", "/order", "/s/panel.js", "/x/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "/events", "//", "/ü/"):
            assert (await asked(address, path=path))[0] == 404
        assert (await asked(address, path=f"/{TOKEN}/s/panel.js"))[:2] == (200, "/s/panel.js")
        assert (await asked(address, path=f"/{TOKEN}/"))[:2] == (200, "/")


async def test_on_all_addresses_a_host_may_be_any_ip_address_but_no_rebound_name() -> None:
    address = parse_address("0.0.0.0:0", TOKEN)
    with address.socket:
        port = address.socket.getsockname()[1]
        path = f"/{TOKEN}/"
        for host in ("192.0.2.7", "[2001:db8::1]", socket.gethostname()):
            assert (await asked(address, {"host": f"{host}:{port}"}, path=path))[0] == 200
        for host in ("evil.example", "192.0.2.7.evil.example"):
            assert (await asked(address, {"host": f"{host}:{port}"}, path=path))[0] == 421


# -- the page


def test_the_page_has_no_inline_script_or_style_and_puts_nothing_in_as_html() -> None:
    page = (STATIC / "index.html").read_text("utf-8")
    assert "style=" not in page
    assert " on" not in page.replace(" one", "").replace("on for", "")
    assert page.count("<script") == page.count('<script src="s/')
    script = (STATIC / "panel.js").read_text("utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert word not in script
    assert all((STATIC / name).is_file() for name in FILES)
    assert "MIT License" in (STATIC / "uPlot.LICENSE").read_text("utf-8")


def test_a_view_that_does_not_fit_is_the_default_view() -> None:
    assert view_of({}) == View()
    assert view_of({"sort": "__class__", "offset": "-1", "down": "x"}) == View(is_descending=False)
    assert view_of({"sort": "queued", "offset": "1" * 30, "text": "A" * 200}) == View(sort="queued", text="a" * 100)


# -- with a crawl


class Pages(trawl.Spider[Any]):
    name = "pages<b>"

    async def start(self) -> AsyncIterator[Request]:
        for number in range(1000):
            yield Request(f"http://a.example/{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "text": "</script><b>"}


class Instant:
    """A transport without a network."""

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        while on_sent():  # noqa: ASYNC110 - as a transport that does not wait
            await trio.sleep(0.01)
        now = trio.current_time()
        await trio.sleep(0.005)
        response = Response(request.url, status=200, body=b"<p>", request=request)
        at = trio.current_time()
        return Outcome(request, response=response, started_at=now, sent_at=now, first_byte_at=at, ended_at=at)

    async def aclose(self) -> None: ...


async def with_panel(use: Callable[[Address], Any]) -> Any:
    """Run ``use`` with the panel's address in a thread, beside a crawl."""
    address = parse_address("0")
    panel, found = Panel(address), []

    async def watch(crawl: Crawl) -> None:
        found.append(await trio.to_thread.run_sync(use, address))
        found.append(trio.current_time())
        crawl.shutdown("enough")

    given = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0.05,
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
    }
    with address.socket:
        result = await crawl_with(Pages, load(Layer("test", given)), watchers=[panel.watch, watch], transport=Instant())
        assert result.reason == "enough"
        assert trio.current_time() - found[1] < 60.0  # readers do not hold up the end
    return found[0]


def fetched(address: Address, path: str, order: Any = None) -> Any:
    """Return the JSON at a path of the panel."""
    body = None if order is None else json.dumps(order).encode()
    request = urllib.request.Request(address.url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def event_of(connection: socket.socket) -> Any:
    """Return the next server-sent event of a connection."""
    with connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))
    return None


def reader(address: Address, query: str = "") -> socket.socket:
    """Return a connection that has requested the stream."""
    connection = socket.create_connection(address.socket.getsockname(), 60.0)
    host = address.url.split("/")[2]
    connection.sendall(f"GET /events?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


async def test_a_stream_has_the_figures_the_visible_rows_and_the_latest_items() -> None:
    def use(address: Address) -> Any:
        with reader(address, "text=nothing") as other:
            none = event_of(other)[1]
        while True:  # the scopes are read in turn, so the first events may be without them
            with reader(address, "sort=queued&text=a.ex") as connection:
                event = event_of(connection)
            if event[1]["total"]:
                return event, none

    (status, table, _, _), none = await with_panel(use)
    assert (status["spider"], status["state"], status["version"]) == ("pages<b>", "running", 1)
    assert table["total"] == 1
    assert table["rows"][0][0] == "a.example"
    assert none == {"total": 0, "offset": 0, "rows": []}


async def test_orders_are_previewed_executed_and_refused_with_their_message() -> None:
    def use(address: Address) -> list[Any]:
        limits = {"order": "set", "scope": "a.example", "limits": {"delay": 9.0}}
        return [
            fetched(address, "preview", limits),
            fetched(address, "order", limits),
            fetched(address, "order", {**limits, "limits": {"dealy": 1}}),
            fetched(address, "order", {"order": "burn"}),
            fetched(address, "order?crawl=other", {"order": "pause"}),
            fetched(address, "order", {"order": "pause"}),
            fetched(address, "why?of=http://a.example/999"),
            fetched(address, "why?of=http://[::ffff:x]/"),
            fetched(address, "why?of="),
            fetched(address, "crawls"),
        ]

    preview, done, wrong, unknown, other, paused, why, bad, nothing, crawls = await with_panel(use)
    for each in (preview, done):  # the rate so far depends on the machine
        assert re.match(r"a\.example: [\d.]+/s before, 0\.11/s after; ", each["effect"])
    assert wrong[0] == 400
    assert "dealy" in wrong[1]["error"]
    assert unknown[0] == 400
    assert other[0] == 404
    assert "will wait until the crawl is resumed" in paused["effect"]
    assert "paused" in why["why"]
    assert bad["why"].startswith("http://[::ffff:x]/ is not valid: ")
    assert nothing[0] == 400
    assert crawls == ["pages<b>"]


async def test_stalled_and_vanished_readers_delay_neither_the_crawl_nor_its_end() -> None:
    def use(address: Address) -> Any:
        connections = [reader(address) for _ in range(50)]
        for connection in connections[:10]:
            connection.close()
        stalled.extend(connections[10:])
        with reader(address) as alive:
            first, second = event_of(alive), None
        with reader(address) as alive:
            while second is None or second[0]["at"] == first[0]["at"]:
                second = event_of(alive)
        return second[0]["pages"] - first[0]["pages"]

    stalled: list[socket.socket] = []
    try:
        assert await with_panel(use) > 0
    finally:
        for connection in stalled:
            connection.close()


async def test_a_reader_that_arrives_after_the_end_of_the_crawl_does_not_wait() -> None:
    page = CrawlPage(SimpleNamespace(status_keeper=None, events=lambda *_, **__: nullcontext()))  # type: ignore[arg-type]
    page.close()
    with trio.fail_after(60.0):
        await page.stream(View(), None)  # type: ignore[arg-type]


async def test_a_panel_that_fails_leaves_the_crawl_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("no more descriptors")

    monkeypatch.setattr("trawl.panel.serve", fail)
    await with_panel(lambda _: None)
    assert "the panel has failed; the crawl continues without it" in caplog.text
