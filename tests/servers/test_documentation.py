"""Crawls of about 500 real pages, Debian's package of Python's documentation, served by nginx.

The pages found are compared with an independent walk of the same files, and what was asked for is read from nginx's own
access log.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest

import trawl
from tests.servers.names import LoopbackNames
from tests.servers.nginx import Hit, Nginx, running, unavailable
from tests.servers.walk import reachable
from trawl._run import CrawlResult, crawl_with
from trawl.http import Outcome
from trawl.scheduler import Attempt
from trawl.settings import Layer, load

pytestmark = pytest.mark.servers

PAGES = Path("/usr/share/doc/python3.11/html")
HOSTS = 10
DELAY = 0.1
CLOCKS_DIFFER = 0.02
"""Seconds by which nginx, which reads its clock once a round of its loop, may see a request early or late."""
SEEN_ON_TIME = 0.95
"""Share of the intervals that must look right to nginx, too: on a busy machine it now and then waits for a core between
reading its clock and reading a request."""


@pytest.fixture(scope="module")
def expected() -> set[str]:
    if not (PAGES / "index.html").is_file():
        unavailable("Python's documentation", "python3.11-doc")
    found = reachable(PAGES)
    assert len(found) > 500
    return found


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Nginx]:
    with running(tmp_path, PAGES) as server:
        yield server


class Documentation(trawl.Spider):
    """Follows all links to pages; gives the path of each page that there is."""

    name = "documentation"
    host = ""

    async def start(self) -> Any:
        yield trawl.Request(f"http://{self.host}/index.html")

    def parse(self, response: trawl.Response) -> Iterator[dict[str, str] | trawl.Request]:
        yield {"path": urlsplit(response.url).path}
        for link in response.css("a::attr(href)").getall():
            if link.partition("#")[0].endswith(".html"):
                yield self.request_for(response.urljoin(link))

    def request_for(self, url: str) -> trawl.Request:
        return trawl.Request(url)


class SpreadOverHosts(Documentation):
    """The same pages, each under one of ten names of the server."""

    name = "spread"

    def request_for(self, url: str) -> trawl.Request:
        port = self.host.rpartition(":")[2]
        if not url.startswith("http:") or f":{port}/" not in url:
            return trawl.Request(url)  # another site's: dropped, which the access log of that name would not tell
        path = urlsplit(url).path
        return trawl.Request(f"http://{name_of(path)}:{port}{path}")


def name_of(path: str) -> str:
    """Which of the server's names has a page."""
    return f"docs-{zlib.crc32(path.encode()) % HOSTS}.localhost"


def paths(items: Sequence[Any] | None) -> list[str]:
    return [item["path"] for item in items or ()]


def pages_asked_for(hits: Sequence[Hit]) -> Counter[str]:
    """How often each page was asked for; robots.txt is no page."""
    return Counter(hit.target for hit in hits if hit.target != "/robots.txt")


@attrs.frozen
class AtFullSpeed:
    """The crawl without any delay; its time is that of the work."""

    nginx: Nginx
    result: CrawlResult


@pytest.fixture(scope="module")
def at_full_speed(tmp_path_factory: pytest.TempPathFactory, expected: set[str]) -> Iterator[AtFullSpeed]:
    settings = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}
    with running(tmp_path_factory.mktemp("nginx"), PAGES) as nginx:
        yield AtFullSpeed(nginx, trawl.run(Documentation, settings, host=nginx.host, allowed_domains=["127.0.0.1"]))


def test_a_crawl_at_full_speed_finds_every_page_once(at_full_speed: AtFullSpeed, expected: set[str]) -> None:
    nginx, result = at_full_speed.nginx, at_full_speed.result
    assert result.reason == "finished"
    assert sorted(paths(result.items)) == sorted(expected)
    asked = pages_asked_for(nginx.hits())
    assert set(asked.values()) == {1}
    assert {hit.target for hit in nginx.hits() if hit.status == 200} == expected
    assert {hit.host for hit in nginx.hits()} == {nginx.host}
    assert [hit.status for hit in nginx.hits() if hit.target == "/robots.txt"] == [404]
    assert result.stats["offsite_filtered"] > 0
    assert result.stats["request_count"] == len(nginx.hits())
    assert result.stats["item_scraped_count"] == len(expected)


async def test_a_crawl_of_ten_hosts_keeps_each_ones_delay_and_uses_it(
    nginx: Nginx, expected: set[str], at_full_speed: AtFullSpeed
) -> None:
    """A01, A05 on a real wire: hosts progress side by side, each with its own spacing; nothing goes elsewhere."""
    names = LoopbackNames()
    sent: dict[str, list[float]] = defaultdict(list)

    def record(attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        if outcome is None:
            sent[urlsplit(attempt.request.url).netloc].append(now)

    settings = load(
        Layer("test", {"DOWNLOAD_DELAY": DELAY, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "RANDOMIZE_DOWNLOAD_DELAY": False})
    )
    result = await crawl_with(
        SpreadOverHosts,
        settings,
        spider_args={"host": f"{name_of('/index.html')}:{nginx.port}", "allowed_domains": ["localhost"]},
        collect=True,
        resolve=names,
        recorder=record,
    )
    assert result.reason == "finished"
    assert sorted(paths(result.items)) == sorted(expected)
    hits = nginx.hits()
    assert set(pages_asked_for(hits).values()) == {1}
    assert {hit.host for hit in hits} == {f"docs-{n}.localhost:{nginx.port}" for n in range(HOSTS)}
    assert names.asked <= {f"docs-{n}.localhost" for n in range(HOSTS)}
    seen = times_by_host(hits)
    assert {host: len(times) for host, times in sent.items()} == {host: len(times) for host, times in seen.items()}
    assert min(intervals(sent)) >= DELAY - 1e-6
    assert sum(interval >= DELAY - CLOCKS_DIFFER for interval in intervals(seen)) >= SEEN_ON_TIME * len(intervals(seen))
    # One host after another would take the delay for each page, and the work beside it.
    one_by_one = DELAY * sum(map(len, seen.values()))
    assert result.elapsed < one_by_one / 2 + at_full_speed.result.elapsed, "hosts waited for one another"


def intervals(times: Mapping[str, Sequence[float]]) -> list[float]:
    """The seconds between two requests to one host, of all hosts."""
    return [later - earlier for host in times.values() for earlier, later in pairwise(host)]


def times_by_host(hits: Sequence[Hit]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for hit in hits:
        times[hit.host].append(hit.at)
    return times
