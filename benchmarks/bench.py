"""What every row is given: how often to measure, and the site, started when it is first asked for."""

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
        rounds: How often each is measured; the median counts.
        is_quick: Fewer pages and shorter waits: to see that it runs, not to measure.
        folder: For feeds and other files; gone at the end.
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
        """Tell whoever waits."""
        print(text, file=sys.stderr, flush=True)


Measure: TypeAlias = "Callable[[Bench], list[Figure]]"


@attrs.frozen
class Row:
    """One row of the table.

    Attributes:
        name: By which it is run alone.
        title: What is measured.
        measure: Measures it.
    """

    name: str
    title: str
    measure: Measure
