"""The figures of a run, kept row by row: a run that was broken off goes on where it was."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import attrs

from benchmarks.bench import Row
from benchmarks.figures import Figure
from benchmarks.peers import PEERS, version_of
from benchmarks.site import nginx

__all__ = ["Results"]

SHOWN = ("trio", "httpx", "httptools", "ada-url", "parsel", "lxml", "msgspec")


class Results:
    """Rows and their figures, with the machine that gave them.

    Attributes:
        rows: By name: title, rounds, when, the machine, and the figures.
    """

    def __init__(self, rows: dict[str, Any] | None = None) -> None:
        self.rows: dict[str, Any] = rows or {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """What is kept; nothing where there is no file."""
        return cls(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.exists() else cls()

    def add(self, row: Row, figures: list[Figure], *, rounds: int) -> None:
        """Keep a row."""
        self.rows[row.name] = {
            "title": row.title,
            "rounds": rounds,
            "at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "figures": [{**attrs.asdict(figure), "is_reached": figure.is_reached} for figure in figures],
        }

    def write(self, path: Path) -> None:
        """Keep all rows, in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        text = json.dumps({"machine": machine(), "rows": self.rows}, indent=1)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)

    def missed(self) -> list[str]:
        """The figures that are not what they are to be."""
        return [
            f"{name} ({figure['name']})"
            for name, row in self.rows.items()
            for figure in row["figures"]
            if figure["is_reached"] is False
        ]


def commit() -> str:
    """What was measured."""
    command, folder = ["git", "describe", "--always", "--dirty"], Path(__file__).parent
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


@cache
def machine() -> dict[str, Any]:
    """Where, and with what."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "versions": {
            **{peer: version_of(peer) for peer in PEERS if peer != "compiled"},  # its versions are these
            "nginx": nginx()[1],
            **{name: found for name in SHOWN if (found := installed(name))},
        },
    }


def processor() -> str:
    """Its name, as Linux tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed(name: str) -> str:
    """The version of a package; empty if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
