"""The order in which Trio runs its tasks, made a function of a seed.

Trio shuffles the tasks that become runnable together, so that no program comes to rely on an order. A simulation has to
give the same sends for the same seed, in a new process too. Trio has two private switches for that, which Hypothesis
uses through pytest-trio: whether a batch of tasks is sorted before it is shuffled, and the generator that shuffles it.
This is the one module that touches them; it puts both back.

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

_nested: trio.lowlevel.RunVar[int] = trio.lowlevel.RunVar("trawl_simulations", 0)


@contextmanager
def seeded_scheduling(seed: int | str) -> Iterator[None]:
    """Run tasks in an order that depends on ``seed`` alone, until the block ends. To be put around ``trio.run``.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    module, generator = _switches()
    was_sorted, was = getattr(module, _SORTED), generator.getstate()
    setattr(module, _SORTED, True)
    generator.seed(f"trawl:{seed}")
    try:
        yield
    finally:
        setattr(module, _SORTED, was_sorted)
        generator.setstate(was)


@contextmanager
def seeded_scheduling_here(seed: int | str) -> Iterator[None]:
    """The same inside a running Trio program, from the next batch of tasks on; inside such a block it does nothing.

    Raises:
        RuntimeError: This Trio does not have the switches any more.
    """
    depth = _nested.get()
    _nested.set(depth + 1)
    try:
        if depth:
            yield
        else:
            with seeded_scheduling(seed):
                yield
    finally:
        _nested.set(_nested.get() - 1)


def _switches() -> tuple[object, random.Random]:
    """The module of Trio that has the switches, and its generator."""
    module = getattr(getattr(trio, "_core", None), "_run", None)
    generator = getattr(module, _GENERATOR, None)
    if not isinstance(getattr(module, _SORTED, None), bool) or not isinstance(generator, random.Random):
        raise RuntimeError(f"Trio {trio.__version__} can't be seeded: its private switches for tests are gone")
    return module, generator
