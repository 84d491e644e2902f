"""What the running crawl says of those that wait."""

from __future__ import annotations

from collections.abc import Iterator

from trio.testing import MockClock

import trawl
from trawl.http import Response
from trawl.testing import SimulatedWeb


class Counts(trawl.Spider):
    """Links to a hundred pages of one host, and tells how many wait when the first of them is there."""

    name = "counts"
    start_urls = ("http://a.example/",)

    def parse(self, response: Response) -> Iterator[object]:
        if response.url.endswith("/1"):
            assert self.crawl is not None
            yield {"waiting": [(group.count, group.scope, group.reason.limit) for group in self.crawl.waiting(3)]}
        yield from response.follow_all(css="a")


async def test_those_that_are_not_leased_ahead_count_among_those_that_wait(autojump_clock: MockClock) -> None:  # I11
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=[f"/{n}" for n in range(1, 101)])
    run = await web.crawl(Counts, settings={"DOWNLOAD_DELAY": 5.0})
    assert run.items == [{"waiting": [(99, "a.example", "delay")]}]
