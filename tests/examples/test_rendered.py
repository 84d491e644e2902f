"""examples/rendered.py: a real Chromium scrolls through the page of the demo, which is simulated."""

from __future__ import annotations

import pytest

from examples.rendered import Rendered
from tests.servers.rendering import crawl
from trawl.testing import DemoSite, SimulatedWeb

pytestmark = pytest.mark.servers


async def test_the_quotes_of_the_page_are_read_after_two_scrolls() -> None:
    demo = DemoSite()
    web = SimulatedWeb()
    web.add_host(demo.host, handler=demo, robots=demo.robots)
    result = await crawl(Rendered, web, pages="2")
    items = result.items or []
    assert len(items) >= 20
    assert items[0].keys() == {"text", "author"}
    assert all(item["author"] and "\u201c" not in item["text"] for item in items)
