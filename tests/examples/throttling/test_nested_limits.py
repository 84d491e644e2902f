"""examples/throttling/nested_limits.py: 24 and 16 within 32 (G04)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from examples.throttling.nested_limits import BooksAndQuotes
from trawl.testing import SimulatedWeb, simulate
from trawl.testing.simulation import Simulation

BOOKS, QUOTES, BOTH = "books.toscrape.com", "quotes.toscrape.com", "toscrape.com"


def crawled(hosts: Iterable[str], most: int = 32) -> Simulation:
    web = SimulatedWeb()
    for host in hosts:
        web.add_site(host, pages=120, links=60, latency=0.5)

    class These(BooksAndQuotes):
        start_urls = [f"http://{host}/" for host in hosts]

    return simulate(These, web, {"ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS": most})


def test_g04_books_alone_reaches_24() -> None:
    sim = crawled([BOOKS])
    assert sim.most_in_flight(BOOKS) == sim.most_in_flight(BOTH) == 24
    assert len(sim.sends) == 120


def test_g04_quotes_never_passes_16() -> None:
    sim = crawled([QUOTES])
    assert sim.most_in_flight(QUOTES) == 16


@pytest.mark.parametrize("most", [32, 100, 0])
def test_g04_both_together_never_pass_32(most: int) -> None:
    sim = crawled([BOOKS, QUOTES], most)
    assert sim.most_in_flight() == sim.most_in_flight(BOTH) == 32
    assert sim.most_in_flight(BOOKS) <= 24
    assert sim.most_in_flight(QUOTES) <= 16
    assert len(sim.sends) == 240


def test_g04_the_example_as_it_is_follows_both_sites() -> None:
    web = SimulatedWeb()
    web.add_page(f"https://{BOOKS}/", ["/1", "/2"])
    web.add_page(f"https://{QUOTES}/", ["/1", "/2"])
    assert len(simulate(BooksAndQuotes, web, {"ROBOTSTXT_OBEY": False}).sends) == 6
