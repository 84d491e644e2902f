"""The order in which Trio runs its tasks, made a function of a seed.

Trio shuffles the tasks that become runnable together, so that no program comes to rely on an order. A simulation has to
give the same sends for the same seed, in a new process too. Trio has two private switches for that, which Hypothesis
uses through pytest-trio: whether a batch of tasks is sorted before it is shuffled, and the generator that shuffles it.
This is the one module that touches them; it puts both back.

Among themselves the tasks of requests run in the order in which they were granted: what goes to the wire at one instant
goes in the order of the choice, so that a test may assert it (F07, F12).

They belong to the process, not to one run of Trio: crawls that are simulated side by side in one program share them,
the first one's seed counts, and the last one to end puts them back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import trio

__all__ = ["seeded_scheduling", "seeded_scheduling_here"]

_SORTED = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR = "_r"
_REQUEST = "trawl.engine.flow.Flow.run"
"""The name of a request's task."""


@contextmanager
def seeded_scheduling(seed: int | str) -> Iterator[None]:
    """Run tasks in an order that depends on ``seed`` alone, until the block ends. To be put around ``trio.run``.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    held = _Held(seed)
    try:
        yield
    finally:
        held.put_back()


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """The same inside a running Trio program, from the next batch of tasks on.

    Where blocks overlap, the first one's seed counts, and the last one to end puts the switches back.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    held = _shared.get()
    if held is None:
        held = _Held(seed)
        _shared.set(held)
    held.blocks += 1
    try:
        yield
    finally:
        held.blocks -= 1
        if not held.blocks:
            _shared.set(None)
            held.put_back()


class _Held:
    """The switches while they are set, and how they were."""

    def __init__(self, seed: int | str) -> None:
        self._module, self._generator = _switches()
        self._was_sorted = getattr(self._module, _SORTED)
        self._was = self._generator.getstate()
        self.blocks = 0
        setattr(self._module, _SORTED, True)
        self._generator.seed(f"trawl:{seed}")
        vars(self._generator)["shuffle"] = self._shuffle

    def _shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        """Shuffle a batch that is sorted by age and run from its end; the oldest of the requests' tasks runs first."""
        if len(batch) < 2:
            return
        requests = reversed([task for task in batch if task.name == _REQUEST])
        random.Random.shuffle(self._generator, batch)
        batch[:] = [next(requests) if task.name == _REQUEST else task for task in batch]

    def put_back(self) -> None:
        vars(self._generator).pop("shuffle", None)
        setattr(self._module, _SORTED, self._was_sorted)
        self._generator.setstate(self._was)


_shared: trio.lowlevel.RunVar[_Held | None] = trio.lowlevel.RunVar("trawl_seeded_scheduling", None)


def _switches() -> tuple[object, random.Random]:
    """The module of Trio that has the switches, and its generator."""
    module = getattr(getattr(trio, "_core", None), "_run", None)
    generator = getattr(module, _GENERATOR, None)
    if not isinstance(getattr(module, _SORTED, None), bool) or not isinstance(generator, random.Random):
        raise RuntimeError(f"Trio {trio.__version__} can't be seeded: its private switches for tests are gone")
    return module, generator
