"""The blocks of code in a page of the documentation, and how each kind is run or checked."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio
import typer
from trio.testing import MockClock

import trawl
from tests.docs.commands import Commands
from trawl.cli.app import app
from trawl.settings import SECTIONS, Layer, assignments, definitions, load
from trawl.testing import SimulatedWeb, load_web, simulate

__all__ = ["Block", "Page", "blocks_of"]

FENCE = re.compile(r"^(?P<mark>`{3,}|:{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=mark)$", re.M | re.S)
SAVED = re.compile(r"\b(?:[Ss]ave this as|at the end of)\s`(?P<name>[\w./-]+)`[^`]*\Z")
FILE = re.compile(r"`(?P<name>[\w/-]+\.(?:py|toml))`")
DATE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b")
SECONDS_OF_PYTEST = re.compile(r"\bin \d+\.\d+s\b")
OF_A_PLUGIN = {"parcel"}
"""Commands that a package of the user's adds: examples/plugin, which has its own test."""

TROUBLE = ("spider_exceptions", "throttling_errors", "scope_errors", "middleware_exceptions", "item_error_count")


@attrs.frozen
class Block:
    """One fenced block.

    Attributes:
        line: Its line in the page.
        language: What stands behind its fence.
        text: What is in it.
        follows: Whether nothing but a blank line is between it and the block before.
        file: The file that the paragraph before it says it is ("Save this as `NAME`") or belongs to ("at the end of
            `NAME`"), or that it changes if it is a diff; "" if none.
        is_whole: Whether it is all of that file.
    """

    line: int
    language: str
    text: str
    follows: bool
    file: str = ""
    is_whole: bool = False

    @property
    def is_of_a_file(self) -> bool:
        """Whether it belongs in a file, rather than being run as it is: what is indented belongs in a class."""
        return bool(self.file) or (self.language == "python" and self.text.startswith("    "))


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    end = 0
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        language, paragraph = match["language"].strip(), between.rstrip().rpartition("\n\n")[2] + "\n"
        named = (FILE if language == "diff" else SAVED).search(paragraph)
        file, is_whole = (named["name"], "ave this" in named[0]) if named else ("", False)
        yield Block(line, language, match["text"], not between.strip(), file, is_whole)
        end = match.end()


class Page:
    """A page whose Python blocks are run one after the other, in one namespace.

    With ``commands`` it is followed as a reader does who works through it: what is to be saved becomes a file, an
    indented block of Python belongs at the end of the class that the file saved last ends with, a diff changes its
    file, and shell blocks are run to a good end. Without, their settings are checked.

    Attributes:
        printed: What the last block that was run printed.
        counts: How many blocks of each kind were checked.
    """

    def __init__(self, folder: Path, commands: Commands | None = None, not_run: Collection[str] = ()) -> None:
        self.printed = ""
        self.counts: dict[str, int] = {}
        self._folder = folder
        self._commands = commands
        self._not_run = not_run
        self._saved = folder
        self._was_command = False
        self._namespace: dict[str, Any] = {"__name__": "page"}

    def check(self, block: Block) -> None:
        """Run a block, or check it; raises where it is not as it says."""
        check = {
            "python": self._python,
            "{timeline}": self._python,
            "sh": self._shell if self._commands is None else self._run,
            "toml": self._toml,
            "text": self._text,
            "diff": self.save,
        }.get(block.language)
        if check is None:
            return
        self.counts[block.language] = self.counts.get(block.language, 0) + 1
        if self._commands is not None and block.is_of_a_file:
            self.save(block)
        else:
            check(block)

    def save(self, block: Block) -> None:
        """Write a block to its file, or at the end of the one that was saved last; make the changes of a diff."""
        if block.file:
            self._saved = self._folder / block.file
        text = block.text
        if block.language == "diff":
            text = changed(self._saved.read_text("utf-8"), block.text)
        elif not block.is_whole:
            text = self._saved.read_text("utf-8") + "\n" + text
        self._saved.write_text(text, "utf-8")
        if self._saved.suffix == ".py":
            compile(text, str(self._saved), "exec")

    def _run(self, block: Block) -> None:
        """Run the lines of a shell block as they are."""
        assert self._commands is not None
        lines = [line for line in block.text.splitlines() if line.split("  #")[0].strip() not in self._not_run]
        self.printed, self._was_command = self._commands.run("\n".join(lines)), True
        assert not self._commands.status, f"it ends with status {self._commands.status}:\n{self.printed}"

    def _session(self, block: Block) -> None:
        """Run what stands behind each ``$``; what it prints is what stands below."""
        assert self._commands is not None
        for step in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            line, _, expected = step.partition("\n")
            self._compare(expected, self._commands.run(line))

    def _compare(self, expected: str, printed: str) -> None:
        """Compare as a reader does, who sees another folder and another date; ``...`` stands for what varies."""
        expected, printed = (shown(text, self._folder) for text in (expected, printed))
        pattern = re.escape(" ".join(expected.split()))  # a terminal breaks lines where it ends
        pattern = re.sub(r"(?:\\ )?\\\.\\\.\\\.(?:\\ )?", ".*", pattern)
        assert re.fullmatch(pattern, " ".join(printed.split())), f"the page says:\n{expected}\nand it is:\n{printed}"

    def _python(self, block: Block) -> None:
        before = dict(self._namespace)
        output = io.StringIO()
        with self._commands.inside() if self._commands else nullcontext(), redirect_stdout(output):
            exec(compile(block.text, f"<block at line {block.line}>", "exec", dont_inherit=True), self._namespace)
            new = {name: value for name, value in self._namespace.items() if before.get(name, ...) is not value}
            self._settings(block, new)
            for name, value in new.items():
                if name.startswith("test_"):
                    self._test(value)
                elif _is_spider(value) and "simulate(" not in block.text:
                    crawled(value)
        self.printed, self._was_command = output.getvalue(), False

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
            understood(words)
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
        if self._commands is not None and block.text.startswith("$ "):
            self._session(block)
        elif block.follows and self._was_command:
            self._compare(block.text, self.printed)
        elif block.follows and self.printed:
            assert block.text == self.printed, f"the block before line {block.line} prints:\n{self.printed}"


def changed(text: str, diff: str) -> str:
    """``text`` with the lines of ``diff`` that begin with ``-`` replaced by those that begin with ``+``."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    assert text.count(before) == 1, f"not there, or not once:\n{before}"
    return text.replace(before, after)


def shown(text: str, folder: Path) -> str:
    """What a command printed as pages show it: what is different each time, and how wide a table is, made the same."""
    text = text.replace(str(folder), "/home/you")
    text = SECONDS_OF_PYTEST.sub("in 0.01s", DATE.sub("2026-01-01 12:00:00", text))
    return re.sub("─+", "─", text)


def understood(words: Sequence[str]) -> None:
    """Refuse a command line of ``trawl`` with a word or an option that there is not; it is read, and not run."""
    if words[1] in OF_A_PLUGIN:
        return
    ends = [at for at, word in enumerate(words) if word in (">", ">>", "|", "&")]
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    try:
        with group.make_context("trawl", [words[1]]) as context:
            name, command, rest = group.resolve_command(context, list(words[1 : min(ends, default=len(words))]))
            assert command is not None
            command.make_context(name, rest, parent=context)
    except Exception as error:
        raise AssertionError(f"{shlex.join(words)}: {error}") from error


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
