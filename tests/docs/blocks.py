"""The blocks of code in a page of the documentation, and how each kind is run or checked."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio
from trio.testing import MockClock

import trawl
from trawl.settings import SECTIONS, Layer, assignments, definitions, load
from trawl.testing import SimulatedWeb, load_web, simulate

__all__ = ["Block", "Page", "blocks_of"]

FENCE = re.compile(r"^(?P<mark>`{3,}|:{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=mark)$", re.M | re.S)
TROUBLE = ("spider_exceptions", "throttling_errors", "scope_errors", "middleware_exceptions", "item_error_count")


@attrs.frozen
class Block:
    """One fenced block.

    Attributes:
        line: Its line in the page.
        language: What stands behind its fence.
        text: What is in it.
        follows: Whether nothing but a blank line is between it and the block before.
    """

    line: int
    language: str
    text: str
    follows: bool


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    end = 0
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        yield Block(line, match["language"].strip(), match["text"], not between.strip())
        end = match.end()


class Page:
    """A page whose Python blocks are run one after the other, in one namespace.

    Attributes:
        printed: What the last Python block printed.
        counts: How many blocks of each kind were checked.
    """

    def __init__(self, folder: Path) -> None:
        self.printed = ""
        self.counts: dict[str, int] = {}
        self._folder = folder
        self._namespace: dict[str, Any] = {"__name__": "page"}

    def check(self, block: Block) -> None:
        """Run a block, or check it; raises where it is not as it says."""
        check = {
            "python": self._python,
            "{timeline}": self._python,
            "sh": self._shell,
            "toml": self._toml,
            "text": self._text,
        }.get(block.language)
        if check is not None:
            self.counts[block.language] = self.counts.get(block.language, 0) + 1
            check(block)

    def _python(self, block: Block) -> None:
        before = dict(self._namespace)
        output = io.StringIO()
        with redirect_stdout(output):
            exec(compile(block.text, f"<block at line {block.line}>", "exec", dont_inherit=True), self._namespace)
            new = {name: value for name, value in self._namespace.items() if before.get(name, ...) is not value}
            self._settings(block, new)
            for name, value in new.items():
                if name.startswith("test_"):
                    self._test(value)
                elif _is_spider(value) and "simulate(" not in block.text:
                    crawled(value)
        self.printed = output.getvalue()

    def _settings(self, block: Block, new: Mapping[str, Any]) -> None:
        """A block of nothing but NAME = VALUE is a block of settings."""
        body = ast.parse(block.text).body
        targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(names) == len(body) and all(name.isupper() for name in names):
            valid(f"the block at line {block.line}", {name: new[name] for name in names if name in new})

    def _test(self, test: Any) -> None:
        given = {"simulated_web": SimulatedWeb(), "autojump_clock": None}
        call = partial(test, **{name: given[name] for name in signature(test).parameters})
        if iscoroutinefunction(test):
            trio.run(call, clock=MockClock(autojump_threshold=0))
        else:
            call()

    def _shell(self, block: Block) -> None:
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["trawl"]:
                continue
            given = [words[at + 1] for at, word in enumerate(words) if word in ("-s", "--set")]
            for assignment in given:  # one at a time: `trawl simulate` takes a name twice
                load(assignments([assignment]))

    def _toml(self, block: Block) -> None:
        if "[tool.trawl" in block.text:
            table = tomllib.loads(block.text)["tool"]["trawl"]
            own = table.pop("own", {})
            load(Layer("pyproject.toml", own, own=own))
            valid("pyproject.toml", table)
        else:
            path = self._folder / "web.toml"
            path.write_text(block.text, "utf-8")
            load_web(path)

    def _text(self, block: Block) -> None:
        if block.follows and self.printed:
            assert block.text == self.printed, f"the block before line {block.line} prints:\n{self.printed}"


def _is_spider(value: object) -> bool:
    """Whether a page has made a spider, or only imported a kind of them."""
    return isinstance(value, type) and issubclass(value, trawl.Spider) and bool(value.name)


def valid(source: str, values: Mapping[str, Any]) -> None:
    """Refuse what are no settings."""
    known = {definition.name for definition in definitions()}
    assert set(values) <= known, f"{source}: {sorted(set(values) - known)} are no settings"
    settings = load(Layer(source, dict(values)))
    for section in SECTIONS:
        settings.of(section.value)


def crawled(spider: type[trawl.Spider]) -> None:
    """A spider of the page, run against a web that has what it starts from."""
    web = SimulatedWeb()
    for host in dict.fromkeys(urlsplit(url).netloc for url in spider.start_urls):
        web.add_site(host, pages=4, latency=0.1)
    sim = simulate(spider, web, {"CONCURRENT_REQUESTS_PER_DOMAIN": 4} if not spider.custom_settings else None)
    assert sim.reason == "finished"
    assert {key: sim.stats[key] for key in TROUBLE if sim.stats.get(key)} == {}
