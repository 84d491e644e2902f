"""Spiders as Scrapy's users have them, run with only their import lines changed: ``scrapy`` becomes ``trawl``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compat.site import web
from tests.examples.sandboxes import AUTHORS, QUOTES
from trawl.cli import main
from trawl.cli.load import load_spider
from trawl.testing import Simulation, simulate

SPIDERS = Path(__file__).parent / "spiders"
SETTINGS = {"RANDOMIZE_DOWNLOAD_DELAY": False}


def moved(text: str) -> str:
    """A spider's source with its import lines changed, and nothing else."""
    text = re.sub(r"^import scrapy$", "import trawl as scrapy", text, flags=re.M)
    return re.sub(r"^from scrapy((\.\w+)* import)", r"from trawl\1", text, flags=re.M)


@pytest.fixture
def crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Simulation]]:
    """Runs one of the spiders, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)

    def run(name: str, **arguments: Any) -> Simulation:
        path = tmp_path / f"{name}.py"
        path.write_text(moved((SPIDERS / f"{name}.py").read_text("utf-8")), "utf-8")
        sim = simulate(load_spider(str(path)), web(), SETTINGS, errors="collect", **arguments)
        assert sim.stats.get("spider_exceptions", 0) == 0
        return sim

    yield run
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def fields(sim: Simulation) -> list[dict[str, Any]]:
    """The items of a crawl as dictionaries, in an order that does not depend on the crawl's."""
    return sorted((dict(item) for item in sim.items), key=repr)


Expected = list[Mapping[str, Any]]

EXPECTED: dict[str, Expected] = {
    "tutorial": [{"text": f"“{text}”", "author": AUTHORS[author][0], "tags": tags} for text, author, tags in QUOTES],
    "authors": [{"name": name, "birthdate": born} for name, born, _ in AUTHORS.values()],
    "login": [{"secret": "42", "logout": True}],
    "shop": [
        {"id": n, "name": f" Thing  {n}", "link_text": text, "description": f"All about {n}"}
        for n, text in (("9", "Nine"), *((n, f" Thing {n} ") for n in ("11", "12", "21", "22")))
    ],
    "sitemap": [{"item": "http://www.shop.example/item.php?id=1"}, {"other": "http://www.shop.example/about"}],
    "news": [{"id": "1", "name": "A b"}, {"id": "2", "name": None}],
    "rows": [{"id": "1", "name": "One; two"}, {"id": "2", "name": "Two"}],
    "errors": [
        {"url": "http://www.shop.example/", "status": 200},
        {"url": "http://status.example/404", "status": 404, "retries": 0},
        {"url": "http://status.example/500", "status": 500, "retries": 1},
        {"url": "http://no-such-host.example/", "status": None, "retries": 0},  # its robots.txt was tried again
    ],
    "scroll": [{"author": f"Author {page}", "text": f"Text {page}"} for page in (1, 2, 3)],
    "posting": [
        {"method": "POST", "query": "trio"},
        {"method": "POST", "query": "curl"},
        {"form": {"name": ["John Doe"], "age": ["27"]}},
    ],
    "passing": [
        {"missing": 404, "why": "gone", "referer": "http://www.shop.example/category.php?id=1"},
        *(
            {
                "title": f"Thing 1{n}",
                "listed_on": "http://www.shop.example/category.php?id=1",
                "position": n - 1,
                "depth": 1,
            }
            for n in (1, 2)
        ),
    ],
    "cookies": [
        {"jar": 0, "sent": "currency=USD; session=dollar"},
        {"jar": 1, "sent": "currency=UYU; session=peso"},
    ],
    "inline": [{"name": " Thing  1", "description": "All about 1"}],
    "links": [  # the start page comes twice, as it links to itself
        {"url": "http://www.shop.example/", "title": "/", "from_response": "/"},
        {"url": "http://www.shop.example/", "title": "/", "from_response": "/"},
        {"url": "http://www.shop.example/about", "title": "/about", "from_response": "/about"},
        {"file": "http://www.shop.example/list.csv", "size": 3},
    ],
    "table": [
        row
        for page in (1, 2, 3)
        for row in (
            {"name": "Pen", "price": f"{page}.50", "stock": "7", "link": "http://files.example/Pen"},
            {"name": "Desk", "price": "120.00", "stock": "none", "link": "http://files.example/Desk"},
        )
    ],
    "pipelined": [{"name": "Pen", "price": 1.5}],
    "plain_callbacks": [{"name": "Thing 9"}],
    "fed": [{"thing": "1"}, {"thing": "2"}],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_spider_runs_as_it_did_after_its_import_lines_have_changed(
    name: str, crawl: Callable[..., Simulation]
) -> None:
    sim = crawl(name)
    assert sim.reason == "finished"
    assert fields(sim) == sorted(map(dict, EXPECTED[name]), key=repr)


def test_one_saves_pages_as_files(crawl: Callable[..., Simulation], tmp_path: Path) -> None:
    assert crawl("saving").reason == "finished"
    for page, words in ((2, QUOTES[2][0]), (3, QUOTES[4][0])):
        assert words in (tmp_path / f"quotes-{page}.html").read_text("utf-8")


def test_one_takes_an_argument(crawl: Callable[..., Simulation]) -> None:
    assert {item["author"] for item in crawl("tagged", tag="choices").items} == {"J.K. Rowling"}
    assert len(crawl("tagged").items) == len(QUOTES)


def test_one_that_may_not_log_in_says_so(crawl: Callable[..., Simulation], caplog: pytest.LogCaptureFixture) -> None:
    assert crawl("login", user="nobody").items == []
    assert "Login failed" in caplog.text


def test_one_keeps_statistics_and_looks_at_its_settings(crawl: Callable[..., Simulation]) -> None:
    stats = crawl("counting").stats
    assert (stats["quotes/pages"], stats["quotes/quotes"], stats["quotes/mean"]) == (2, 4, 2.0)
    assert stats["quotes/why"] == "finished 1 True 1"


def test_one_ends_the_crawl_itself(crawl: Callable[..., Simulation]) -> None:
    sim = crawl("enough")
    assert (sim.reason, len(sim.items)) == ("bandwidth_exceeded", 3)


def test_items_may_be_dropped_on_their_way(crawl: Callable[..., Simulation]) -> None:
    assert crawl("pipelined").stats["item_dropped_count"] == 5


def test_every_spider_is_run_and_is_found_right_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {path.stem for path in SPIDERS.glob("*.py")}
    assert names == {*EXPECTED, "saving", "tagged", "counting", "enough"}
    assert len(names) >= 20
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in names:
        Path(f"checked_{name}.py").write_text(moved((SPIDERS / f"{name}.py").read_text("utf-8")), "utf-8")
    assert main(["check", *sorted(f"checked_{name}.py" for name in names)]) == 0
    assert capsys.readouterr().out == f"{len(names)} spiders: nothing wrong\n"


def test_only_import_lines_are_changed() -> None:
    for path in SPIDERS.glob("*.py"):
        text = path.read_text("utf-8")
        pairs = zip(text.splitlines(), moved(text).splitlines(), strict=True)
        changed = [(before, after) for before, after in pairs if before != after]
        assert changed, path.name
        assert all("import" in before and "trawl" in after for before, after in changed)
