"""What a simulation says is what happens: the same spider and settings on the simulated web and on nginx."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

import trawl
from tests.servers.names import LoopbackNames
from tests.servers.nginx import Nginx, running
from tests.watched_crawl import crawl_with
from trawl.engine import Crawl
from trawl.http import Outcome
from trawl.scheduler import Attempt
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

pytestmark = pytest.mark.servers

SEED = 7
A_MOMENT = 0.005
"""Seconds that a send on a quiet machine may be late; where delays count from send to send, they add up."""

EARLY = 0.002
NAP = 0.01
SENDS = (1 + 7) + (1 + 12 + 1 + 1) + (1 + 4)
"""Of each host: robots.txt, its pages, and on one a redirect and its target."""


def links(*paths: object) -> str:
    """A page with these links."""
    return "".join(f"<a href='/{path}'>a link</a>" for path in paths)


PAGES: Mapping[str, Mapping[str, str]] = {
    "slots": {
        **{f"/{n}": links() for n in range(7)},
        "/1": links("/jitter.localhost:{port}/0"),
        "/2": links("/robots.localhost:{port}/0"),
    },
    "jitter": {**{f"/{n}": links() for n in range(13)}, "/0": links(*range(1, 12), "moved")},
    "robots": {
        **{f"/{n}": links() for n in range(4)},
        "/0": links(1, 2, 3),
        "/robots.txt": "User-agent: *\nCrawl-delay: 0.4\n",
    },
}
"""The pages of three hosts below ``localhost``; the one that is redirected is not among them."""

SERVER = """
        default_type text/html;
        location / {{ root {root}/$host; }}
        location = /moved {{ return 302 /12; }}
"""


class Three(trawl.Spider):
    """Seven pages of one host; two of them lead to two other hosts."""

    name = "three"
    port = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        for number in range(7):
            yield trawl.Request(f"http://slots.localhost:{self.port}/{number}")

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        yield from response.follow_all(css="a")


def settings(port: int) -> dict[str, object]:
    """Two slots with both delays; delays drawn at random, and a redirect; a robots.txt that asks for a delay."""
    return {
        "THROTTLING_SCOPES": {
            f"slots.localhost:{port}": {"concurrency": 2, "delay": 0.3, "delay_per_slot": 1.0, "jitter": False},
            f"jitter.localhost:{port}": {"delay": 0.13, "delay_per_slot": 0.0, "jitter": 0.4},
        },
        "DOWNLOAD_DELAY": 0.1,
        "DOWNLOAD_DELAY_PER_SLOT": 0.0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
    }


def simulated(port: int) -> list[tuple[str, float]]:
    """What is sent, and when, on a web without latency."""
    web = SimulatedWeb()
    for host, pages in PAGES.items():
        handler = partial(answer, pages, port)
        web.add_host(f"{host}.localhost:{port}", handler=handler, robots=pages.get("/robots.txt"))
    return [(send.url, send.time) for send in simulate(Three, web, settings(port), seed=SEED, port=port).sends]


def answer(pages: Mapping[str, str], port: int, request: trawl.Request) -> SimulatedResponse:
    """What nginx would say."""
    path = urlsplit(request.url).path
    if path == "/moved":
        return SimulatedResponse(status=302, headers={"Location": "/12"})
    return SimulatedResponse(body=pages[path].format(port=port), headers={"Content-Type": "text/html"})


class Watching:
    """Notes the sends of a real crawl, and how late the machine wakes who sleeps."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, float]] = []
        self.latest = 0.0

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        if outcome is None:
            self.sends.append((attempt.request.url, now))

    async def watch(self, crawl: Crawl) -> None:
        while True:
            due = trio.current_time() + NAP
            await trio.sleep_until(due)
            self.latest = max(self.latest, trio.current_time() - due)


async def real(port: int) -> tuple[list[tuple[str, float]], float]:
    """What is sent to nginx, and when; and how late this machine was at worst meanwhile, in seconds."""
    watching = Watching()
    await crawl_with(
        Three,
        load(Layer("test", settings(port))),
        spider_args={"port": port},
        resolve=LoopbackNames(),
        watchers=[watching.watch],
        recorder=watching.record,
        seed=SEED,
    )
    begun = watching.sends[0][1]
    return [(url, at - begun) for url, at in watching.sends], watching.latest


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Nginx]:
    root, folder = tmp_path / "root", tmp_path / "nginx"
    folder.mkdir()
    with running(folder, root, server=SERVER.format(root=root)) as server:
        for host, pages in PAGES.items():
            for path, text in pages.items():
                file = root / f"{host}.localhost{path}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.format(port=server.port), encoding="utf-8")
        yield server


async def test_a_simulated_crawl_and_a_real_one_send_the_same_at_the_same_times(nginx: Nginx) -> None:
    """A05, A06, A08, A18, A20, D09: with one seed the draws are the same too; only the machine's lateness is added."""
    expected = await trio.to_thread.run_sync(simulated, nginx.port)
    found, latest = await real(nginx.port)
    times = dict(found)
    assert len(found) == len(expected) == SENDS
    assert set(times) == {url for url, _ in expected}
    sent_before: Counter[str] = Counter()
    for url, at in expected:
        host = urlsplit(url).netloc
        sent_before[host] += 1
        late = times[url] - at
        assert -EARLY < late < A_MOMENT * (sent_before[host] + 1) + latest, f"{url}: {late:g} s late"
    allowed = A_MOMENT * max(sent_before.values()) + latest
    for (earlier, at), (later, then) in combinations(expected, 2):
        assert times[earlier] < times[later] or then - at <= allowed, f"{later} was sent before {earlier}"
