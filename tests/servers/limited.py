"""nginx with ``limit_req``, and crawls of it: what nginx's access log tells of a crawl that met the limit.

Names decide the limit: ``five-*.localhost`` allows 5 requests a second, ``fifty-*.localhost`` 50. Each name has a
bucket of its own, so that crawls may run side by side. ``nodelay`` and ``burst=5`` mean: six at once after a pause,
then one each 1/rate seconds, and 429 at once to whatever comes sooner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import attrs
import trio

import trawl
from tests.servers.names import LoopbackNames
from tests.servers.nginx import Hit, Nginx
from trawl._run import CrawlResult, crawl_with
from trawl.settings import Layer, load

__all__ = ["CASES", "HTTP", "RAMPED", "SEED", "SERVER", "Case", "Numbered", "Run", "crawl_all", "write_page"]

HTTP = """
    map $host $five { default ""; ~^five $host; }
    map $host $fifty { default ""; ~^fifty $host; }
    limit_req_zone $five zone=five:1m rate=5r/s;
    limit_req_zone $fifty zone=fifty:1m rate=50r/s;
    limit_req_status 429;
    limit_req_log_level info;
"""
"""Directives of the http block. An empty key is not limited."""

SEED = 2
"""Of what the crawls draw: what differs from run to run is only what the machine adds."""

SERVER = """
        limit_req zone=five burst=5 nodelay;
        limit_req zone=fifty burst=5 nodelay;
        location / { try_files /page.html =404; }
        location = /robots.txt { }
"""
"""Directives of the server block: the same page under every path, and no robots.txt."""


def write_page(root: Path) -> None:
    """Put the one page where nginx finds it."""
    (root / "page.html").write_text("<!doctype html><title>a page</title><p>One of many.\n", encoding="utf-8")


@attrs.frozen(kw_only=True)
class Case:
    """A crawl to make.

    Attributes:
        name: Its host's name, without ``.localhost``; begins with ``five`` or ``fifty``.
        pages: How many there are to get.
        settings: Of the crawl.
    """

    name: str
    pages: int
    settings: Mapping[str, object]

    @property
    def allowed(self) -> float:
        """Requests a second that the server allows."""
        return 50.0 if self.name.startswith("fifty") else 5.0


RAMPED = ("five-rampup", "fifty-rampup")
"""The crawls with rampup, as the documentation advises it: switched on, and everything else left as it is."""

FULL_SPEED = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


CASES = [
    *(
        Case(name=name, pages=pages, settings={"THROTTLING_SCOPES": {f"{name}.localhost": {"rampup": True}}})
        for name, pages in zip(RAMPED, (450, 2200), strict=True)
    ),
    *(Case(name=f"{name}-plain", pages=100, settings=FULL_SPEED) for name in ("five", "fifty")),
]
"""What is crawled: with rampup from below, and from full speed without."""


@attrs.frozen(kw_only=True)
class Run:
    """A crawl that was made.

    Attributes:
        case: Which.
        result: What trawl says of it.
        hits: What nginx says of it, in order.
    """

    case: Case
    result: CrawlResult
    hits: Sequence[Hit]

    @property
    def lost(self) -> set[str]:
        """Pages that gave no item."""
        return {f"/{n}" for n in range(self.case.pages)} - {item["path"] for item in self.result.items or ()}

    @property
    def refused(self) -> list[float]:
        """When nginx answered 429, in seconds since the first hit."""
        return [hit.at - self.hits[0].at for hit in self.hits if hit.status == 429]

    @property
    def took(self) -> float:
        """Seconds from the first hit to the last."""
        return self.hits[-1].at - self.hits[0].at

    def rate(self, start: float, end: float) -> float:
        """Pages a second that nginx served after one instant and up to another, in seconds since the first hit."""
        begun = self.hits[0].at
        served = [hit for hit in self.hits if hit.status == 200 and start < hit.at - begun <= end]
        return len(served) / (end - start)


class Numbered(trawl.Spider):
    """Pages by number; each gives its path."""

    name = "numbered"
    host = ""
    pages = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        for number in range(self.pages):
            yield trawl.Request(f"http://{self.host}/{number}")

    def parse(self, response: trawl.Response) -> dict[str, str]:
        return {"path": "/" + response.url.rpartition("/")[2]}


async def crawl_all(nginx: Nginx, cases: Sequence[Case]) -> dict[str, Run]:
    """Make all crawls, side by side in one process. A checkpoint; cancelling cancels them."""
    results: dict[str, CrawlResult] = {}

    async def make(case: Case) -> None:
        results[case.name] = await crawl_with(
            Numbered,
            load(Layer("case", case.settings)),
            spider_args={"host": f"{case.name}.localhost:{nginx.port}", "pages": case.pages},
            collect=True,
            resolve=LoopbackNames(),
            seed=SEED,
        )

    async with trio.open_nursery() as nursery:
        for case in cases:
            nursery.start_soon(make, case)
    hits = nginx.hits()
    return {
        case.name: Run(
            case=case,
            result=results[case.name],
            hits=[hit for hit in hits if hit.host.startswith(f"{case.name}.localhost")],
        )
        for case in cases
    }
