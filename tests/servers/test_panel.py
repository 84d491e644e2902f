"""The panel in a browser: what a person sees and does there, against a real crawl of local servers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

import trawl
from tests.servers.chromium import Tab, open_tab
from tests.servers.rendering import wanted
from tests.test_panel import Instant
from tests.watched_crawl import crawl_with
from trawl.engine import Crawl
from trawl.events import RequestSent
from trawl.http import Response, host_scope
from trawl.panel import Panel, parse_address
from trawl.settings import Layer, load

pytestmark = pytest.mark.servers

MARKUP = "<img src=x onerror=document.title=1><script>document.title='XSS'</script>"

ROBOTS = f"User-agent: *\nCrawl-delay: 0.1\nSitemap: http://x.example/{MARKUP}\n"


class Server(ThreadingHTTPServer):
    """Serves pages on all loopback addresses.

    Attributes:
        requested: Time and host of each request for a page.
    """

    def __init__(self) -> None:
        self.requested: list[tuple[float, str]] = []
        super().__init__(("0.0.0.0", 0), Handler)

    @property
    def port(self) -> int:
        """The port."""
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    """Answers with robots.txt or a small page."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        is_robots = self.path == "/robots.txt"
        body = ROBOTS.encode() if is_robots else b"<title>x</title>"
        if not is_robots:
            assert isinstance(self.server, Server)
            self.server.requested.append((time.monotonic(), self.headers["Host"].partition(":")[0]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server while the block runs."""
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def spider_of(port: int, name: str = f"pages{MARKUP}") -> type[trawl.Spider[Any]]:
    """Return a spider of three hosts with 1,000 pages each."""

    class Pages(trawl.Spider[Any]):
        start_urls = tuple(f"http://127.0.0.{host}:{port}/{page}" for page in range(1000) for host in (2, 3, 4))

        def parse(self, response: Response) -> Iterator[Any]:
            if response.url.endswith("5"):
                raise ValueError(MARKUP)
            yield {"text": MARKUP}

    Pages.name = name
    return Pages


SETTINGS = {"DOWNLOAD_DELAY_PER_SLOT": 0.0, "RANDOMIZE_DOWNLOAD_DELAY": False}

Use = Callable[[Tab, str, Crawl], Any]


@contextmanager
def shown() -> Iterator[tuple[Panel, str]]:
    """Return a panel and its URL."""
    address = parse_address("0")
    with address.socket:
        yield Panel(address), address.url


async def seen(
    use: Use, *spiders: type[trawl.Spider[Any]], settings: dict[str, Any] | None = None, transport: Any = None
) -> None:
    """Look at running crawls in a browser, and end them. The page must have logged nothing."""
    wanted()
    loaded = load(Layer("test", {**SETTINGS, **(settings or {})}))
    with shown() as (panel, url):
        async with open_tab() as tab, trio.open_nursery() as nursery:

            async def watch(crawl: Crawl) -> None:
                await use(tab, url, crawl)
                assert tab.logs == []
                nursery.cancel_scope.cancel()

            async def crawl(spider: type[trawl.Spider[Any]], *watchers: Any) -> None:
                await crawl_with(spider, loaded, watchers=[panel.show, *watchers], transport=transport)

            nursery.start_soon(panel.serve)
            for spider in spiders[:-1]:
                nursery.start_soon(crawl, spider)
            nursery.start_soon(crawl, spiders[-1], watch)


YES = "document.querySelector('dialog button').click()"


async def test_the_figures_are_live_and_markup_stays_text(server: Server) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url)
        await tab.until("document.getElementById('state').textContent == 'running'")
        first = await tab.until("status_ && status_.pages > 20 && status_.pages")
        assert await tab.until(f"status_.pages > {first} && status_.pages") <= crawl.stats.count("response_count")
        await tab.until("document.querySelectorAll('#errors details').length == 1")
        await tab.until("document.querySelectorAll('#items li').length > 3")
        assert await tab.js("document.querySelectorAll('#rows tr').length") == 3
        await tab.js(f"whyof.value = '127.0.0.2:{server.port}'; whyform.requestSubmit()")
        await tab.until("document.getElementById('host').textContent.includes('Crawl-delay 0.1 s')")
        text = await tab.js("document.body.textContent")
        assert text.count(MARKUP) >= 4  # the spider, an error, an item, a sitemap of robots.txt
        assert await tab.js("document.querySelectorAll('main img, main script, h1 *').length") == 0
        assert (
            await tab.js("document.title")
            == f"{await tab.js('n.format(status_.pages)')} pages · {crawl.spider.name} · trawl"
        )

    await seen(use, spider_of(server.port))


async def test_a_limit_that_is_set_there_is_obeyed_on_the_wire(server: Server) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url)
        await tab.until("status_ && status_.pages > 10")
        scope = f"127.0.0.2:{server.port}"
        await tab.js(f"setscope.value = '{scope}'; setlimits.value = 'dealy=1'; setform.requestSubmit()")
        await tab.until("done.textContent.includes('dealy')")
        await tab.js("setlimits.value = 'delay=0.7'; setform.requestSubmit()")
        assert scope in await tab.until("ask.open && asktext.textContent")
        await tab.js(YES)
        await tab.until("done.textContent.includes('after')")
        count = len(server.requested)
        with crawl.events(RequestSent) as events:
            await tab.until(f"status_.pages > {count + 60}")
            # The times of the crawl, because the server's threads may be late.
            times = [event.at for event in events.unread() if host_scope(event.request.url) == scope][1:]
        assert len(times) > 2
        assert min(later - sooner for sooner, later in pairwise(times)) > 0.6

    await seen(use, spider_of(server.port))


async def test_pause_and_resume_by_the_keyboard(server: Server) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url)
        await tab.until("status_ && status_.pages > 10")
        await tab.press("p")
        await tab.until("ask.open")
        await tab.js(YES)
        await tab.until("state.textContent.startsWith('paused')")
        while crawl.in_flight:
            await crawl.status_keeper.changed()
        count = len(server.requested)
        await trio.sleep(1.0)
        assert len(server.requested) == count
        assert await tab.js("limits.textContent.startsWith('paused')")
        await tab.js("pause.click()")
        await tab.until("ask.open")
        await tab.js(YES)
        await tab.until(f"status_.pages > {count}")

    await seen(use, spider_of(server.port))


FOCUS = """(() => {
  const a = document.activeElement, box = a.getBoundingClientRect(), style = getComputedStyle(a);
  if (a === document.body) return "";
  const over = document.elementFromPoint(box.x + Math.min(box.width / 2, 30), box.y + Math.min(box.height / 2, 10));
  const is_seen = a.contains(over) && style.outlineStyle === "solid" && style.outlineWidth === "2px";
  return (is_seen ? "" : "unseen ") + (a.id || a.ariaLabel || a.textContent.split(",")[0]);
})()"""
"""The name of the focused element. It is marked if its outline is missing or another element covers it."""

COLUMNS = "COLUMNS.map(([title]) => title + (title === 'sends' ? ' ↓' : ''))"
CONTROLS = ["whyof", "Ask", "setscope", "setlimits", "Set", "addurl", "Add", "drophost", "Drop its pending pages"]


@pytest.mark.parametrize("width", [390, 1400])
async def test_the_keyboard_reaches_all_controls_in_reading_order(server: Server, width: int) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url, width=width)
        await tab.until("document.querySelectorAll('#errors details, #rows tr').length == 4")
        titles = await tab.js(f"{COLUMNS}.filter((_, i) => head.cells[i].offsetWidth)")
        # A reader that runs through the page takes longer than a tick, and must not lose its place.
        order = ["pause", "stop", "text", "Scopes", *titles, *CONTROLS, "callback ValueError"]
        for keys, names in (("Tab", order), ("Shift+Tab", order[-2::-1])):
            walked = []
            for _ in names:
                await tab.press(keys)
                walked.append(await tab.js(FOCUS))
            assert walked == names
            count = await tab.js("status_.pages")
            await tab.until(f"status_.pages > {count}")
            assert await tab.js(FOCUS) == names[-1]

    await seen(use, spider_of(server.port))


async def test_enter_and_escape_work_in_each_control(server: Server) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        host = f"127.0.0.2:{server.port}"
        await tab.open(url)
        await tab.until("status_ && status_.pages > 10 && document.querySelectorAll('#rows tr').length == 3")
        await tab.press("/")
        await tab.call("Input.insertText", text=host)
        await tab.until("total == 1 && document.querySelectorAll('#rows tr').length == 1")
        await tab.press("Enter", "Escape")
        await tab.until("document.querySelectorAll('#rows tr').length == 3")
        await tab.press("Tab", "Tab", "Enter")
        await tab.until("head.cells[0].ariaSort == 'ascending'")
        assert await tab.js(FOCUS) == "scope ↑"

        await tab.press("Shift+Tab", "w")
        await tab.call("Input.insertText", text=host)
        await tab.press("Enter")
        await tab.until("host.textContent.includes('Crawl-delay')")
        await tab.press("Tab", "Tab")
        await tab.call("Input.insertText", text=host)
        await tab.press("Tab")
        await tab.call("Input.insertText", text="delay=0.7")
        await tab.press("Enter")
        await tab.until("ask.open")
        assert await tab.js(FOCUS) == "Cancel"
        await tab.press("Escape")
        await tab.until("!ask.open")
        assert await tab.js(FOCUS) == "setlimits"
        assert await tab.js("done.textContent") == ""
        await tab.press("Enter")
        await tab.until("ask.open")
        await tab.press("Shift+Tab", "Enter")
        await tab.until("done.textContent.includes('after')")
        await tab.until("document.querySelectorAll('#errors details').length == 1")
        await tab.js("document.querySelector('#errors summary').focus()")
        await tab.press("Enter")
        assert await tab.js("document.querySelector('#errors details').open")

    await seen(use, spider_of(server.port))


@pytest.mark.parametrize(("width", "is_dark"), [(390, False), (1400, True), (1400, False)])
async def test_the_page_is_no_wider_than_its_window(server: Server, tmp_path: Path, width: int, is_dark: bool) -> None:
    """The pictures are for a person: ``PANEL_PICTURES=DIR`` keeps them."""

    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url, width=width, is_dark=is_dark)
        await tab.until("status_ && status_.pages > 30 && document.querySelectorAll('canvas').length == 3")
        assert await tab.js("document.documentElement.scrollWidth") <= width
        folder = Path(os.environ.get("PANEL_PICTURES", tmp_path))
        await tab.shoot(folder / f"panel-{width}-{'dark' if is_dark else 'light'}.png")

    await seen(use, spider_of(server.port))


async def test_two_crawls_side_by_side(server: Server) -> None:
    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url)
        await tab.until("[...document.querySelectorAll('#crawl option')].map(o => o.value).join() == 'one,two'")
        await tab.until("status_ && status_.spider == 'one'")
        await tab.js("document.getElementById('crawl').value = 'two'; document.getElementById('crawl').onchange()")
        await tab.until("status_.spider == 'two' && status_.pages > 5")

    await seen(use, spider_of(server.port, "one"), spider_of(server.port, "two"))


async def test_ten_thousand_scopes() -> None:
    class Many(trawl.Spider[Any]):
        name = "many"
        start_urls = tuple(f"http://h{host}.example/{page}" for page in range(2) for host in range(10_000))

        def parse(self, response: Response) -> None: ...

    async def use(tab: Tab, url: str, crawl: Crawl) -> None:
        await tab.open(url)
        await tab.until("total >= 10000", 600.0)
        assert await tab.js("document.querySelectorAll('#rows tr').length") == 100
        assert await tab.js("document.getElementsByTagName('*').length") < 5000
        await tab.js("$('text').value = 'h1234.'; $('text').oninput()")
        await tab.until("total == 1 && document.querySelectorAll('#rows tr').length == 1")
        await tab.js("$('text').value = 'h12'; $('text').oninput()")
        await tab.until("total == 111 && !next.disabled")
        await tab.js("next.focus()")
        await tab.press("Enter")
        await tab.until("document.querySelectorAll('#rows tr').length == 11")
        assert await tab.js(FOCUS) == "prev"

    settings = {
        "DOWNLOAD_DELAY": 300.0,
        "ROBOTSTXT_OBEY": False,
        "CONCURRENT_REQUESTS": 64,
        "THROTTLING_SCOPE_LIMIT": 100_000,
    }
    await seen(use, Many, settings=settings, transport=Instant())
