"""examples/throttling/every_level.py: a scope for every level of the host (G03)."""

from __future__ import annotations

import pytest

from examples.throttling.every_level import Levels, LevelsManager
from trawl import Request
from trawl.testing import SimulatedWeb, simulate


@pytest.mark.parametrize(
    ("host", "scopes"),
    [
        ("a.b.toscrape.com", ["toscrape.com", "b.toscrape.com", "a.b.toscrape.com"]),
        ("toscrape.com", ["toscrape.com"]),
        ("a.bbc.co.uk", ["bbc.co.uk", "a.bbc.co.uk"]),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("localhost", "localhost"),
    ],
)
async def test_g03_every_level_is_a_scope(host: str, scopes: object) -> None:
    assert await LevelsManager().get_scopes(Request(f"https://{host}/x")) == scopes


def test_g03_a_request_is_charged_to_all_of_its_levels_and_waits_for_all() -> None:
    web = SimulatedWeb()
    for host in ("toscrape.com", "b.toscrape.com", "a.b.toscrape.com"):
        web.add_host(host, latency=0.2)
    settings = {
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "ROBOTSTXT_OBEY": False,
        "THROTTLING_SCOPES": {"toscrape.com": {"concurrency": 8, "delay": 0.5, "delay_per_slot": 0.0}},
    }

    class Twice(Levels):
        start_urls = [*Levels.start_urls, "https://a.b.toscrape.com/2"]

    sim = simulate(Twice, web, settings)
    by_url = {send.url: send for send in sim.sends}
    assert set(by_url["https://a.b.toscrape.com/"].scopes) == {"toscrape.com", "b.toscrape.com", "a.b.toscrape.com"}
    assert set(by_url["https://toscrape.com/"].scopes) == {"toscrape.com"}
    assert min(sim.gaps("toscrape.com")) == 0.5  # its own delay holds for all
    assert min(sim.gaps("b.toscrape.com")) >= 1.0  # b's default delay for itself and for a.b
    assert min(sim.gaps("a.b.toscrape.com")) >= 1.0
