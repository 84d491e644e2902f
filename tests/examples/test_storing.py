"""What becomes of items: examples/prices.py, loaded.py, covers.py and exports.py, on small copies of their sites."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from examples.covers import CoversSpider
from examples.exports import Exports
from examples.loaded import Loaded
from examples.prices import Price, Prices
from tests.examples.sandboxes import AUTHORS, BOOKS, QUOTES, add_books, add_quotes, book_page, page
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

SITE = "http://127.0.0.1:8765/books"


def a_shop(**books: str) -> SimulatedWeb:
    """A list of books by name, with their prices."""
    web = SimulatedWeb()
    blocks = [
        f'<article class="product_pod"><h3><a href="{name}" title="{name}">...</a></h3>'
        f'<p class="price_color">£{price}</p></article>'
        for name, price in books.items()
    ]
    web.add_page(f"{SITE}/", body=page("".join(blocks)))
    return web


def kept(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


def test_prices_keeps_each_price_once_and_drops_what_it_knows(tmp_path: Path) -> None:
    database = {"DATABASE": str(tmp_path / "prices.sqlite")}
    first = simulate(Prices, a_shop(Emma="10.00", Dune="20.00"), database)
    assert first.items == [Price(f"{SITE}/Emma", "Emma", 10.0), Price(f"{SITE}/Dune", "Dune", 20.0)]
    assert simulate(Prices, a_shop(Emma="10.00", Dune="20.00"), database).stats["item_dropped_count"] == 2
    late = {**database, "DOWNLOAD_DELAY": 3.0}  # the wall clock of each simulation begins at the same instant
    third = simulate(Prices, a_shop(Emma="10.00", Dune="15.00"), late)
    assert third.items == [Price(f"{SITE}/Dune", "Dune", 15.0)]
    rows = kept(tmp_path / "prices.sqlite", "SELECT title, price FROM prices ORDER BY title, since")
    assert rows == [("Dune", 20.0), ("Dune", 15.0), ("Emma", 10.0)]


def test_loaded_makes_books_of_pages_and_keeps_what_does_not_fit_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    web = SimulatedWeb()
    add_books(web)
    for name, (_, _, price, stars, stock) in BOOKS.items():
        facts = (
            f'<p class="price_color">{"no price" if name.startswith("soumission") else f"£{price}"}</p>'
            f'<p class="instock availability"><i></i> In stock ({stock} available) </p><p class="star-rating {stars}">'
            '<div id="product_description"></div><p>A tale of ... ...more</p>'
        )
        web.add_page(f"{SITE}/catalogue/{name}/index.html", body=page(book_page(name) + facts))
    sim = simulate(Loaded, web)
    assert sim.stats["item_scraped_count"] == 3
    titles = {"A Light in the Attic": (51.77, 22, 3), "Tipping the Velvet": (53.74, 20, 1)}
    books = [json.loads(line) for line in Path("books.jsonl").read_text("utf-8").splitlines()]
    assert sorted(books, key=lambda book: book["title"]) == [
        {"title": title, "price": price, "in_stock": stock, "stars": stars, "description": "A tale of ..."}
        for title, (price, stock, stars) in titles.items()
    ]
    [wrong] = [json.loads(line) for line in Path("invalid.jsonl").read_text("utf-8").splitlines()]
    assert wrong["url"] == f"{SITE}/catalogue/soumission_998/index.html"
    assert "price" in wrong["error"]


def test_covers_are_kept_by_name_with_two_thumbnails(tmp_path: Path) -> None:
    def cover(size: tuple[int, int]) -> bytes:
        content = io.BytesIO()
        Image.new("RGB", size, (200, 0, 0)).save(content, "JPEG")
        return content.getvalue()

    names = {"Emma": "media/emma.jpg", "Dune": "media/dune.jpg", "Tiny": "media/tiny.jpg"}
    blocks = [f'<article class="product_pod"><img src="{at}" alt="{name}"></article>' for name, at in names.items()]
    web = SimulatedWeb()
    web.add_page(f"{SITE}/", body=page("".join(blocks)))
    web.add_page(f"{SITE}/media/emma.jpg", body=cover((400, 600)), headers={"Content-Type": "image/jpeg"})
    web.add_page(f"{SITE}/media/tiny.jpg", body=cover((10, 10)), headers={"Content-Type": "image/jpeg"})
    web.add_page(f"{SITE}/media/dune.jpg", status=404)

    store = {"IMAGES_STORE": str(tmp_path)}
    sim = simulate(CoversSpider, web, store)
    [emma] = sim.items
    assert (emma.title, emma.images[0]["path"], sim.stats["item_dropped_count"]) == ("Emma", "full/emma.jpg", 2)
    sizes = {}
    for path in sorted(tmp_path.rglob("*.jpg")):
        with Image.open(path) as image:
            sizes[path.relative_to(tmp_path).parts[-2]] = image.size
    assert sizes == {"full": (400, 600), "large": (107, 160), "small": (53, 80)}

    again = simulate(CoversSpider, web, store)
    assert f"{SITE}/media/emma.jpg" not in [send.url for send in again.sends]


def test_exports_writes_each_feed_its_own_way(tmp_path: Path) -> None:
    web = SimulatedWeb()
    add_quotes(web, "http://127.0.0.1:8765")
    simulate(Exports, web, folder=str(tmp_path))
    with open(tmp_path / "authors.csv", encoding="utf-8", newline="") as file:
        assert sorted(csv.reader(file)) == [
            ["Albert Einstein", "March 14, 1879"],
            ["J.K. Rowling", "July 31, 1965"],
            ["name", "date of birth"],
        ]
    with gzip.open(tmp_path / "quotes-00001.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert {json.loads(line)["text"] for line in lines} == {text for text, _, _ in QUOTES}
    short = json.loads((tmp_path / "short.json").read_text("utf-8"))
    assert {quote["text"] for quote in short} == {text for text, _, _ in QUOTES if len(text) <= 80}
    assert kept(tmp_path / "all.sqlite", "SELECT count(*), count(born) FROM found") == [(7, len(AUTHORS))]


def test_exports_begins_a_new_file_of_quotes_at_a_hundred(tmp_path: Path) -> None:
    blocks = [f'<div class="quote"><span class="text">“{number}”</span></div>' for number in range(101)]
    web = SimulatedWeb()
    web.add_host("127.0.0.1:8765", handler=lambda request: SimulatedResponse(body=page("".join(blocks))))
    simulate(Exports, web, folder=str(tmp_path))
    counts = [len(gzip.decompress(path.read_bytes()).splitlines()) for path in sorted(tmp_path.glob("quotes-*"))]
    assert counts == [100, 1]
