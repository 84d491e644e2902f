"""Time of imports before anything runs, each in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.peers import ROOT, peer_python

__all__ = ["imports"]

IMPORT = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
WHOLE = "from trawl import Spider, Request, Response, Item, CloseSpider, run"
REPEAT = 3
"""Number of measurements per round. The result is the shortest time, because other programs only lengthen an import."""


def imported(peer: str, what: str, compiled: Path) -> float:
    """Return the milliseconds of an import in a new process, without Python's own start."""
    command = [peer_python(peer), "-c", IMPORT.format(what)]
    return min(float(output(command, compiled)) for _ in range(REPEAT)) * 1_000


def ended(compiled: Path, *arguments: str) -> float:
    """Return the milliseconds of a whole process, including Python's own start."""

    def once() -> float:
        began = time.perf_counter()
        output([sys.executable, *arguments], compiled)
        return time.perf_counter() - began

    return min(once() for _ in range(REPEAT)) * 1_000


def output(command: list[str], compiled: Path) -> str:
    """Return the output of a process. Its bytecode is cached in a folder, as for an installed package."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment).stdout


def imports(bench: Bench) -> list[Figure]:
    """Return times of ``import trawl`` and ``import scrapy``, of all imports of a spider's file, and of the command."""
    compiled = bench.folder / "compiled"
    ours, theirs, all_of_ours, helps, own = [], [], [], [], []
    for what in (WHOLE, "import trawl.cli"):
        output([sys.executable, "-c", what], compiled)
    output([sys.executable, "-m", "trawl", "--help"], compiled)
    output([peer_python("scrapy"), "-c", "import scrapy"], compiled)
    for _ in range(bench.rounds):
        ours.append(imported("trawl", "import trawl", compiled))
        theirs.append(imported("scrapy", "import scrapy", compiled))
        all_of_ours.append(imported("trawl", WHOLE, compiled))
        helps.append(ended(compiled, "-m", "trawl", "--help"))
        own.append(ended(compiled, "-c", "import trawl.cli"))
    return [
        median_of("import trawl", ours, "ms"),
        median_of("import scrapy", theirs, "ms"),
        median_of("spider, request, response, item, and the engine", all_of_ours, "ms"),
        median_of("trawl --help", helps, "ms", most=70),
        median_of("import trawl.cli", own, "ms"),
        ratio_of("import trawl against import scrapy", ours, theirs, most=0.8),
        ratio_of("with the engine, against import scrapy", all_of_ours, theirs),
        ratio_of("trawl --help against import trawl.cli", helps, own),
    ]
