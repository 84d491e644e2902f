"""Python in processes of its own, each forked from one that has imported what they need: a start takes no second.

That one is :mod:`multiprocessing`'s fork server. It lives as long as the tests do, and none of them is measured for
coverage, which would take twice the time and tell nothing: what is run here are the pages' programs.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

__all__ = ["python", "run_forked"]

LONGEST = 60.0
"""Seconds that a process, or a crawl on the virtual clock, may take: a test that hangs for longer ends all tests."""
IMPORTED = ["pytest", "trawl.testing.simulation", "trawl.cli.crawl", "trawl._run"]


def run_forked(
    function: Callable[..., object],
    *given: Any,
    folder: Path,
    environment: Mapping[str, str],
    said: Path,
) -> int:
    """Call a function in a process of its own; its exit status, or ``-N`` if signal N killed it.

    Args:
        function: Of a module that can be imported.
        given: Its arguments.
        folder: The working directory.
        environment: Variables that are set besides those of this process.
        said: The file for what it prints, standard output and errors together.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=_begin, args=(function, given, str(folder), dict(environment), str(said)))
    measured = [name for name in os.environ if name.startswith("COVERAGE_")]
    with patch.dict(os.environ):
        for name in measured:
            del os.environ[name]
        process.start()
    process.join(LONGEST)
    if process.exitcode is None:
        process.kill()
        process.join()
    status = process.exitcode
    process.close()
    assert status is not None
    return status


def python(words: Sequence[str]) -> None:
    """What ``python FILE ...``, ``python -m MODULE ...`` and ``pytest ...`` do."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the reader has tests of their own
    if words[0] == "pytest":
        import pytest

        has_own = any(Path(name).exists() for name in ("pyproject.toml", "pytest.ini"))
        sys.exit(pytest.main([*words[1:], *([] if has_own else ["-c", os.devnull, "--rootdir", "."])]))
    if words[1] == "-m":
        sys.argv = [*words[2:]]
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        return
    sys.argv = [*words[1:]]
    sys.path.insert(0, str(Path(words[1]).resolve().parent))
    runpy.run_path(words[1], run_name="__main__")


def _begin(
    function: Callable[..., object], given: Sequence[Any], folder: str, environment: Mapping[str, str], said: str
) -> None:
    """Take the place of a program that a shell has started."""
    os.chdir(folder)
    os.environ.update(environment)
    sys.dont_write_bytecode = True
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    function(*given)
