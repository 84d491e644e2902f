"""Runs Python in processes forked from a process that has already imported the modules, so that starts are fast.

That process is the fork server of :mod:`multiprocessing`. It lives as long as the tests. Coverage is not measured in
the processes, because it would double the time, and the processes run only the pages' programs.
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
"""Maximum seconds for a process or a crawl on the virtual clock. A test that hangs for longer ends all tests."""
IMPORTED = ["pytest", "trawl.testing.simulation", "trawl.cli.crawl", "trawl._run"]


def run_forked(
    function: Callable[..., object],
    *given: Any,
    folder: Path,
    environment: Mapping[str, str],
    said: Path,
) -> int:
    """Call a function in a separate process. Returns its exit status, or ``-N`` if signal N killed it.

    Args:
        function: A function of an importable module.
        given: Its arguments.
        folder: The working directory.
        environment: Environment variables to set in addition to those of this process.
        said: The file for standard output and standard error.
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
    """Do the same as ``python FILE ...``, ``python -m MODULE ...`` or ``pytest ...``."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the reader may have a package with the same name
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
    """Prepare the process like a program that a shell has started, and call the function."""
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
