"""A whole Scrapy project, as its documentation teaches to write one, moved by the two commands that the guide names."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.simulated import crawl_on
from trawl.cli import main
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb

PROJECT = Path(__file__).parent / "spiders" / "project"
BASE = ("-a", "base=http://shop.example")
QUICK = ("-s", "DOWNLOAD_DELAY=0", "-s", "DOWNLOAD_DELAY_PER_SLOT=0", "-s", "AUTOTHROTTLE_ENABLED=false")
FORM = """<form method=post action=/do><input type=hidden name=csrf value=T><input name=username>
<input name=password type=password><input type=submit></form>"""


def pages() -> dict[str, str]:
    """The shop: two pages of three books each, of which every third has no price."""
    found = {"/login": FORM, "/robots.txt": ""}
    for page in (1, 2):
        links = "".join(f'<h3><a href="/book/{page}{n}">b</a></h3>' for n in range(3))
        following = '<li class="next"><a href="/page/2">next</a></li>' if page == 1 else ""
        found[f"/page/{page}"] = f"<html>{links}<a href='/book/secret'>s</a>{following}</html>"
        for n in range(3):
            price = '<p class="price">£12</p>' if n < 2 else ""
            tags = "<li class='tag'>x</li><li class='tag'>y</li>"
            found[f"/book/{page}{n}"] = f"<h1> Book {page}{n} </h1>{price}{tags}"
    return found


def a_web() -> SimulatedWeb:
    shop = pages()

    def answer(request: Request) -> SimulatedResponse:
        path = urlsplit(request.url).path
        headers = {"Content-Type": "text/html; charset=utf-8", "Set-Cookie": "s=1"}
        if path == "/do":
            is_right = b"csrf=T" in request.body and b"password=secret" in request.body
            body = f"<b>anna</b> {'welcome' if is_right else 'authentication failed'}"
            return SimulatedResponse(body=body, headers=headers)
        return SimulatedResponse(status=200 if path in shop else 404, body=shop.get(path, ""), headers=headers)

    web = SimulatedWeb()
    web.add_host("shop.example", handler=answer)
    return web


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project in a folder of its own, as it was written for Scrapy."""
    shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path / "project")
    forget()
    return tmp_path / "project"


def trawl(*words: str, **options: Any) -> int:
    """The command, as in a process of its own: what it imports is forgotten."""
    path = sys.path[:]
    try:
        return main(words, **options)
    finally:
        sys.path[:] = path
        forget()


def forget() -> None:
    """Forget the project's modules, or those that another test calls so."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def move(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Move the project, whose imports `trawl check` names before."""
    assert trawl("check", "shop") == 2
    told = capfd.readouterr().out.splitlines()
    assert {line.split(":")[0] for line in told} == {
        *("shop/extensions.py", "shop/items.py", "shop/middlewares.py", "shop/pipelines.py"),
        *("shop/spiders/books.py", "shop/spiders/login.py"),
    }
    assert trawl("move", "shop", "--write") == 0
    capfd.readouterr()


def test_a_project_does_after_it_was_moved_what_it_did(
    project: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    move(project, capfd)
    assert trawl("check", "shop") == 0
    assert capfd.readouterr().out == "2 spiders: nothing wrong\n"
    caplog.set_level("INFO")
    assert trawl("crawl", "books", *BASE, *QUICK, crawl_with=crawl_on(a_web())) == 0
    names = ["Book 10", "Book 11", "Book 20", "Book 21"]
    kept = [json.loads(line) for line in (project / "items.jsonl").read_text("utf-8").splitlines()]
    assert sorted(item["name"] for item in kept) == names
    assert {(item["price"], item["tags"], item["last_updated"]) for item in kept} == {(13.8, "x,y", "2024-01-01")}
    (feed,) = (project / "out").glob("books-*.json")
    assert sorted(item["name"] for item in json.loads(feed.read_text("utf-8"))) == names
    assert (project / "out" / "books.csv").read_text("utf-8").count("\n") == 5
    with sqlite3.connect(project / "books.db") as rows:
        assert rows.execute("select count(*), sum(price) from items").fetchone() == (4, 55.2)
    rows.close()
    said = caplog.text
    for words in ("opened spider books", "scraped 4 items", "closed spider books", "Spider opened: books"):
        assert words in said
    assert said.count("item dropped: Missing price") == 2


def test_so_does_its_spider_that_logs_in(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    move(project, capfd)
    words = ("crawl", "shop/spiders/login.py", *BASE, *QUICK, "--quiet", "-O", "-:jsonl")
    assert trawl(*words, crawl_with=crawl_on(a_web())) == 0
    item = json.loads(capfd.readouterr().out)
    assert (item["user"], item["agent"] in ("one/1", "two/2")) == ("anna", True)


TWISTED = "inlineCallbacks = lambda function: function\n"
LEFT = """import trawl as scrapy
from {folder}_parts.words import words


class Left(scrapy.Spider):
    name = "left"
    start_urls = ["http://shop.example/page/1"]

    def parse(self, response):
        yield {{"words": words()}}
"""
WORDS = """from twisted.internet.defer import inlineCallbacks


@inlineCallbacks
def words():
    yield "a"
"""


def forget_twisted() -> None:
    """Take out of memory what is called Twisted: another test's stand-in has other modules."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "twisted"]:
        del sys.modules[name]


@pytest.fixture
def no_twisted() -> Iterator[None]:
    """Nothing that is called Twisted in memory, before and after."""
    forget_twisted()
    yield
    forget_twisted()


@pytest.mark.usefixtures("no_twisted")
@pytest.mark.parametrize("folder", ["project", "elsewhere"])
def test_a_moved_spider_whose_project_still_imports_twisted_sends_nothing(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "installed/twisted/__init__.py": "",
        "installed/twisted/internet/__init__.py": "",
        "installed/twisted/internet/defer.py": TWISTED,
        "project/left.py": LEFT.format(folder=folder),
        f"{folder}/{folder}_parts/words.py": WORDS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    asked: list[str] = []

    def answer(request: Request) -> SimulatedResponse:
        asked.append(request.url)
        return SimulatedResponse()

    web = SimulatedWeb()
    web.add_host("shop.example", handler=answer)
    status = main(["crawl", str(tmp_path / "project" / "left.py"), *QUICK, "--quiet"], crawl_with=crawl_on(web))
    said = capfd.readouterr().err
    if folder == "project":
        assert (status, asked) == (2, [])
        assert 'words.py is written for Scrapy: line 1: take out "from twisted.internet.defer import inline' in said
    else:  # a package of others is theirs to change
        assert (status, asked[-1:]) == (0, ["http://shop.example/page/1"]), said
