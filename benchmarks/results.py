"""The figures of a run, stored row by row, so that an interrupted run can be resumed."""

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
    """Rows with their figures, and the machine on which they were measured.

    Attributes:
        rows: By name: title, rounds, time, machine and figures.
    """

    def __init__(self, rows: dict[str, Any] | None = None) -> None:
        self.rows: dict[str, Any] = rows or {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the stored results; empty if there is no file."""
        return cls(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.exists() else cls()

    def add(self, row: Row, figures: list[Figure], *, rounds: int) -> None:
        """Add a row."""
        self.rows[row.name] = {
            "title": row.title,
            "rounds": rounds,
            "at_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "figures": [{**attrs.asdict(figure), "is_reached": figure.is_reached} for figure in figures],
        }

    def write(self, path: Path) -> None:
        """Write all rows to a file in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        text = json.dumps({"machine": machine(), "rows": self.rows}, indent=1)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)

    def missed(self) -> list[str]:
        """Return the figures that missed their goals."""
        return [
            f"{name} ({figure['name']})"
            for name, row in self.rows.items()
            for figure in row["figures"]
            if figure["is_reached"] is False
        ]


def commit() -> str:
    """Return the measured commit; "" if it is unknown."""
    command, folder = ["git", "describe", "--always", "--dirty"], Path(__file__).parent
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


@cache
def machine() -> dict[str, Any]:
    """Return a description of the machine and the versions."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "versions": {
            **{peer: version_of(peer) for peer in PEERS if peer in ("scrapy", "crawlee")},
            "nginx": nginx()[1],
            **{name: found for name in SHOWN if (found := installed(name))},
        },
    }


def processor() -> str:
    """Return the processor's name, as reported by Linux."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed(name: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
