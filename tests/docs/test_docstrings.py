"""The code that docstrings show: each block of Python in them is run, and the web that one describes is loaded.

What stands behind ``>>>`` is typed line by line, and prints what stands below it.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import trio
from itemloaders.processors import MapCompose

import trawl
from tests.cli.simulated import FOLLOWER
from tests.contracts.test_frontiers import in_memory
from tests.docs.commands import Commands
from tests.docs.given import ROOT
from trawl.crawler import CrawlerProcess
from trawl.events import ItemScraped, RequestDropped
from trawl.http import HtmlResponse
from trawl.items import Field, Item
from trawl.loader import ItemLoader
from trawl.testing import Outage, SimulatedWeb, load_web, simulate
from trawl.testing.demo import DEMO_HOST
from trawl.testing.frontier_contract import FrontierContract

BLOCK = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")
Names = dict[str, Any]


Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions(node: ast.AST) -> Iterator[Definition]:
    """Yield a module, and the classes and functions in it. Expressions are passed by, because there are many."""
    if isinstance(node, Definition):
        yield node
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from definitions(part)


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings with code, by the module, and by the class or function in it."""
    for path in sorted((ROOT / "trawl").rglob("*.py")):
        source, name = path.read_text("utf-8"), ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not any(sign in source for sign in ("::\n\n", ">>> ")):  # parsing all modules takes seconds
            continue
        for node in definitions(ast.parse(source)):
            if text := ast.get_docstring(node):
                yield f"{name}.{getattr(node, 'name', '')}".rstrip("."), f"{text}\n"


def is_python(text: str) -> bool:
    """Whether it is, rather than a drawing."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


DOCSTRINGS = list(docstrings())
BLOCKS = [(name, dedent(match[1])) for name, text in DOCSTRINGS for match in BLOCK.finditer(text)]
TYPED = {name: text for name, text in DOCSTRINGS if ">>> " in text}
NAMES: Names = {
    one.__name__: one for one in (trawl, HtmlResponse, ItemLoader, MapCompose, Outage, SimulatedWeb, simulate)
}
SHOWN = dict(BLOCKS)


def executed(text: str, **names: Any) -> Names:
    exec(text, names)
    return names


def a_spider(url: str) -> type[trawl.Spider]:
    """One that gives an item a page, and follows its links."""
    spider: type[trawl.Spider] = executed(FOLLOWER.replace("http://a.example/", url))["Pages"]
    return spider


def watched(text: str) -> None:
    seen: list[object] = []
    names = executed(
        f"async def watch(crawl):\n{indent(text, '    ')}\n    seen.append(event)",
        **{"ItemScraped": ItemScraped, "RequestDropped": RequestDropped, "seen": seen},
    )
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/"])
    simulate(a_spider("http://a.example/"), web, {"WATCHERS": {names["watch"]: 0}})
    assert isinstance(seen[-1], RequestDropped)


def hooked(text: str) -> None:
    class Shop(trawl.Spider):
        name = "shop"
        start_urls = ("http://a.example/",)
        custom_settings = {"SPIDER_MIDDLEWARES": {executed(text)["only_with_price"]: 500}}

        def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
            yield {"name": "chair", "price": 5}
            yield {"name": "not for sale"}

    web = SimulatedWeb()
    web.add_host("a.example")
    assert simulate(Shop, web).items == [{"name": "chair", "price": 5}]


def declared(text: str) -> None:
    quote = executed(text, Item=Item, Field=Field)["Quote"]
    assert quote(text="a", author="b") == {"text": "a", "author": "b"}
    with pytest.raises(KeyError):
        quote(page=1)


def started(text: str, name: str = "") -> None:
    """Run a program in an empty folder, on the simulated web; ``name`` is its asynchronous function."""
    spiders = {"Titles": a_spider(f"http://{DEMO_HOST}/"), "Prices": a_spider(f"http://{DEMO_HOST}/books/")}
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "project")
        folder.mkdir()
        with Commands(folder).inside(), redirect_stdout(io.StringIO()) as printed:
            names = executed(text, trawl=trawl, trio=trio, **spiders)
            if name:
                trio.run(names[name])
    assert "print(" not in text or printed.getvalue()


def hosted(text: str) -> None:
    """Run a program on asyncio, with a spider that has no pages: asyncio has no virtual clock."""
    with redirect_stdout(io.StringIO()) as printed:
        names = executed(text, trawl=trawl, Titles=type("Titles", (trawl.Spider,), {"name": "titles"}))
        asyncio.run(names["main"]())
    assert printed.getvalue() == "finished 0\n"


def side_by_side(text: str) -> None:
    names: Names = {"CrawlerProcess": partial(CrawlerProcess, install_root_handler=False)}
    for name, path in (("Books", "books/"), ("Quotes", "")):
        names[name] = a_spider(f"http://{DEMO_HOST}/{path}")
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "project")  # what its parent has is forgotten in it: not all that is below /tmp
        folder.mkdir()
        with Commands(folder).inside():
            process = executed(text, **names)["process"]
    assert [result.reason for result in process.results] == ["finished"] * 2


def kept(text: str) -> None:
    given = {"FrontierContract": FrontierContract, "contextmanager": contextmanager, "tempfile": tempfile}
    mine = executed(text, **given, opened=lambda directory: in_memory())["TestMine"]
    with mine().store() as opener:
        assert callable(opener)
    tests = [name for name in dir(mine) if name.startswith("test_")]
    getattr(mine(), tests[0])()


def tried(text: str) -> None:
    names = executed(text, simulate=simulate, Books=a_spider("http://books.toscrape.com/"))
    names["test_it_waits_a_second_between_pages"](SimulatedWeb())


def described(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "big.html").write_text("big", "utf-8")
        path = Path(folder, "web.toml")
        path.write_text(text, "utf-8")
        assert isinstance(load_web(path), SimulatedWeb)


RUN: Mapping[str, Callable[[str], None]] = {
    "trawl._asyncio.crawl_in_asyncio": hosted,
    "trawl._run.crawl": partial(started, name="both"),
    "trawl._run.open_crawl": partial(started, name="titles"),
    "trawl._run.run": started,
    "trawl.crawler.CrawlerProcess": side_by_side,
    "trawl.engine.hooks": hooked,
    "trawl.events.EventStream": watched,
    "trawl.items.Item": declared,
    "trawl.testing.frontier_contract": kept,
    "trawl.testing.plugin": tried,
    "trawl.testing.web_file": described,
}


def test_every_block_of_python_is_run() -> None:
    assert {name for name, text in BLOCKS if is_python(text)} <= set(RUN)
    assert set(RUN) <= set(SHOWN)


@pytest.mark.parametrize("name", RUN)
def test_the_code_of_a_docstring_works(name: str) -> None:
    RUN[name](SHOWN[name])


@pytest.mark.parametrize("name", TYPED)
def test_what_a_docstring_types_prints_what_it_says(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(TYPED[name], dict(NAMES), name, None, 0)
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert test.examples
    assert told == []
