"""The commands that the help of ``trawl`` and the first lines of the examples show, typed as they stand there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tests.docs.commands import Commands
from tests.docs.given import ACCESS_LOG, ROOT, a_store, first_python
from tests.docs.not_run import group_of_trawl, looked_at
from trawl import cli

QUOTES = first_python(ROOT / "README.md")
SHOP = """
import trawl


class Shop(trawl.Spider):
    name = "shop"
    start_urls = ["https://shop.example/"]

    def parse(self, response, n=0):
        yield {"n": n}
"""
WEB = """
[hosts."127.0.0.1:8765"]
[hosts."shop.example"]
"""
FILES = {
    "quotes.py": QUOTES,
    "spider.py": QUOTES,
    "shop.py": SHOP,
    "shop/__init__.py": "",
    "shop/spiders.py": QUOTES.replace("class Quotes", "class Books"),
    "shop/settings.py": "DOWNLOAD_DELAY = 2\n",
    "spiders/quotes.py": QUOTES,
    "web.toml": WEB,
    "a.toml": WEB,
    "hosts.txt": "a.example\n127.0.0.1:8765\n",
    "access.log": ACCESS_LOG,
    "urls.txt": "http://a.example/1\nhttp://127.0.0.1:8765/no-such-page\n",
}
FIRST = {
    "completion": ["mkdir -p .config/fish/completions"],
    "job": ["trawl crawl quotes.py --job jobs/books"],
    "plan": ["trawl crawl quotes.py --job jobs/quotes -s CLOSESPIDER_PAGECOUNT=1"],
    "receipt": ["trawl crawl quotes.py -s WARC_FILE=crawl.warc.gz"],
    "simulate": ["trawl crawl quotes.py -s WARC_FILE=crawl.warc.gz"],
    "new": ["mkdir empty", "cd empty"],
    "new spider": ["mkdir empty", "cd empty"],
}
"""By word: what has been typed before its examples."""
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def words_of(group: Any, *before: str) -> Iterator[tuple[str, str]]:
    """Each word of the command, with the end of its help."""
    for name, command in group.commands.items():
        yield " ".join((*before, name)), command.epilog
        yield from words_of(command, *before, name) if hasattr(command, "commands") else ()


def commands_in(text: str) -> list[str]:
    """The lines of a text that are commands, without what is said of them beside them."""
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s+(trawl|python) ", line)]
    return [line.partition("   ")[0] for line in lines]


def typed_in(docstring: str) -> list[str]:
    """The lines of the literal blocks of a docstring."""
    blocks = re.findall(r"::\n\n((?: {4}.*\n|\n)+)", docstring + "\n")
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


WORDS = {"": cli.EXAMPLES, **dict(words_of(group_of_trawl()))}


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    typed = Commands(tmp_path)
    typed.run("export HTTPS_PROXY=http://proxy.example:3128")
    return typed


def run(commands: Commands, line: str) -> None:
    with chdir(commands.here):
        if looked_at(line):
            return
    said = commands.run(line)
    if line.startswith("trawl job") and "so start its crawl first" in said:
        assert commands.status == 2, f"{line}\n{said}"  # an order for a running crawl
        return
    assert commands.status == 0, f"{line}\n{said}"
    assert " ERROR: " not in said, f"{line}\n{said}"
    if line.startswith("trawl crawl"):
        assert commands.stats[-1].get("item_scraped_count"), f"{line}\n{said}"


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word or "trawl")
def test_the_examples_of_a_words_help_do_something(word: str, commands: Commands) -> None:
    lines = commands_in(WORDS[word])
    assert lines
    for line in [*FIRST.get(word, ()), *lines]:
        run(commands, line.replace("COMMAND", "crawl"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_the_commands_that_an_example_begins_with_do_something(path: Path, commands: Commands) -> None:
    with a_store():
        for line in typed_in(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""):
            run(commands, line)
