"""Chromium by itself: what its pages can reach, what cancels and kills leave, and the commands that it knows."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from tests.servers.rendering import processes, profiles, wanted
from trawl.blocking import ThreadBlocking
from trawl.browser import Answer, Asked, Browsers, BrowserSettings, Opening, devtools, page, pool
from trawl.browser.devtools import NAMES
from trawl.errors import PageCrashed

pytestmark = pytest.mark.servers

SETTINGS = BrowserSettings(browser_sandbox=False)


@asynccontextmanager
async def running(settings: BrowserSettings = SETTINGS) -> AsyncIterator[Browsers]:
    wanted()
    browsers = Browsers(settings, ThreadBlocking())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        yield browsers
        nursery.cancel_scope.cancel()


class Listeners:
    """Sockets that record who connects or sends."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        for each in (self.tcp, self.udp):
            each.setblocking(False)

    @property
    def ports(self) -> tuple[int, int]:
        return self.tcp.getsockname()[1], self.udp.getsockname()[1]

    def heard(self) -> list[str]:
        found = []
        for kind, receive in (("tcp", self.tcp.accept), ("udp", lambda: self.udp.recvfrom(1000))):
            try:
                found.append(f"{kind} {receive()}")
            except BlockingIOError:
                continue
        return found

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


def remotes(group: int) -> set[str]:
    """Return the addresses to which sockets of a process group send, except the proxy that does not exist."""
    inodes = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.getpgid(int(path.parts[2])) == group and (link := os.readlink(path)).startswith("socket:["):
                inodes.add(link[8:-1])
    rows = [
        line.split()
        for kind in ("tcp", "tcp6", "udp", "udp6")
        for line in _read(Path(f"/proc/net/{kind}")).splitlines()
    ]
    found = {row[2].decode() for row in rows if len(row) > 9 and row[9].decode() in inodes}
    return {each for each in found if not each.endswith(":0000") and each != "0100007F:0001"}


LEAKY = """<!doctype html><html><head>
<link rel=dns-prefetch href=//leak-a.example><link rel=preconnect href=http://leak-b.example>
<link rel=dns-prefetch href=//127.0.0.1:{tcp}><link rel=preconnect href=http://127.0.0.1:{tcp}>
<link rel=prefetch href=http://127.0.0.1:{tcp}/prefetch><link rel=prerender href=http://127.0.0.1:{tcp}/prerender>
<link rel=icon href=http://127.0.0.1:{tcp}/favicon.ico><link rel=manifest href=http://127.0.0.1:{tcp}/manifest>
<script type=speculationrules>{{"prefetch": [{{"source": "list", "urls": ["http://127.0.0.1:{tcp}/spec"]}}],
 "prerender": [{{"source": "list", "urls": ["http://127.0.0.1:{tcp}/prerender2"]}}]}}</script></head><body>
<a id=down download href=http://127.0.0.1:{tcp}/download>x</a>
<a id=pinged ping=http://127.0.0.1:{tcp}/ping href=#here>y</a>
<script>
const quiet = f => {{ try {{ f() }} catch (e) {{}} }};
quiet(() => new WebSocket('ws://127.0.0.1:{tcp}/'));
quiet(() => navigator.sendBeacon('http://127.0.0.1:{tcp}/beacon', 'x'));
quiet(() => new EventSource('http://127.0.0.1:{tcp}/events'));
quiet(() => new WebTransport('https://127.0.0.1:{tcp}/'));
quiet(() => navigator.serviceWorker.register('/worker.js'));
quiet(() => new Worker('http://127.0.0.1:{tcp}/worker.js'));
quiet(() => {{ new Image().src = 'http://127.0.0.1:{tcp}/image' }});
quiet(() => fetch('http://127.0.0.1:{tcp}/fetch', {{keepalive: true}}));
quiet(() => {{
  const pc = new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{udp}'}},
    {{urls: 'turn:127.0.0.1:{tcp}?transport=tcp', username: 'u', credential: 'p'}}]}});
  pc.createDataChannel('x'); pc.createOffer().then(o => pc.setLocalDescription(o)) }});
quiet(() => document.querySelector('#down').click());
quiet(() => document.querySelector('#pinged').click());
quiet(() => open('http://127.0.0.1:{tcp}/popup'));
quiet(() => fetch('http://leak-c.example/', {{keepalive: true}}));
quiet(() => new WebSocket('ws://leak-d.example/'));
</script></body></html>"""


@pytest.mark.parametrize("name", [name for name in NAMES[1:3] if shutil.which(name)] or [NAMES[1]])
async def test_nothing_of_a_page_is_on_the_wire(name: str) -> None:
    listeners = Listeners()
    tcp, udp = listeners.ports
    body = LEAKY.format(tcp=tcp, udp=udp).encode()
    asked: list[str] = []

    async def ask(wanted: Asked) -> Answer | None:
        asked.append(wanted.url)
        if wanted.is_main:
            return Answer(200, [("Content-Type", "text/html")], body)
        if wanted.url.endswith("/worker.js"):
            return Answer(200, [("Content-Type", "text/javascript")], b"fetch('/from-worker')")
        return None

    try:
        settings = BrowserSettings(browser_sandbox=False, browser_path=shutil.which(name) or "")
        async with running(settings) as browsers, browsers.open_page(Opening(ask=ask)) as opened:
            await opened.goto(f"http://127.0.0.1:{tcp}/")
            with trio.fail_after(120):
                while f"http://127.0.0.1:{tcp}/fetch" not in asked:  # noqa: ASYNC110 - a script of the page asks
                    await trio.sleep(0.05)
            for _ in range(20):
                await trio.sleep(0.1)
                assert listeners.heard() == []
                assert remotes(opened._chromium.pid) == set()  # lookups of names too
    finally:
        listeners.close()


async def test_cancels_at_random_instants_leave_nothing() -> None:
    async def ask(wanted: Asked) -> Answer | None:
        if wanted.is_main:
            return Answer(200, [("Content-Type", "text/html")], b"<script>fetch('/x'); fetch('/y')</script>")
        await trio.sleep(0.05)
        return Answer(200, [("Content-Type", "text/plain")], b"x")

    chance = random.Random(1)
    async with running() as browsers:
        async with browsers.open_page(Opening(ask=ask)) as first:
            await first.goto("http://a.example/")
            chromium = first._chromium
            for _ in range(30):
                with trio.move_on_after(chance.uniform(0.0, 0.2)):
                    async with browsers.open_page(Opening(ask=ask)) as opened:
                        await opened.goto("http://a.example/")
                        await opened.settled(0.1)
            with trio.fail_after(120):
                while True:
                    contexts = (await chromium.call("Target.getBrowserContexts"))["browserContextIds"]
                    targets = [
                        each
                        for each in (await chromium.call("Target.getTargets"))["targetInfos"]
                        if each["url"] != "about:blank"
                    ]
                    if len(contexts) == 1 and len(targets) == 1:
                        break
                    await trio.sleep(0.05)
            assert len(chromium.connection._handlers) == 1
        assert browsers.launched == 1


async def test_an_old_browser_ends_with_its_last_page() -> None:
    async def ask(wanted: Asked) -> Answer | None:
        return Answer(200, [("Content-Type", "text/html")], b"<p>x</p>")

    async with running(BrowserSettings(browser_sandbox=False, browser_recycle=2)) as browsers:
        for _ in range(5):
            async with browsers.open_page(Opening(ask=ask)) as opened:
                await opened.goto("http://a.example/")
        assert browsers.launched == 3
    assert processes() == []
    assert profiles() == []


async def test_a_sessions_storage_lasts_and_another_session_has_its_own() -> None:
    async def ask(wanted: Asked) -> Answer | None:
        return Answer(200, [("Content-Type", "text/html")], b"<p>x</p>")

    async with running() as browsers:
        for session, value in (("anna", "1"), ("ben", "2"), ("anna", ""), ("ben", "")):
            async with browsers.open_page(Opening(ask=ask, session=session)) as opened:
                await opened.goto("http://a.example/")
                if value:
                    await opened.evaluate(f"localStorage.setItem('who', '{session}')")
                assert await opened.evaluate("localStorage.getItem('who')") == session


async def test_a_sessions_page_has_no_cookies_that_its_jar_has_lost() -> None:
    async def ask(wanted: Asked) -> Answer | None:
        return Answer(200, [("Content-Type", "text/html")], b"<p>x</p>")

    cookie = {"name": "a", "value": "1", "domain": "a.example", "path": "/"}
    async with running() as browsers:
        for cookies in ([cookie], []):
            async with browsers.open_page(Opening(ask=ask, session="anna", cookies=cookies)) as opened:
                await opened.goto("http://a.example/")
                assert await opened.evaluate("document.cookie") == ("a=1" if cookies else "")


async def test_a_killed_renderer_ends_its_pages_and_not_the_browser() -> None:
    """Row: the renderer ends."""

    async def ask(wanted: Asked) -> Answer | None:
        return Answer(200, [("Content-Type", "text/html")], b"<p>x</p>")

    async with running() as browsers:
        with trio.fail_after(120), pytest.raises(PageCrashed):  # noqa: PT012 - the whole block ends
            async with browsers.open_page(Opening(ask=ask)) as opened:
                await opened.goto("http://a.example/")
                group = opened._chromium.pid
                for pid in _renderers(group):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await opened.wait_for(".never")
        async with browsers.open_page(Opening(ask=ask)) as opened:
            await opened.goto("http://a.example/")
            assert await opened.has("p")
        assert browsers.launched == 1


def test_a_killed_python_leaves_no_browser() -> None:
    wanted()
    code = """if True:
        import trio
        from trawl.blocking import ThreadBlocking
        from trawl.browser import Answer, Browsers, BrowserSettings, Opening

        async def ask(wanted):
            return Answer(200, [("Content-Type", "text/html")], b"<p>x</p>")

        async def main():
            browsers = Browsers(BrowserSettings(browser_sandbox=False), ThreadBlocking())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(browsers.run)
                async with browsers.open_page(Opening(ask=ask)) as page:
                    await page.goto("http://a.example/")
                    print("open", flush=True)
                    await trio.sleep_forever()

        trio.run(main)
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as python:
        assert python.stdout is not None
        assert python.stdout.readline() == b"open\n"
        python.send_signal(signal.SIGKILL)
    until = time.monotonic() + 120
    mark = f"{devtools.PROFILE}{python.pid}-"
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(path)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
    assert list(Path(tempfile.gettempdir()).glob(f"{mark}*"))
    devtools._remove(*devtools._new_profile())  # the next start removes the profiles of dead processes
    assert not list(Path(tempfile.gettempdir()).glob(f"{mark}*"))


def _renderers(group: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            if b"=renderer" in _read(path) and os.getpgid(pid := int(path.parent.name)) == group:
                found.append(pid)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


COMMAND = re.compile(r'"((?:Page|Target|Fetch|Browser|Storage|Runtime|Input|Emulation|DOM)\.[a-z]\w+)"')


def used() -> set[str]:
    """Return the commands in the source."""
    sources = [Path(str(each.__file__)).read_text() for each in (devtools, page, pool)]
    return {name for source in sources for name in COMMAND.findall(source)} | {
        f"{name}.enable" for name in page.DOMAINS
    }


def test_the_installed_chromium_knows_every_command_in_use(tmp_path: Path) -> None:
    """The list is Chromium's own ``/json/protocol``, which only its debugging port serves."""
    path = wanted()
    assert len(used()) > 20
    command = [
        path,
        "--headless=new",
        "--no-sandbox",
        "--remote-debugging-port=0",
        f"--user-data-dir={tmp_path}",
        "about:blank",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        file, until = tmp_path / "DevToolsActivePort", time.monotonic() + 120
        while not file.exists() or not file.read_text().strip():
            assert time.monotonic() < until
            time.sleep(0.05)
        port = file.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/protocol", timeout=120) as answer:
            protocol = json.loads(answer.read())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    known = {
        f"{domain['domain']}.{each['name']}"
        for domain in protocol["domains"]
        for kind in ("commands", "events")
        for each in domain.get(kind, ())
    }
    assert used() - known == set()


EVERY_WAY = b"""<body><iframe srcdoc="<p>in a frame</p>"></iframe><script>
window.log = []; const say = t => log.push(t), text = r => r.text();
fetch(URL.createObjectURL(new Blob(['blob']))).then(text).then(say, say);
fetch('data:text/plain,data').then(text).then(say, say);
const worker = new Worker(URL.createObjectURL(new Blob(
  ["fetch('http://a.example/api').then(r => r.text()).then(postMessage, e => postMessage('' + e))"])));
worker.onmessage = e => say('worker ' + e.data);
const frame = document.createElement('iframe'); frame.src = 'http://other.example/frame'; document.body.append(frame);
import('/module.js').then(m => say(m.default), say);
const events = new EventSource('/events'); events.onmessage = e => { say('event ' + e.data); events.close() };
new WebSocket('ws://a.example/').onerror = () => say('no WebSocket');
</script>"""


async def test_frames_workers_modules_and_events_ask_for_everything() -> None:
    asked: set[str] = set()
    answers = {
        "http://a.example/": ("text/html", EVERY_WAY),
        "http://a.example/api": ("text/plain", b"api"),
        "http://a.example/module.js": ("text/javascript", b"export default 'module'"),
        "http://a.example/events": ("text/event-stream", b"data: hello\n\n"),
        "http://other.example/frame": ("text/html", b"<script>fetch('/of-the-frame')</script>"),
        "http://other.example/of-the-frame": ("text/plain", b"x"),
    }

    async def ask(wanted: Asked) -> Answer | None:
        await trio.lowlevel.checkpoint()
        asked.add(wanted.url)
        kind, body = answers[wanted.url]
        return Answer(200, [("Content-Type", kind)], body)

    async with running() as browsers, browsers.open_page(Opening(ask=ask)) as opened:
        await opened.goto("http://a.example/")
        await opened.settled(0.5)
        with trio.fail_after(120):
            while len(log := await opened.evaluate("log")) < 6 or len(asked) < 6:  # noqa: ASYNC110 - scripts write it
                await trio.sleep(0.05)
    assert set(log) == {"blob", "data", "worker api", "module", "event hello", "no WebSocket"}
    assert asked == answers.keys()


FRAMED = b"""<body style="margin:0"><div style="height:1500px"></div><iframe class=own src=/own></iframe>
<iframe class=foreign src=http://other.example/frame style="border:7px solid"></iframe></body>"""

FIELD = b"""<body><div style="height:900px"></div><input id=name><button>go</button><p></p><script>
var mine = location.host, find = css => document.querySelector(css);
find('button').onclick = () => find('p').textContent = 'hello ' + find('#name').value</script>%s</body>"""


async def test_frames_of_the_own_and_of_another_site_take_actions() -> None:
    answers = {
        "http://a.example/": FRAMED,
        "http://a.example/own": FIELD % b"<iframe class=inner src=/inner></iframe>",
        "http://a.example/inner": FIELD % b"",
        "http://other.example/frame": FIELD % b"",
    }

    async def ask(wanted: Asked) -> Answer | None:
        await trio.lowlevel.checkpoint()
        return Answer(200, [("Content-Type", "text/html")], answers[wanted.url])

    async with running() as browsers, browsers.open_page(Opening(ask=ask)) as opened:
        await opened.goto("http://a.example/")
        own, foreign = opened.frame(".own"), opened.frame("iframe.foreign")
        for frame, host in ((own, "a.example"), (foreign, "other.example"), (own.frame(".inner"), "a.example")):
            await frame.wait_for("button")
            await frame.fill("#name", host)
            await frame.click("button")
            await frame.wait_for("p:not(:empty)")
            assert await frame.text("p") == f"hello {host}"
            assert await frame.evaluate("new Promise(done => done(mine))") == host  # in the world of its own scripts
            assert "<button" in await frame.html()
        assert await foreign.url() == "http://other.example/frame"
        assert not await opened.has("button")
        with pytest.raises(LookupError, match=r"no element of http://a\.example/own matches '\.none'"):
            await own.click(".none")
        for css, words in ((".none", "no frame of http://a.example/ matches"), ("body", "'body' is not a frame")):
            with pytest.raises(LookupError, match=words):
                await opened.frame(css).has("p")
