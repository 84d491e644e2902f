"""The crawl's clock, asked where there is no Trio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import trio

import trawl


async def test_a_thread_of_the_crawl_may_ask_it_for_the_time() -> None:
    told: list[datetime] = []

    class Asking(trawl.Spider):
        name = "asking"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            told.append(await trio.to_thread.run_sync(self.crawl.now_utc))
            told.append(self.crawl.now_utc())
            for _ in range(0):
                yield trawl.Request("http://a.example/")

    before = datetime.now(UTC)
    await trawl.crawl(Asking)
    assert before - timedelta(seconds=1) <= told[0] <= told[1] <= datetime.now(UTC) + timedelta(seconds=1)
