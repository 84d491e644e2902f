"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Every run tries the same examples, so that a failure is caused by the change. HYPOTHESIS_PROFILE=default draws other
# examples. Examples have no deadline, because the machine may be busy.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", untimed, derandomize=True, max_examples=40)
# Tracing doubles the time of each line.
settings.register_profile("coverage", untimed, derandomize=True, max_examples=10)
settings.register_profile("sweep", untimed, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# A shell starts background processes with SIGINT ignored, and nohup ignores SIGHUP. Processes that tests start would
# inherit this.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

IS_COMPILED = os.environ.get("TRAWL_COMPILED") == "1"  # set by `nox -s compiled`, and checked by tests/test_compiled.py

REAL = {name: getattr(gc, name) for name in ("freeze", "unfreeze")}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Write bytecode only for tests and modules, and freeze their objects for the garbage collector.

    These are a million objects, and collecting them took half of the time of many tests. The command's own freezing and
    unfreezing would undo this. Tests of that code use :func:`garbage_collector`.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        sys.dont_write_bytecode = True  # a test may rewrite a module within the same second
        for name in REAL:
            setattr(gc, name, lambda: None)


@pytest.fixture
def garbage_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield with a garbage collector that has no frozen objects, as in a new process."""
    for name, function in REAL.items():
        monkeypatch.setattr(gc, name, function)
    gc.unfreeze()
    yield
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests in a compiled run that only pass with the sources."""
    reason = "replaces a name inside a compiled module, or gives it a stand-in or a value of a wrong type"
    for item in items if IS_COMPILED else ():
        if item.get_closest_marker("interpreted") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def examples() -> Path:
    """Return the folder of the examples."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def without_modules_of_other_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules from a test's own folder, because the next test may also have a ``books.py``."""
    known, path = {*sys.modules}, sys.path[:]
    yield
    sys.path[:] = path
    folders = f"{tmp_path_factory.getbasetemp()}{os.sep}"
    for name in sys.modules.keys() - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folders):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def without_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Remove settings from the environment, so that a test never sees them, and keep its files out of the home."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
    for name in [name for name in os.environ if name.startswith("TRAWL_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
