"""examples/books.py against a small copy of its site, on the virtual clock."""

from __future__ import annotations

import logging

import pytest

from examples.books import Books
from tests.examples.sandboxes import BOOKS, add_books
from trawl.testing import SimulatedWeb, simulate


def test_every_book_becomes_a_record() -> None:
    web = SimulatedWeb()
    add_books(web)
    sim = simulate(Books, web)
    assert sim.reason == "finished"
    books = {item["title"]: item for item in sim.items}
    assert len(sim.items) == len(books) == len(BOOKS)
    assert books["A Light in the Attic"] == {
        "upc": "0001_citta-eht-ni-thgil-a",
        "title": "A Light in the Attic",
        "category": "Poetry",
        "price": 51.77,
        "in_stock": 22,
        "stars": 3,
        "url": "http://127.0.0.1:8765/books/catalogue/a-light-in-the-attic_1000/index.html",
    }


def test_a_book_that_is_gone_is_said_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb()
    add_books(web, missing="soumission_998")
    with caplog.at_level(logging.WARNING, logger="books"):
        sim = simulate(Books, web)
    assert {item["title"] for item in sim.items} == {"A Light in the Attic", "Tipping the Velvet"}
    assert [record.getMessage() for record in caplog.records if record.name == "books"] == [
        "no record: GET http://127.0.0.1:8765/books/catalogue/soumission_998/index.html: answered 404"
    ]
