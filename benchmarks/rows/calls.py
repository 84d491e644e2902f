"""The number of Python calls inside trawl for one request, and the number of modules with these calls.

The row runs two crawls in memory that differ only in the number of pages. So the additional calls of the longer crawl,
divided by the additional pages, are the calls per page: for admission, frontier, scheduler, the send, the callback, one
item and one link. Other programs on the machine do not affect these numbers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import loaded, timed
from benchmarks.figures import Figure
from benchmarks.wires import NullTransport

__all__ = ["a_request", "calls_of"]

PAGES = 500
PACKAGE = str(Path(trawl.__file__).parent)


class Chain(trawl.Spider):
    """Each page yields an item and the next request."""

    name = "chain"
    pages = PAGES
    start_urls = ["http://host.example/0"]  # noqa: RUF012

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield an item and the next request."""
        number = int(response.url.rpartition("/")[2]) + 1
        yield {"number": number}
        if number < self.pages:
            yield trawl.Request(f"http://host.example/{number}")


def calls_of(pages: int) -> Counter[CodeType]:
    """Return how often each function of trawl is called or resumed in a crawl of ``pages`` pages."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code] += 1

    settings = loaded()
    sys.setprofile(note)
    try:
        crawl = timed(Chain, settings, spider_args={"pages": pages}, transport=NullTransport())
    finally:
        sys.setprofile(None)
    if crawl.result.stats["response_count"] != pages:
        raise RuntimeError(f"{crawl.result.stats['response_count']} responses instead of {pages}")
    return calls


def a_request(bench: Bench) -> list[Figure]:
    """Return calls and modules per request."""
    calls_of(2)  # the first crawl of a process imports modules and fills caches
    more = calls_of(2 * PAGES)
    more.subtract(calls_of(PAGES))
    a_page = {code: count / PAGES for code, count in more.items() if count > PAGES / 2}
    modules = {code.co_filename for code in a_page}
    return [
        Figure(name="calls inside trawl per request", value=round(sum(a_page.values())), most=345),
        Figure(name="modules involved", value=len(modules), most=50),
    ]


if __name__ == "__main__":
    calls_of(2)
    found = calls_of(2 * PAGES)
    found.subtract(calls_of(PAGES))
    for code, count in sorted(found.items(), key=lambda pair: (pair[0].co_filename, pair[0].co_firstlineno)):
        if count > PAGES / 2:
            place = f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_firstlineno}"
            print(f"{count / PAGES:8.2f}  {place:44} {code.co_qualname}")
