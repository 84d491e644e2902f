"""The files and the web that a reader of a page has before its first command.

If a page says "your spider", the reader has the README's spider, under the name that the page's commands use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import trio

from tests.cli.simulated import FOLLOWER
from tests.docs.blocks import blocks_of
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb
from trawl.testing.demo import DEMO_HOST, ROBOTS, DemoSite

__all__ = ["ACCESS_LOG", "ROOT", "URLS", "a_store", "every_site", "lay_out"]

ROOT = Path(__file__).parents[2]

SPIDERS = {
    "auth": ["spider.py"],
    "autothrottle": ["myspider.py"],
    "cache": ["spider.py"],
    "check": ["spiders/quotes.py", "more/quotes.py"],
    "cookies": ["spider.py"],
    "feeds": ["books.py"],
    "metrics": ["books.py"],
    "panel": ["books.py"],
    "plan": ["books.py"],
    "publish-a-plugin": ["pages.py"],
    "resume-a-crawl": ["quotes.py"],
    "scopes": ["myspider.py"],
    "untrusted-pages": ["intranet.py"],
    "receipt": ["books.py"],
    "warc": ["books.py"],
}
"""Files that contain the README's spider, by how-to page."""
QUOTESBOT = """
BOT_NAME = "quotesbot"
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
FEED_EXPORT_ENCODING = "utf-8"
DOWNLOADER_MIDDLEWARES = {"quotesbot.middlewares.Stamp": 543}
ITEM_PIPELINES = {"quotesbot.pipelines.Dedupe": 100, "quotesbot.pipelines.Json": 300}
JSON_PATH = "out.jl"
"""
SITEMAP = "<urlset><url><loc>https://www.example.com/new</loc><lastmod>2024-05-02</lastmod></url></urlset>"
RELEASES = """<rss><channel>
<item><title>1.0</title><pubDate>01 May 2024 10:00:00 GMT</pubDate></item>
</channel></rss>"""
URLS = "http://books.example/1\nhttp://books.example/2\nhttp://books.example/3\nhttp://a.example/\n"
ACCESS_LOG = '192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "Examplebot/1.0"\n'
BOOKS = """
from scrapy import Spider

class Books(Spider):
    name = "books"
    start_urls = ["http://127.0.0.1:8765/books/"]

    def parse(self, response):
        for title in response.css("h3 a::attr(title)").getall():
            yield {"title": title}
"""
OTHERS = {
    "coming-from-scrapy": {
        "quotesbot/settings.py": QUOTESBOT,
        "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
        "shop/__init__.py": "",
        "shop/settings.py": 'SPIDER_MODULES = ["shop.spiders"]\nROBOTSTXT_OBEY = True\n',
        "shop/spiders/__init__.py": "",
        "shop/spiders/books.py": BOOKS,
    },
    "plan": {"urls.txt": URLS},
    "receipt": {"access.log": ACCESS_LOG},
    "why-slow": {"myspider.py": FOLLOWER},
}
"""Other files with their content, by how-to page."""
SHOWN = {"coming-from-scrapy": "shelf.py", "try-things-out": "quotes.py", "use-proxies": "catalogue.py"}
"""The file that the first block of Python belongs to, by how-to page."""
FOLDERS = {
    "publish-a-plugin": ROOT / "examples" / "plugin",
}
"""A folder of the reader, by how-to page."""


def first_python(page: Path) -> str:
    """Return the first block of Python of a page."""
    return next(block.text for block in blocks_of(page.read_text("utf-8")) if block.language == "python")


def lay_out(page: Path, folder: Path) -> None:
    """Write the files of a page's reader into their folder."""
    (folder / "examples").symlink_to(ROOT / "examples")
    if page.parent.name != "howto":
        return
    if page.stem in FOLDERS:
        whole = FOLDERS[page.stem]
        shutil.copytree(whole, folder / whole.name, ignore=shutil.ignore_patterns("__pycache__"))
    files = {name: first_python(ROOT / "README.md") for name in SPIDERS.get(page.stem, ())}
    files |= OTHERS.get(page.stem, {})
    if page.stem in SHOWN:
        files[SHOWN[page.stem]] = first_python(page)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def every_site() -> SimulatedWeb:
    """Return a web with all sites that the commands of the pages request."""
    web = SimulatedWeb()
    web.add_host(DEMO_HOST, handler=DemoSite(trio.current_time), robots=ROBOTS, latency=0.2, connect=0.2)
    web.add_page("https://example.com/", body="<title>Example</title>")
    web.add_site("a.example", pages=100, links=10, latency=0.1)
    web.add_host("shop.example", handler=behind_a_proxy)
    web.add_host("www.example.com", robots="Sitemap: /sitemap.xml")
    web.add_page("https://www.example.com/sitemap.xml", body=SITEMAP, headers={"Content-Type": "application/xml"})
    web.add_page("https://www.example.com/new", body="<title>New</title>")
    web.add_host("pypi.org", handler=lambda request: SimulatedResponse(200, RELEASES, {"Content-Type": "text/xml"}))
    return web


def behind_a_proxy(request: Request) -> SimulatedResponse:
    """Return a page for requests through the proxy, and an error for other requests."""
    comes_through = "proxy.example" in str(request.meta.get("proxy"))
    return SimulatedResponse(200 if comes_through else 403, "a page")


@contextmanager
def a_store() -> Iterator[None]:
    """Make ``s3://`` a store in memory."""
    from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
    from fsspec.registry import _registry  # type: ignore[import-untyped]

    class Bucket(MemoryFileSystem):  # type: ignore[misc]
        protocol = "s3"
        store: dict[str, object] = {}

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("s3://", "memory://")))

    with patch.dict(_registry, {"s3": Bucket}):
        yield
