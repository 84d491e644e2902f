"""examples/throttling/per_proxy.py: scopes of proxies beside the site's (G10, P15)."""

from __future__ import annotations

from examples.throttling.per_proxy import ProxyManager, Rotating
from trawl import Request
from trawl.testing import SimulatedWeb, simulate

EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}
SITES = ("books.toscrape.com", "quotes.toscrape.com")
A, B = "proxy:a.proxy.example", "proxy:b.proxy.example"


async def test_g10_the_proxy_is_a_scope_beside_the_site() -> None:
    manager = ProxyManager()
    through = Request("https://books.toscrape.com/", meta={"proxy": "http://user:secret@a.proxy.example:8080"})
    assert await manager.get_scopes(through) == {"books.toscrape.com", A}
    assert await manager.get_scopes(Request("https://books.toscrape.com/")) == "books.toscrape.com"


def test_g10_p15_both_hold_site_and_proxy() -> None:
    web = SimulatedWeb()
    for site in SITES:
        web.add_host(site, latency=1.5)
    sim = simulate(Rotating, web, EXACT)
    assert len(sim.items) == 20
    assert len(sim.of(A)) == len(sim.of(B)) == 10
    for site in SITES:
        assert min(sim.gaps(site)) >= 0.25
    assert sim.most_in_flight(A) == 2
    assert sim.gaps(B) == [1.0] * 9
