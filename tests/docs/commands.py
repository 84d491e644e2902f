"""Runs the commands of a page as a reader does, except for the network and the time.

``trawl`` runs in this process, on copies of the sites and on a virtual clock. ``python`` and ``pytest`` run in a forked
process, and ``sh`` runs all other commands. If the page kills a crawl, the crawl runs in its own process, which kills
itself at that virtual time. All commands of a page share one folder, one environment and one wall clock, which
continues from one command to the next.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from tests.docs.given import ROOT, every_site
from tests.docs.processes import LONGEST, python, run_forked
from trawl._run import CrawlResult, crawl_with
from trawl.blocking import InlineBlocking
from trawl.cli import main
from trawl.cli import shell as asking
from trawl.testing import Simulation, simulate
from trawl.testing.clock import VirtualClock, seeded_scheduling
from trawl.testing.transport import WALL_START_UTC
from trawl.transport import TransportSettings

__all__ = ["Commands"]

KILLED = re.compile(r"^(?P<command>trawl .*[^&\s])\s*&\nsleep (?P<seconds>\d+)\nkill -9 \$!$", re.M | re.S)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.S)
COLUMNS = 88
TERMINAL = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": str(COLUMNS)}

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "COLUMNS": "80",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # other projects' plugins take a second
    "PYTEST_ADDOPTS": "-p no:cacheprovider -p pytest_trio -p trawl.testing.plugin",
}


class Commands:
    """Runs the commands of one page.

    Attributes:
        status: The exit status of the last command.
        stats: The statistics of the finished crawls, including simulated crawls, in order.
        typed: The lines to type into an interactive shell.
    """

    def __init__(self, folder: Path) -> None:
        self.status = 0
        self.stats: list[Mapping[str, Any]] = []
        self.typed: Sequence[str] = ()
        self._folder = folder
        self._here = folder
        self._environment = {"HOME": str(folder)}
        self._passed = 0.0

    @property
    def here(self) -> Path:
        """The working directory."""
        return self._here

    def lines(self, text: str) -> Iterator[str]:
        """Yield the commands of a block. They run in the folder of the page until a command changes the folder."""
        self._here = self._folder
        killed = KILLED.search(text)
        if killed is not None:
            yield from self.lines(text[: killed.start()])
            yield killed[0]
            yield from self.lines(text[killed.end() :])
        else:
            lines = text.replace("\\\n", " ").splitlines()
            yield from (line for line in lines if line.strip() and not line.startswith("#"))

    def run(self, line: str) -> str:
        """Run a command, and return its standard output and standard error together."""
        killed = KILLED.fullmatch(line)
        if killed is not None:
            return self._kill(killed)
        if line.strip() == "echo $?":
            return f"{self.status}\n"
        words, set_here = shlex.split(line, comments=True), {}
        while assignment := ASSIGNMENT.fullmatch(words[0]):
            set_here[assignment["name"]] = assignment["value"]
            del words[0]
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._environment[name] = value
            return ""
        if words[0] == "cd":
            self._here /= words[1]
            return ""
        with patch.dict(os.environ, {**self._environment, **set_here}):
            plain = not {"|", ">", ">>", "&&", ";"} & set(words)
            if words[0] == "trawl" and not {"|", "&", "&&", ";"} & set(words):
                return self._trawl(words[1:])
            return self._forked(python, words) if words[0] in ("python", "pytest") and plain else self._shell(line)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Enter the folder, the web and the clock of the page, to run its Python code."""
        entry = sys.modules["trawl._run"]
        with chdir(self._folder), fresh_modules(self._folder), virtual_time():
            sys.path.insert(0, "")
            with patch.dict(vars(entry), {"crawl_with": crawl_on_copies(self._passed)}):
                yield

    def _trawl(self, words: Sequence[str]) -> str:
        *words, mark, place = words if words[-2:-1] in ([">"], [">>"], ["2>"]) else [*words, "", ""]
        terminal = Terminal(io.BytesIO(), "utf-8", newline="\n")
        written = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")
        printed, told = (written if mark in marks else terminal for marks in ([">", ">>"], ["2>"]))
        results: list[CrawlResult] = []
        with chdir(self._here), redirect_stdout(printed), redirect_stderr(told), fresh_modules(self._folder):
            sys.path.append(str(self._folder / "site"))
            importlib.invalidate_caches()
            with typing(self.typed), patch("trawl.cli.simulate.simulate", self._simulate):
                self.status = command(words, self._passed, results=results)
        self._passed += sum(result.elapsed for result in results)
        self.stats += [result.stats for result in results]
        if mark:
            with (self._here / Path(place).expanduser()).open("ab" if mark == ">>" else "wb") as file:
                file.write(content(written))
        return content(terminal).decode()

    def _simulate(self, *given: Any, **options: Any) -> Simulation:
        sim = simulate(*given, **options)
        self.stats.append(sim.stats)
        return sim

    def _kill(self, killed: re.Match[str]) -> str:
        words = shlex.split(killed["command"].replace("\\\n", " "))[1:]
        seconds = float(killed["seconds"])
        printed = self._forked(partial(command, killed_at=seconds), words, self._passed)
        assert self.status == -signal.SIGKILL, printed
        self.status = 0
        self._passed += seconds
        return printed

    def _forked(self, function: Any, *given: Any) -> str:
        said = self._folder / ".said"
        self.status = run_forked(function, *given, folder=self._here, environment=ENVIRONMENT, said=said)
        try:
            return said.read_text("utf-8")
        finally:
            said.unlink()

    def _shell(self, line: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._here,
            env={**os.environ, **ENVIRONMENT, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LONGEST,
        )
        self.status = done.returncode
        return done.stdout


class Terminal(io.TextIOWrapper):
    """A terminal without colors and without cursor movement."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def content(stream: io.TextIOWrapper) -> bytes:
    """Return the bytes written to a stream in memory."""
    stream.flush()
    return stream.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]


def command(
    words: Sequence[str],
    passed: float,
    *,
    killed_at: float | None = None,
    results: list[CrawlResult] | None = None,
) -> int:
    """Run the command ``trawl`` on the copies of the sites, and return its exit status."""
    with virtual_time(), shown_on_a_terminal():
        return main(list(words), crawl_with=crawl_on_copies(passed, killed_at=killed_at, results=results))


def crawl_on_copies(passed: float, *, killed_at: float | None = None, results: list[CrawlResult] | None = None) -> Any:
    """Return a ``crawl_with`` that crawls copies of the sites, ``passed`` seconds after the start of the wall clock."""

    async def crawl(spider: Any, settings: Any, **options: Any) -> CrawlResult:
        if "transport" in options:
            return await crawl_with(spider, settings, **options)  # simulated already
        web, begun_at = every_site(), trio.current_time()
        if killed_at is not None:
            options["watchers"] = [*options.get("watchers", ()), partial(_killed, killed_at)]
        with ended_in_time(spider):
            result = await crawl_with(
                spider,
                settings,
                **{**options, "handle_signals": False},
                transport=web.transport(settings.of(TransportSettings), seed=0, begun_at=begun_at),
                blocking=InlineBlocking(),
                resolve=web.resolve,
                seed=0,
                now_utc=WALL_START_UTC + timedelta(seconds=passed),
            )
        if results is not None:
            results.append(result)
        return result

    return crawl


@contextmanager
def ended_in_time(spider: object, longest: float = LONGEST) -> Iterator[None]:
    """Cancel a crawl that runs for ``longest`` real seconds, because it is stuck or never ends."""
    clock, until = trio.lowlevel.current_clock(), time.monotonic() + longest
    assert isinstance(clock, VirtualClock)
    with trio.CancelScope() as scope:
        clock.suspect = lambda: scope.cancel() if time.monotonic() > until else None
        try:
            yield
        finally:
            clock.suspect = None
    if scope.cancel_called:
        at = f"{clock.current_time():g} s of its own time"
        raise RuntimeError(f"{spider!r} has not ended after {longest:g} s, at {at}")


async def _killed(at: float, crawl: object) -> None:
    await trio.sleep(at)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def typing(lines: Sequence[str]) -> Iterator[None]:
    """Type lines into an interactive shell, which shows them after its prompt, and leave it. No browser opens."""
    left = iter(lines)

    def given(prompt: str = "") -> str:
        for line in left:
            print(f">>> {line}")
            return line
        raise EOFError

    with ExitStack() as stack:
        stack.enter_context(patch.object(builtins, "input", given))
        stack.enter_context(patch.object(webbrowser, "open"))
        # Use Python's own shell instead of IPython.
        stack.enter_context(patch.object(asking, "find_spec", lambda name: None))
        yield


@contextmanager
def virtual_time() -> Iterator[None]:
    """Make Trio's runs use a virtual clock and a fixed order of tasks."""
    run = trio.run

    def virtual(function: Any, *arguments: Any, **options: Any) -> Any:
        if "clock" in options:
            return run(function, *arguments, **options)
        with seeded_scheduling(0):
            return run(function, *arguments, **options, clock=VirtualClock())

    with patch.object(trio, "run", virtual):
        yield


@contextmanager
def shown_on_a_terminal() -> Iterator[None]:
    """Make the output as wide as the terminal on the pages."""
    with patch.dict(os.environ, TERMINAL):
        yield


@contextmanager
def fresh_modules(folder: Path) -> Iterator[None]:
    """Forget modules that the block imports from ``folder`` or the examples, because the page changes its files.

    Modules that other tests have imported from their folders are hidden in the block.
    """
    path = [*sys.path]
    around, inside = (f"{folder.parent}{os.sep}",), (f"{folder}{os.sep}", f"{ROOT / 'examples'}{os.sep}")
    others = {name: module for name, module in sys.modules.items() if is_below(module, around)}
    forget(others)
    known = {*sys.modules}
    try:
        yield
    finally:
        sys.path[:] = path
        new = {name: module for name, module in sys.modules.items() if name not in known}
        forget([name for name, module in new.items() if is_below(module, inside)])
        sys.modules.update(others)


def is_below(module: object, folders: tuple[str, ...]) -> bool:
    """Return whether a module, or a package without its own file, is below one of the folders, which end in a slash."""
    file = getattr(module, "__file__", None)
    if file is not None:
        return str(file).startswith(folders)
    return any(str(place).startswith(folders) for place in getattr(module, "__path__", ()))


def forget(names: Iterable[str]) -> None:
    """Forget modules, so that they are imported again."""
    for name in [*names]:
        del sys.modules[name]
