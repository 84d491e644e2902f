"""Renders pages with trawl: ``rendering_with_trawl.py URL PAGES CHROMIUM [DELAY [KILLS]]``. Prints one line of JSON.

With KILLS, the browser is killed so many times, each time after the same number of pages.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import trio

import trawl
from benchmarks.crawling import UNTHROTTLED, Sends
from benchmarks.tree import group_memory
from trawl._run import crawl_with
from trawl.browser.devtools import PROFILE
from trawl.settings import Layer, load

URL, PAGES, CHROMIUM = sys.argv[1], int(sys.argv[2]), sys.argv[3]
DELAY, KILLS = (float(sys.argv[4]) if len(sys.argv) > 4 else 0.0), (int(sys.argv[5]) if len(sys.argv) > 5 else 0)


def browsers() -> Iterator[int]:
    """Yield the browsers of this process, which lead their process groups."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"{PROFILE}{os.getpid()}-".encode() in (folder / "cmdline").read_bytes()
            if is_ours and os.getpgid(int(folder.name)) == int(folder.name):
                yield int(folder.name)
        except OSError:
            continue


class Rendered(trawl.Spider[Any]):
    """Yields the items of each page."""

    name = "rendered"
    memory: tuple[int, ...] = ()
    killed = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield the requests."""
        self.seen: Counter[str] = Counter()
        for number in range(PAGES):
            yield trawl.Request(f"{URL}/page/{number}", meta={"browser": trawl.Page(wait_for=".item")})

    def parse(self, response: trawl.Response) -> None:
        """Count the page. Read the memory ten times, and kill the browser if it is time."""
        if len(response.css(".item")) == 10:
            self.seen[response.url] += 1
        count = sum(self.seen.values())
        if count % max(1, PAGES // 10) == 0:
            type(self).memory += (group_memory(os.getpid()),)
        if KILLS and count % (PAGES // (KILLS + 1)) == 0 and self.killed < KILLS:
            for pid in browsers():
                os.killpg(pid, signal.SIGKILL)
                self.killed += 1


def main() -> None:
    """Crawl and print the result."""
    sends = Sends()
    own = {"BROWSER_PATH": CHROMIUM, "BROWSER_SANDBOX": False, "DOWNLOAD_DELAY": DELAY, "RETRY_TIMES": 5}
    watched: list[Rendered] = []

    async def watch(crawl: Any) -> None:
        await trio.lowlevel.checkpoint()
        watched.append(crawl.spider)

    began = time.perf_counter()
    values = load(Layer("benchmark", {**UNTHROTTLED, **own}))
    result = trio.run(partial(crawl_with, Rendered, values, recorder=sends.record, watchers=[watch]))
    spider = watched[0]
    told = {
        "pages": len(spider.seen),
        "twice": sum(count - 1 for count in spider.seen.values()),
        "seconds": time.perf_counter() - began,
        "memory": Rendered.memory,
        "killed": spider.killed,
        "gap": min(sends.gaps(), default=0.0),
        "sends": sum(map(len, sends.times.values())),
        "failed": {key: value for key, value in result.stats.items() if key.startswith("browser/failed")},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
