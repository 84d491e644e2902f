"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TEST = """
import trio
from trawl.testing.simulation import Simulation
from trawl.testing.sends import Send

def test_a_web_is_there_and_empty(simulated_web):
    simulated_web.add_host("a.example")
    assert simulated_web.host_of("http://a.example/") is not None

def test_a_failure_shows_what_was_sent(simulated_web):
    send = Send(time=0.25, finished=1.5, url="http://a.example/", host="a.example")
    simulated_web.latest = Simulation(sends=(send,), items=[], stats={}, reason="finished", elapsed=1.5)
    assert False

def test_a_failure_without_a_run_shows_nothing(simulated_web):
    assert False
"""


MOVED = """
import trawl as scrapy

def test_headers_are_scrapys():
    assert scrapy.Request("http://a.example/", headers={"X": "1"}).headers["X"] == b"1"
"""
OF_PROJECT = MOVED.replace("import trawl as scrapy", "from trawl.http import Request").replace("scrapy.R", "R")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    is_installed = any(each.value == "trawl.testing.plugin" for each in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "trawl.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, str(folder)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=300
    )


@pytest.mark.long
def test_the_fixture_is_there_and_a_failed_test_shows_its_sends(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "test_moved.py").write_text(MOVED)
    for name, compat in (("project", "true"), ("other", "false")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text(f"[tool.trawl]\nSCRAPY_COMPAT = {compat}\n")
        (tmp_path / name / f"test_of_{name}.py").write_text(OF_PROJECT)
    output = run(tmp_path).stdout
    assert "3 passed" in output
    assert "3 failed" in output  # one of them in the project that says that it was not moved
    assert output.count("Simulated sends") == 1
    assert "0.250     1.500     1     200" in output


def test_the_plugin_brings_nothing_but_itself() -> None:
    code = (
        "import sys, trawl, pytest; was = set(sys.modules); import trawl.testing.plugin; print(set(sys.modules) - was)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert set(eval(result.stdout)) == {"trawl.testing", "trawl.testing.plugin"}


@pytest.mark.parametrize("text", ["import json", "from trawl.http import Request"])
def test_a_test_that_is_not_moved_loads_no_part_of_the_engine(text: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nDOWNLOAD_DELAY = 1\n")
    code = (
        "import sys, types; from pathlib import Path; from trawl.testing import plugin; was = set(sys.modules);"
        f" next(plugin.pytest_runtest_protocol(types.SimpleNamespace(path=Path({str(tmp_path / 'test_it.py')!r}))));"
        " print({name for name in set(sys.modules) - was if name.startswith('trawl')})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert set(eval(result.stdout)) == {"trawl.scrapy_names", "trawl.scrapy_names.moved"}


@pytest.mark.parametrize(
    ("project", "moved", "other"),
    [
        (b"[tool.trawl]\nSCRAPY_COMPAT = true\n", True, True),
        (b"[tool.trawl]\nSCRAPY_COMPAT = false\n", False, False),
        (b"[tool.trawl.own]\nSCRAPY_COMPAT = true\n", True, False),
        (b"[tool]\ntrawl = 'SCRAPY_COMPAT'\n", True, False),
        (b"[tool.trawl]\nSCRAPY_COMPAT = ", True, False),
        (b"# SCRAPY_COMPAT \xff", True, False),
    ],
)
def test_the_imports_decide_if_the_project_does_not_say_whether_it_was_moved(
    project: bytes, moved: bool, other: bool, tmp_path: Path
) -> None:
    from trawl.testing import plugin

    (tmp_path / "pyproject.toml").write_bytes(project)
    for name, text, expected in (("test_moved.py", MOVED, moved), ("test_other.py", OF_PROJECT, other)):
        (tmp_path / name).write_text(text)
        assert plugin._is_moved(tmp_path / name) is expected


def test_the_project_names_it_as_an_entry_point() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\ntrawl = "trawl.testing.plugin"' in project


def test_a_name_of_the_package_is_loaded_when_it_is_asked_for() -> None:
    from trawl import testing

    assert set(testing.__all__) == set(dir(testing)) == set(testing._HOMES)
    assert testing.SimulatedWeb.__module__ == "trawl.testing.web"
    with pytest.raises(AttributeError, match="nothing"):
        _ = testing.nothing
