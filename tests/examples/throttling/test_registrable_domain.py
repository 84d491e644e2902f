"""examples/throttling/registrable_domain.py: one site under many names (G01, G02)."""

from __future__ import annotations

import pytest

from examples.throttling.registrable_domain import DomainManager, Forums
from trawl import Request
from trawl.testing import SimulatedWeb, simulate

NAMES = ("www.bbc.co.uk", "forums.bbc.co.uk", "news.bbc.co.uk")


async def test_g01_the_scope_is_the_registrable_domain() -> None:
    manager = DomainManager()
    assert await manager.get_scopes(Request("https://forums.bbc.co.uk/a?b#c")) == "bbc.co.uk"
    assert await manager.get_scopes(Request("https://bbc.co.uk:8443/")) == "bbc.co.uk"
    assert await manager.get_scopes(Request("https://x.books.toscrape.com/")) == "toscrape.com"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "co.uk", "[::1]:8080"])
async def test_g02_what_has_no_registrable_domain_keeps_its_host(host: str) -> None:
    assert await DomainManager().get_scopes(Request(f"http://{host}/")) == host


def test_g01_names_of_one_site_share_its_delay() -> None:
    web = SimulatedWeb()
    for name in NAMES:
        web.add_host(name, latency=0.1)
    web.add_host("127.0.0.1:8000", latency=0.1)
    settings = {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}
    sim = simulate(Forums, web, settings)
    assert sorted(sim.times("bbc.co.uk")) == [0.0, 1.0, 2.0]
    assert {send.host for send in sim.of("bbc.co.uk")} == set(NAMES)
    assert len(sim.items) == 3


def test_g01_and_g02_side_by_side() -> None:
    class Mixed(Forums):
        start_urls = [*Forums.start_urls, "http://127.0.0.1:8000/1", "http://127.0.0.1:8000/2"]
        allowed_domains = []

    web = SimulatedWeb()
    for name in (*NAMES, "127.0.0.1:8000"):
        web.add_host(name, latency=0.1)
    sim = simulate(Mixed, web, {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False})
    assert sim.times("bbc.co.uk") == [0.0, 1.0, 2.0]
    assert sim.times("127.0.0.1:8000") == [0.0, 1.0]
