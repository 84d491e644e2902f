"""What every test may use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Every run tries the same examples, so that a change is judged by itself; HYPOTHESIS_PROFILE=default draws others.
# How long an example takes is a matter of what else the machine does: the one on which it runs may be busy.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", untimed, derandomize=True, max_examples=40)
settings.register_profile("coverage", untimed, derandomize=True, max_examples=10)  # traced lines take twice the time
settings.register_profile("sweep", untimed, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# A shell may have what it starts in the background ignore Ctrl-C, and nohup a hang-up; so would all that tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

IS_COMPILED = os.environ.get("TRAWL_COMPILED") == "1"  # set by `nox -s compiled`; tests/test_compiled.py holds it true

REAL = {name: getattr(gc, name) for name in ("freeze", "unfreeze")}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Write bytecode of tests and modules alone, and keep the garbage collector from looking at them again and again.

    They are a million objects: half of the time of many tests went there. The command freezes and thaws for the whole
    process, which would undo this; the tests of that use :func:`garbage_collector`.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        sys.dont_write_bytecode = True  # of a module that a test writes anew within the second
        for name in REAL:
            setattr(gc, name, lambda: None)


@pytest.fixture
def garbage_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The garbage collector of a process of its own, of which nothing is frozen."""
    for name, function in REAL.items():
        monkeypatch.setattr(gc, name, function)
    gc.unfreeze()
    yield
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out of a compiled run what only the sources can pass."""
    reason = "replaces a name inside a compiled module, or gives it a stand-in or a value of a wrong type"
    for item in items if IS_COMPILED else ():
        if item.get_closest_marker("interpreted") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def examples() -> Path:
    """The folder of the examples."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def without_modules_of_other_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imports from a folder of its own is forgotten: the next one may have a ``books.py``, too."""
    known, path = {*sys.modules}, sys.path[:]
    yield
    sys.path[:] = path
    folders = f"{tmp_path_factory.getbasetemp()}{os.sep}"
    for name in sys.modules.keys() - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folders):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def without_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings in the environment are weaker than a test's own, but a test should not see them at all."""
    for name in [name for name in os.environ if name.startswith("TRAWL_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
