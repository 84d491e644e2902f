"""examples/quotes.py against a small copy of its site, on the virtual clock."""

from __future__ import annotations

from itertools import pairwise

from examples.quotes import Author, Quote, Quotes
from tests.examples.sandboxes import AUTHORS, QUOTES, add_quotes
from trawl.testing import SimulatedWeb, simulate
from trawl.testing.demo import DEMO_HOST


def test_every_quote_and_every_author_become_records() -> None:
    web = SimulatedWeb()
    add_quotes(web, f"http://{DEMO_HOST}")
    sim = simulate(Quotes, web)
    assert sim.reason == "finished"
    quotes = [item for item in sim.items if isinstance(item, Quote)]
    authors = [item for item in sim.items if isinstance(item, Author)]
    assert {(quote.text, quote.author, tuple(quote.tags)) for quote in quotes} == {
        (text, AUTHORS[author][0], tuple(tags)) for text, author, tags in QUOTES
    }
    assert len(quotes) == len(QUOTES)
    assert sorted(authors, key=lambda author: author.name) == [
        Author("Albert Einstein", "March 14, 1879", "Ulm, Germany"),
        Author("J.K. Rowling", "July 31, 1965", "Yate, South Gloucestershire, England, The United Kingdom"),
    ]


def test_its_delay_holds() -> None:
    web = SimulatedWeb()
    add_quotes(web, f"http://{DEMO_HOST}")
    sim = simulate(Quotes, web, settings={"RANDOMIZE_DOWNLOAD_DELAY": False})
    times = [send.time for send in sim.sends]
    assert len(times) == 1 + 3 + len(AUTHORS)  # robots.txt, pages, authors
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.5


def test_a_tag_chooses_the_quotes() -> None:
    web = SimulatedWeb()
    add_quotes(web, f"http://{DEMO_HOST}")
    sim = simulate(Quotes, web, tag="choices")
    assert {item.author for item in sim.items if isinstance(item, Quote)} == {"J.K. Rowling"}
