"""The commands of a page, run as a reader runs them, but for the network and the time.

``trawl`` runs in this process, on a copy of the tutorial's site and on the virtual clock; what is no ``trawl`` is given
to ``sh``. A crawl that the page kills is one in a process of its own, which kills itself at that virtual second. All
commands of a page share one folder, and the wall clock goes on from one to the next.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import trio

import trawl.cli.run
from tests.docs.toscrape import tutorial_site
from trawl.blocking import InlineBlocking
from trawl.cli import main
from trawl.crawl import CrawlResult, crawl_with
from trawl.testing.clock import VirtualClock
from trawl.testing.determinism import seeded_scheduling
from trawl.testing.wire import WALL_START_UTC
from trawl.transport import TransportSettings

__all__ = ["Commands"]

KILLED = re.compile(r"^(?P<command>trawl .*[^&\s])\s*&\nsleep (?P<seconds>\d+)\nkill -9 \$!$", re.M | re.S)
COLUMNS = 88
ROOT = Path(__file__).parents[2]

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "COLUMNS": "80",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # other projects' plugins take a second
    "PYTEST_ADDOPTS": "-p no:cacheprovider -p trawl.testing.plugin",
}


class Commands:
    """Runs the commands of one page.

    Attributes:
        status: The exit status of the last one.
    """

    def __init__(self, folder: Path) -> None:
        self.status = 0
        self._folder = folder
        self._passed = 0.0

    def run(self, text: str) -> str:
        """Run the commands of a block, one a line; what they print, standard output and errors together."""
        killed = KILLED.search(text)
        if killed is not None:
            return self.run(text[: killed.start()]) + self._kill(killed) + self.run(text[killed.end() :])
        lines = text.replace("\\\n", " ").splitlines()
        return "".join(self._line(line) for line in lines if line.strip() and not line.startswith("#"))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """In the folder of the page, on its web and its clock: where its Python is run."""
        entry = sys.modules["trawl.crawl"]
        real = vars(entry)["crawl_with"]
        with chdir(self._folder), fresh_modules(self._folder), virtual_time():
            sys.path.insert(0, "")
            vars(entry)["crawl_with"] = crawl_on_the_copy(self._passed)
            try:
                yield
            finally:
                vars(entry)["crawl_with"] = real

    def _line(self, line: str) -> str:
        if line.strip() == "echo $?":
            return f"{self.status}\n"
        words = shlex.split(line, comments=True)
        return self._trawl(words[1:]) if words[0] == "trawl" else self._shell(line)

    def _trawl(self, words: Sequence[str]) -> str:
        *words, mark, place = ["", *words] if words[-2:-1] == [">"] else ["", *words, "", ""]
        printed = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")
        told = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") if mark else printed
        with chdir(self._folder), redirect_stdout(printed), redirect_stderr(told), fresh_modules(self._folder):
            self.status, elapsed = command(words[1:], self._passed)
        self._passed += elapsed
        if mark:
            (self._folder / place).write_bytes(content(printed))
        return content(told).decode()

    def _shell(self, line: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env={**os.environ, **ENVIRONMENT, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        self.status = done.returncode
        return done.stdout

    def _kill(self, killed: re.Match[str]) -> str:
        words = shlex.split(killed["command"].replace("\\\n", " "))[1:]
        done = subprocess.run(
            [sys.executable, "-m", __name__, killed["seconds"], str(self._passed), *words],
            cwd=self._folder,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == -signal.SIGKILL, done.stdout
        self._passed += float(killed["seconds"])
        return done.stdout


def content(stream: io.TextIOWrapper) -> bytes:
    """What was written to a stream in memory."""
    stream.flush()
    return stream.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]


def command(words: Sequence[str], passed: float, *, killed_at: float | None = None) -> tuple[int, float]:
    """Run the command ``trawl`` on the copy of the site; its exit status, and the virtual seconds that it took."""
    took: list[float] = []
    with virtual_time(), shown_on_a_terminal():
        status = main(list(words), crawl_with=crawl_on_the_copy(passed, killed_at=killed_at, took=took))
    return status, sum(took)


def crawl_on_the_copy(passed: float, *, killed_at: float | None = None, took: list[float] | None = None) -> Any:
    """A ``crawl_with`` whose wire is the copy of the site, ``passed`` seconds after its wall clock began."""

    async def crawl(spider: Any, settings: Any, **options: Any) -> CrawlResult:
        if "transport" in options:
            return await crawl_with(spider, settings, **options)  # simulated already
        web, begun_at = tutorial_site(), trio.current_time()
        if killed_at is not None:
            options["watchers"] = [*options.get("watchers", ()), partial(_killed, killed_at)]
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
        if took is not None:
            took.append(result.elapsed)
        return result

    return crawl


async def _killed(at: float, crawl: object) -> None:
    await trio.sleep(at)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def virtual_time() -> Iterator[None]:
    """Trio's runs have a clock that jumps, and run their tasks in the same order each time."""
    run = trio.run

    def virtual(function: Any, *arguments: Any, **options: Any) -> Any:
        if "clock" in options:
            return run(function, *arguments, **options)
        with seeded_scheduling(0):
            return run(function, *arguments, **options, clock=VirtualClock())

    trio.run = virtual  # type: ignore[assignment]
    try:
        yield
    finally:
        trio.run = run


@contextmanager
def shown_on_a_terminal() -> Iterator[None]:
    """The table of a crawl is as wide as on the terminal that the pages show."""
    width = trawl.cli.run._WIDTH_OF_A_FILE
    trawl.cli.run._WIDTH_OF_A_FILE = COLUMNS
    try:
        yield
    finally:
        trawl.cli.run._WIDTH_OF_A_FILE = width


@contextmanager
def fresh_modules(folder: Path) -> Iterator[None]:
    """What is imported from ``folder`` is forgotten afterwards: the page changes its files."""
    path, modules, writes_no_bytecode = [*sys.path], set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, writes_no_bytecode
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


if __name__ == "__main__":
    command(sys.argv[3:], float(sys.argv[2]), killed_at=float(sys.argv[1]))
