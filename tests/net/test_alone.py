"""A page that fails by itself ends after its retries, over the real transport too (B20): no outage costs 15 minutes."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.net.badserver import BEHAVIOURS, Authority, clock, is_fine, serving
from tests.net.crawls import crawled
from trawl.settings import Layer, load

__all__ = ["clock"]

USUAL = load(Layer("test", {}))
ONCE_MORE = {
    **{name: USUAL[name] for name in ("BACKOFF_EXCEPTIONS", "BACKOFF_HTTP_CODES", "RETRY_ENABLED")},
    "RETRY_TIMES": 1,
}


@pytest.mark.parametrize("name", ["closes_in_the_body", "resets", "is_not_http", "closes_without_an_answer"])
async def test_b20_a_page_that_is_never_whole_is_sent_once_more_and_ends(clock: MockClock, name: str) -> None:
    async with serving(BEHAVIOURS[name]) as server:
        began = trio.current_time()
        run = await crawled([server.url], ONCE_MORE)
        assert run.only.url == server.url
        assert len(server.heads) == 2
        assert trio.current_time() - began < 10.0


async def test_b20_so_is_http_on_a_port_that_speaks_tls(clock: MockClock) -> None:
    async with serving(is_fine, Authority().server()) as server:
        run = await crawled([server.url.replace("https:", "http:")], ONCE_MORE)
        assert run.only.after < 10.0
        assert server.connected == 2
