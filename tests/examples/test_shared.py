"""examples/shared.py, its spider alone; tests/servers/test_example_shared.py has two processes and a server."""

from __future__ import annotations

from urllib.parse import urlsplit

from examples.shared import Shared
from trawl.testing import DemoSite, SimulatedWeb, simulate


def test_the_pages_of_both_hosts_are_items_and_each_has_its_own_delay() -> None:
    web = SimulatedWeb()
    site = DemoSite()
    hosts = [urlsplit(url).netloc for url in Shared.start_urls]
    for host in hosts:
        web.add_host(host, handler=site, robots=DemoSite.robots)
    sim = simulate(Shared, web, {"RANDOMIZE_DOWNLOAD_DELAY": False})
    assert [len([item for item in sim.items if host in item["url"]]) for host in hosts] == [10, 5]
    assert [sim.gaps(host) for host in hosts] == [[1.0] * 10, [1.0] * 5]
