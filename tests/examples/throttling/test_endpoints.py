"""examples/throttling/endpoints.py: a scope for each endpoint of an API (G05)."""

from __future__ import annotations

from itertools import pairwise

from examples.throttling.endpoints import API, EndpointManager, Endpoints
from trawl import Request
from trawl.testing import SimulatedWeb, simulate

FAST, SLOW = f"{API}/fast-endpoint", f"{API}/slow-endpoint"


async def test_g05_an_endpoint_is_a_scope_and_other_domains_keep_theirs() -> None:
    manager = EndpointManager()
    assert await manager.get_scopes(Request(f"https://{FAST}?page=3")) == FAST
    assert await manager.get_scopes(Request(f"https://{SLOW}/below/it")) == SLOW
    assert await manager.get_scopes(Request("https://books.toscrape.com/fast-endpoint")) == "books.toscrape.com"


def test_g05_each_endpoint_has_its_own_pace_and_no_common_limit() -> None:
    web = SimulatedWeb()
    web.add_host(API, latency=2.0)
    sim = simulate(Endpoints, web, {"ROBOTSTXT_OBEY": False})
    assert sim.gaps(FAST) == [0.08] * 9
    assert sim.gaps(SLOW) == [5.0] * 9
    assert sim.times(FAST)[0] == sim.times(SLOW)[0] == 0.0
    assert sim.most_in_flight(FAST) == 10  # far more than one host may have by default


def test_g05_other_domains_keep_the_defaults_beside_them() -> None:
    class WithBooks(Endpoints):
        start_urls = [*Endpoints.start_urls, *(f"https://books.toscrape.com/{page}" for page in range(5))]

    web = SimulatedWeb()
    web.add_host(API, latency=0.1)
    web.add_host("books.toscrape.com", latency=0.1)
    sim = simulate(WithBooks, web, {"ROBOTSTXT_OBEY": False})
    assert sim.gaps("books.toscrape.com") == [1.0] * 4
    assert sim.gaps(SLOW) == [5.0] * 9
    assert min(later - earlier for earlier, later in pairwise(sim.times(FAST))) > 0.0799
