"""Follows a page of the documentation as a reader does who works through it.

A block to save becomes a file. An indented block of Python is appended to the last class of the file that was saved
last. A diff changes its file. A picture must equal the picture that a command has drawn. Other Python code runs in one
namespace, and commands must succeed. A block of output must equal the output of the code or command before it. Settings
are loaded by the code that would load them.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import chdir, nullcontext, redirect_stdout
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio
from trio.testing import MockClock

import trawl
from tests.docs.blocks import Block
from tests.docs.commands import Commands
from tests.docs.given import ROOT
from tests.docs.not_run import group_of_trawl, is_looked_at, looked_at
from trawl.settings import SECTIONS, Layer, definitions, load
from trawl.testing import SimulatedWeb, load_web, simulate

__all__ = ["Page"]

DATE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b")
HOUR_OF_LOG = re.compile(r"^(?:\d\d:\d\d:\d\d| {8})(?= (?:DEBUG|INFO|WARNING|ERROR) )", re.M)
SECONDS_OF_PYTEST = re.compile(r"\bin \d+\.\d+s\b")
TROUBLE = ("spider_exceptions", "throttling_errors", "scope_errors", "middleware_exceptions", "item_error_count")


class Page:
    """A page, block by block.

    Args:
        path: The page. Included files are found next to it.
        folder: The folder in which its commands run.
        commands: Runs the commands; None for a page that needs neither network nor time.

    Attributes:
        counts: Number of blocks of each kind that were run or checked.
    """

    def __init__(self, path: Path, folder: Path, commands: Commands | None = None) -> None:
        self.counts: dict[str, int] = {}
        self._path = path
        self._folder = folder
        self._commands = commands or Commands(folder)
        self._line = ""
        self._printed = ""
        self._was_command = False
        self._saved = folder
        self._namespace: dict[str, Any] = {"__name__": "page"}

    def check(self, block: Block) -> None:
        """Run or check a block. Raises an error if the page is wrong."""
        checks = {
            "python": self._python,
            "{timeline}": self._python,
            "sh": self._shell,
            "toml": self._toml,
            "text": self._text,
            "diff": self._save,
        }
        language, _, rest = block.language.partition(" ")
        if language == "{literalinclude}":
            self._included(block, self._path.parent / rest)
        elif language == "{image}":
            self._picture(rest)
        elif language.startswith("{") and language not in checks:
            return  # Sphinx generates it, or reports an error
        elif is_looked_at(block):
            pass
        elif language not in checks:
            raise AssertionError(f"nothing is known of blocks of {language!r}")
        elif block.is_of_a_file:
            self._save(block)
        else:
            checks[language](block)
        self.counts[language] = self.counts.get(language, 0) + 1

    def _save(self, block: Block) -> None:
        """Write a block to its file, append it to the last saved file, or apply it as a diff."""
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

    def _shell(self, block: Block) -> None:
        """Run the lines of a shell block."""
        self._printed, self._was_command = "", True
        for line in self._commands.lines(block.text):
            with chdir(self._folder):
                if looked_at(line):
                    continue
            self._line = line
            self._printed += self._commands.run(line)
            said = f"{line}\nends with status {self._commands.status}:\n{self._printed}"
            assert self._commands.status == 0, said
            words = shlex.split(line, comments=True)
            if {"crawl", "simulate"} & {*words[:3]} and line[-1] != "!":
                self._crawled(words, said)

    def _crawled(self, words: list[str], said: str) -> None:
        """Refuse a crawl that failed or produced no items."""
        stats = self._commands.stats[-1]
        assert trouble(stats) == {}, said
        assert stats.get("item_scraped_count"), said
        self._fed(words, said)

    def _fed(self, words: list[str], said: str) -> None:
        """Refuse an empty feed of a crawl."""
        feeds = [] if "simulate" in words else [words[at + 1] for at, word in enumerate(words) if word in ("-o", "-O")]
        for feed in feeds:
            written = [*self._commands.here.glob(feed.replace("%(name)s", "*"))]
            assert "://" in feed or (written and all(path.stat().st_size for path in written)), said

    def _picture(self, name: str) -> None:
        """Refuse a picture that differs from the one that the page's commands draw, except in explanations."""
        made, kept = self._commands.here / name, self._path.parent / name
        if made.exists() or self._path.parent.name != "explanation":
            is_same = made.read_bytes() == kept.read_bytes()
            assert is_same, f"{kept.relative_to(ROOT)} is not what the commands above it draw: copy {made} there"

    def _session(self, block: Block) -> None:
        """Run the command after each ``$``, and compare its output with the lines below."""
        for step in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            line, _, expected = step.partition("\n")
            if looked_at(line):
                continue
            self._compare(expected, self._commands.run(line))

    def _conversation(self, block: Block) -> None:
        """Type the code after each ``>>>`` into the shell that was opened last."""
        self._commands.typed = re.findall(r"^>>> (.*)$", block.text, re.M)
        printed = self._commands.run(self._line)
        self._compare(block.text, printed[printed.index(">>> ") :])

    def _synopsis(self, block: Block) -> None:
        """Refuse an unknown option of the command, and a missing option or argument."""
        group, told = group_of_trawl(), set(re.findall(r"(?<![\w-])--?[\w-]+", block.text))
        names = {line.split()[1] for line in block.text.splitlines() if line.startswith("trawl ")}
        assert len(names) == 1
        command: Any = group.commands[names.pop()]
        parts = list(command.commands.values()) if hasattr(command, "commands") else [command]
        options = [
            option
            for part in parts
            for option in part.params
            if option.param_type_name == "option" and not option.hidden
        ]
        known = {name for option in options for name in option.opts}
        assert told <= known, told - known
        assert [option.opts for option in options if not told & {*option.opts}] == []
        given = re.sub(r"\[-[^\]]*\]|--?[\w-]+ [A-Z]\S*|\.\.\.", "", block.text).split()[2:]
        assert len(given) >= sum(param.param_type_name == "argument" for param in command.params)
        for part in parts if parts != [command] else ():
            assert f"{command.name} {part.name} " in block.text

    def _text(self, block: Block) -> None:
        if block.text.startswith("$ "):
            self._session(block)
        elif block.text.startswith(">>> "):
            self._conversation(block)
        elif block.text.startswith("trawl "):
            self._synopsis(block)
        elif self._was_command:
            self._compare(block.text, self._printed)
        else:
            assert block.text == self._printed, f"what was run above line {block.line} prints:\n{self._printed}"

    def _compare(self, expected: str, printed: str) -> None:
        """Compare as a reader does, with another folder and date. ``...`` matches any text."""
        expected, printed = (shown(text, self._folder) for text in (expected, printed))
        pattern = re.escape(" ".join(expected.split()))  # a terminal wraps lines
        pattern = re.sub(r"(?:\\ )?\\\.\\\.\\\.(?:\\ )?", ".*", pattern)
        assert re.fullmatch(pattern, " ".join(printed.split())), f"the page says:\n{expected}\nand it is:\n{printed}"

    def _python(self, block: Block) -> None:
        before = dict(self._namespace)
        output = io.StringIO()
        is_on_loopback = "serve_tcp" in block.text  # loopback connections need real time
        with nullcontext() if is_on_loopback else self._commands.inside(), redirect_stdout(output):
            exec(compile(block.text, f"<block at line {block.line}>", "exec", dont_inherit=True), self._namespace)
            new = {name: value for name, value in self._namespace.items() if before.get(name, ...) is not value}
            self._settings(block, new)
            for name, value in new.items():
                if name.startswith("test_"):
                    tried(value)
                elif _is_spider(value) and "simulate(" not in block.text:
                    crawled(value)
        self._printed, self._was_command = output.getvalue(), False

    def _settings(self, block: Block, new: Mapping[str, Any]) -> None:
        """Check a block of only NAME = VALUE lines as settings."""
        body = ast.parse(block.text).body
        targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(names) == len(body) and all(name.isupper() for name in names):
            valid(f"the block at line {block.line}", {name: new[name] for name in names if name in new})

    def _toml(self, block: Block) -> None:
        """Write settings to the project's file, or a web to its file, for the commands below."""
        if block.follows and self._was_command and self._printed:
            self._compare(block.text, self._printed)
        if "[tool.trawl" in block.text:
            table = tomllib.loads(block.text)["tool"]["trawl"]
            own = table.pop("own", {})
            (self._folder / "pyproject.toml").write_text(block.text, "utf-8")
            told = self._commands.run("trawl settings > .settings")
            assert self._commands.status == 0, told
            printed = (self._folder / ".settings").read_text("utf-8")
            assert [name for name in table if not re.search(rf"^{name}=.*pyproject\.toml$", printed, re.M)] == []
            assert [name for name in own if not re.search(rf"^{name}=", printed, re.M)] == []
        else:
            path = self._folder / "web.toml"
            path.write_text(block.text, "utf-8")
            load_web(path)

    def _included(self, block: Block, path: Path) -> None:
        """Check an included example, which must have its own test."""
        assert path.resolve().is_relative_to(ROOT / "examples")
        text = path.read_text("utf-8")
        tests = [test.read_text("utf-8") for test in (ROOT / "tests" / "examples").rglob("test_*.py")]
        assert any(path.stem in test for test in tests), f"no test names {path.name}"
        if named := re.search(r":pyobject: (\w+)", block.text):
            assert re.search(rf"^(class|def|async def) {named[1]}\b", text, re.M)


def changed(text: str, diff: str) -> str:
    """Return ``text`` with the ``-`` lines of ``diff`` replaced by its ``+`` lines."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    assert text.count(before) == 1, f"not there, or not once:\n{before}"
    return text.replace(before, after)


def shown(text: str, folder: Path) -> str:
    """Return the output of a command as pages show it, with changing values and table widths normalized."""
    text = text.replace(str(folder), "/home/you").replace(tempfile.gettempdir(), "/tmp")
    text = SECONDS_OF_PYTEST.sub("in 0.01s", DATE.sub("2026-01-01 12:00:00", HOUR_OF_LOG.sub("12:00:00", text)))
    return re.sub(r"(─|-{6})\1*-*", "─", text)


def _is_spider(value: object) -> bool:
    """Return whether a value is a spider that the page defines and not only an imported class."""
    return isinstance(value, type) and issubclass(value, trawl.Spider) and bool(value.name)


def valid(source: str, values: Mapping[str, Any]) -> None:
    """Refuse names and values that are not settings."""
    known = {definition.name for definition in definitions()}
    assert set(values) <= known, f"{source}: {sorted(set(values) - known)} are no settings"
    settings = load(Layer(source, dict(values)))
    for section in SECTIONS:
        settings.of(section.value)


def tried(test: Any) -> None:
    """Run a test of the page."""
    given = {"simulated_web": SimulatedWeb(), "autojump_clock": None}
    call = partial(test, **{name: given[name] for name in signature(test).parameters})
    if iscoroutinefunction(test):
        trio.run(call, clock=MockClock(autojump_threshold=0))
    else:
        call()


def crawled(spider: type[trawl.Spider]) -> None:
    """Run a spider of the page on a web that has its start URLs."""
    web = SimulatedWeb()
    for host in dict.fromkeys(urlsplit(url).netloc for url in spider.start_urls):
        web.add_site(host, pages=4, latency=0.1)
    sim = simulate(
        spider, web, {"CONCURRENT_REQUESTS_PER_DOMAIN": 4} if not spider.custom_settings else None, errors="collect"
    )
    assert sim.reason == "finished"
    assert trouble(sim.stats) == {}


def trouble(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of errors in a crawl."""
    return {key: stats[key] for key in TROUBLE if stats.get(key)}
