"""The code that docstrings show: each block of Python in them is run, and the web that one describes is loaded."""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

import trawl
from tests.cli.simulated import FOLLOWER
from tests.contracts.test_frontiers import in_memory
from tests.docs.commands import Commands
from tests.docs.given import ROOT
from trawl.crawler import CrawlerProcess
from trawl.events import ItemScraped, RequestDropped
from trawl.items import Field, Item
from trawl.testing import SimulatedWeb, load_web, simulate
from trawl.testing.frontier_contract import FrontierContract

BLOCK = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")
Names = dict[str, Any]


def blocks() -> Iterator[tuple[str, str]]:
    """What docstrings show, by the module, and by the class or function in it."""
    for path in sorted((ROOT / "trawl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                for match in BLOCK.finditer(f"{ast.get_docstring(node) or ''}\n"):
                    yield f"{name}.{getattr(node, 'name', '')}".rstrip("."), dedent(match[1])


def is_python(text: str) -> bool:
    """Whether it is, rather than a drawing."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


BLOCKS = list(blocks())
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


def side_by_side(text: str) -> None:
    names: Names = {"CrawlerProcess": partial(CrawlerProcess, install_root_handler=False)}
    for name, host in (("Books", "books.toscrape.com"), ("Quotes", "quotes.toscrape.com")):
        names[name] = a_spider(f"https://{host}/")
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
