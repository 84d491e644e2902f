"""nginx with ``limit_req``, and crawls of it, judged by nginx's access log.

The host name selects the limit: ``five-*.localhost`` allows 5 requests per second, and ``fifty-*.localhost`` allows 50.
Each name has its own bucket, so that crawls can run at the same time. ``nodelay`` and ``burst=5`` allow six requests at
once after a pause, and then one request every 1/rate seconds. Earlier requests get a 429 at once.
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
"""Directives of the http block. Requests with an empty key are not limited."""

SEED = 2
"""The seed of the crawls' random numbers, so that runs differ only because of the machine."""

SERVER = """
        limit_req zone=five burst=5 nodelay;
        limit_req zone=fifty burst=5 nodelay;
        location / { try_files /page.html =404; }
        location = /robots.txt { }
"""
"""Directives of the server block: the same page for every path, and no robots.txt."""


def write_page(root: Path) -> None:
    """Write the page to nginx's root folder."""
    (root / "page.html").write_text("<!doctype html><title>a page</title><p>One of many.\n", encoding="utf-8")


@attrs.frozen(kw_only=True)
class Case:
    """The plan of a crawl.

    Attributes:
        name: Its host name without ``.localhost``. Starts with ``five`` or ``fifty``.
        pages: Number of pages to crawl.
        settings: The settings of the crawl.
    """

    name: str
    pages: int
    settings: Mapping[str, object]

    @property
    def allowed(self) -> float:
        """Requests per second that the server allows."""
        return 50.0 if self.name.startswith("fifty") else 5.0


RAMPED = ("five-rampup", "fifty-rampup")
"""The crawls with rampup, with all other settings at their defaults, as the documentation advises."""

FULL_SPEED = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


CASES = [
    *(
        Case(name=name, pages=pages, settings={"THROTTLING_SCOPES": {f"{name}.localhost": {"rampup": True}}})
        for name, pages in zip(RAMPED, (450, 2200), strict=True)
    ),
    *(Case(name=f"{name}-plain", pages=100, settings=FULL_SPEED) for name in ("five", "fifty")),
]
"""The crawls: with rampup, which starts slowly, and without it at full speed."""


@attrs.frozen(kw_only=True)
class Run:
    """A finished crawl.

    Attributes:
        case: The plan.
        result: The crawl's result.
        hits: The requests in nginx's access log, in order.
    """

    case: Case
    result: CrawlResult
    hits: Sequence[Hit]

    @property
    def lost(self) -> set[str]:
        """Pages without an item."""
        return {f"/{n}" for n in range(self.case.pages)} - {item["path"] for item in self.result.items or ()}

    @property
    def refused(self) -> list[float]:
        """Times of the 429 responses, in seconds since the first request."""
        return [hit.at - self.hits[0].at for hit in self.hits if hit.status == 429]

    @property
    def took(self) -> float:
        """Seconds from the first request to the last."""
        return self.hits[-1].at - self.hits[0].at

    def rate(self, start: float, end: float) -> float:
        """Return the pages per second that nginx served between two times, in seconds since the first request."""
        begun = self.hits[0].at
        served = [hit for hit in self.hits if hit.status == 200 and start < hit.at - begun <= end]
        return len(served) / (end - start)


class Numbered(trawl.Spider):
    """Requests pages by number. Each yields its path."""

    name = "numbered"
    host = ""
    pages = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        for number in range(self.pages):
            yield trawl.Request(f"http://{self.host}/{number}")

    def parse(self, response: trawl.Response) -> dict[str, str]:
        return {"path": "/" + response.url.rpartition("/")[2]}


async def crawl_all(nginx: Nginx, cases: Sequence[Case]) -> dict[str, Run]:
    """Run all crawls at the same time in one process. A checkpoint. Cancelling it cancels the crawls."""
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
