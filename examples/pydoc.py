"""Crawls Python's own documentation server, and yields one record per module of the standard library.

::

    trawl crawl examples/pydoc.py -O out.jsonl
    trawl crawl examples/pydoc.py -O out.jsonl -a package=email

The server (``python -m pydoc``) runs in a separate process on a free loopback port, and is stopped when the crawl ends.
The server imports each module whose page is requested, so the spider leaves out modules that run a program when they
are imported. The crawl needs no network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator

import trio

import trawl

LEFT_OUT = re.compile(
    r"antigravity"  # this module opens a web browser
    r"|(idlelib|lib2to3|turtledemo)\..*"  # programs that start on import or need a screen
    r"|(.*\.)?(test|tests|idle_test|__main__)(\..*)?"  # modules that run code on import
)


def serve() -> tuple[subprocess.Popen[str], str]:
    """Start the documentation server. Returns the process and its URL."""
    server = subprocess.Popen(
        # Isolated and without site-packages, so that only the standard library is documented.
        [sys.executable, "-I", "-S", "-u", "-W", "ignore", "-m", "pydoc", "-n", "127.0.0.1", "-p", "0"],
        cwd=os.path.dirname(os.__file__),  # pydoc adds the current folder to the modules it lists
        stdin=subprocess.PIPE,  # the server stops when this pipe closes, at the latest with this process
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    return server, server.stdout.readline().split()[-1]  # the line is "Server ready at http://127.0.0.1:40000/"


class Pydoc(trawl.Spider):
    """Follows every link from the index of modules to the page of a module."""

    name = "pydoc"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {
        # Only this crawl uses the server, so it needs no delay. It handles one request while a second one waits.
        "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
        "DOWNLOAD_DELAY": 0.0,
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    }

    package = ""
    """``-a package=NAME``: read only this package or module, and the modules in it."""

    server: subprocess.Popen[str] | None = None

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Start the server, and request its index or the page of ``package``."""
        self.server, url = await trio.to_thread.run_sync(serve)
        yield trawl.Request(f"{url}{self.package or 'index'}.html")

    def parse(self, response: trawl.Response) -> Iterator[dict[str, object] | trawl.Request]:
        """Yield one record per page of a module, and a request for each module that it names."""
        kind, _, _ = (response.css("title::text").get() or "").removeprefix("Pydoc: ").rpartition(" ")
        if kind in ("module", "package", "built-in module"):  # not the index, and not "Error - dbm.gnu.html"
            yield {
                "module": response.url.rpartition("/")[2].removesuffix(".html"),  # for _io, the title has io
                "summary": summary(response),
                "classes": response.css("tr.title-decor a::attr(name)").getall(),
                "functions": [name[1:] for name in response.css('a[name^="-"]::attr(name)').getall()],
                "file": response.css('td.extra a[href^="file:"]::text').get(),
            }
        for link in response.css("a::attr(href)").getall():
            if self.is_wanted(link):
                yield response.follow(link)

    def is_wanted(self, link: str) -> bool:
        """Return whether a link leads to the page of a module that may be imported."""
        page = re.fullmatch(r"([\w.]+)\.html(#.*)?", link)
        if page is None or page[1] in ("index", "topics", "keywords") or LEFT_OUT.fullmatch(page[1]):
            return False
        return not self.package or f"{page[1]}.".startswith(f"{self.package}.")

    def closed(self, reason: str) -> None:
        """Stop the server."""
        if self.server is not None:
            self.server.terminate()
            with self.server:  # leaving the block closes the pipes and waits for the server
                pass


def summary(response: trawl.Response) -> str:
    """Return the first line of a module's docstring; "" if it has none."""
    text = response.xpath("string(//table[@class='heading']/following-sibling::p[1]/span[@class='code'])").get() or ""
    return next((line for line in text.replace("\xa0", " ").splitlines() if line.strip()), "").strip()
