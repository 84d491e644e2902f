"""The argument of every row. It has the number of rounds and the site, which starts when it is first used."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import attrs

from benchmarks.figures import Figure
from benchmarks.site import Site, serving

__all__ = ["Bench", "Row"]


class Bench:
    """One run of the benchmark.

    Attributes:
        rounds: Number of measurements of each figure; the result is their median.
        is_quick: True to use fewer pages and shorter waits. This checks that the rows run; the figures do not count.
        folder: Folder for feeds and other files, removed at the end.
    """

    def __init__(self, rounds: int, *, is_quick: bool = False) -> None:
        self.rounds: int = rounds
        self.is_quick: bool = is_quick
        self._stack = ExitStack()
        self._site: Site | None = None
        self.folder: Path = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def site(self) -> Site:
        """The running nginx."""
        if self._site is None:
            self._site = self._stack.enter_context(serving())
        return self._site

    def say(self, text: str) -> None:
        """Print a progress message."""
        print(text, file=sys.stderr, flush=True)


Measure: TypeAlias = "Callable[[Bench], list[Figure]]"


@attrs.frozen
class Row:
    """One row of the table.

    Attributes:
        name: Name for ``--row``.
        title: Description of the measurement.
        measure: Runs the measurement.
    """

    name: str
    title: str
    measure: Measure
