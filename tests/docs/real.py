"""Runs the commands of a page as a reader types them: in a terminal, on a real clock and on the site of ``trawl demo``.

The demo uses a free port instead of the port on the pages.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import attrs

from tests.docs.blocks import Block
from tests.docs.commands import COLUMNS, ENVIRONMENT, TERMINAL, Commands, fresh_modules
from tests.docs.given import ROOT
from tests.docs.page import Page, shown
from trawl.testing.demo import DEMO_HOST

__all__ = ["EXAMPLES", "RealCommands", "RealPage", "lay_out_examples"]

EXAMPLES = [path for path in sorted((ROOT / "examples").glob("[!t]*.py")) if DEMO_HOST in path.read_text("utf-8")]
"""Examples that crawl the demo and are not tests."""
NUMBER = re.compile(r"\d[\d,.]*")


class RealCommands(Commands):
    """Runs the commands of one page in a terminal of :data:`COLUMNS` columns."""

    def run(self, line: str) -> str:
        """Run a command, and return the output of the terminal."""
        if line.strip() == "echo $?":
            return f"{self.status}\n"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        ours, its = pty.openpty()
        with open(ours, "rb", buffering=0) as shown:
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
            with subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.here,
                env={**os.environ, **ENVIRONMENT, **TERMINAL, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=its,
                stderr=its,
            ) as process:
                os.close(its)
                printed = b"".join(pieces(shown.fileno()))
        self.status = process.returncode if "kill -9 $!" not in line else 0
        return printed.decode().replace("\r\n", "\n")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Enter the folder of the page."""
        with chdir(self.here), fresh_modules(self.here):
            sys.path.insert(0, "")
            yield


def pieces(terminal: int) -> Iterator[bytes]:
    """Yield the bytes written to a terminal until all processes have closed it."""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux raises this at the end of the output
            return
        if not piece:
            return
        yield piece


class RealPage(Page):
    """A page whose commands crawl a real site.

    The output of a real crawl varies only in its numbers, so numbers are ignored in comparisons.

    Args:
        path: The page.
        folder: The folder in which its commands run.
        host: Host and port of the demo.
    """

    def __init__(self, path: Path, folder: Path, host: str) -> None:
        super().__init__(path, folder, RealCommands(folder))
        self._host = host

    def check(self, block: Block) -> None:
        """Run or check a block. Raises an error if the page is wrong."""
        text = block.text.replace(DEMO_HOST, self._host).replace("DemoSite.host", f'"{self._host}"')
        super().check(attrs.evolve(block, text=text))

    def _crawled(self, words: list[str], said: str) -> None:
        assert not re.search(r"ERROR|Traceback", said), said
        self._fed(words, said)

    def _compare(self, expected: str, printed: str) -> None:
        texts = (shown(text.replace(self._host, DEMO_HOST), self._folder) for text in (expected, printed))
        super()._compare(*(NUMBER.sub("N", text) for text in texts))


def lay_out_examples(folder: Path, host: str) -> None:
    """Copy the examples that crawl the demo, with its host and port replaced."""
    (folder / "examples").mkdir()
    for path in EXAMPLES:
        text = path.read_text("utf-8")
        (folder / "examples" / path.name).write_text(text.replace(DEMO_HOST, host), "utf-8")
