"""What is released: the files of the wheel, and the workflow that runs the gate."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

import trawl
from tests.extras import USES

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGE = ROOT / "trawl"
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


@pytest.mark.interpreted
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    assert names == wanted
    assert {"trawl/py.typed", "trawl/__main__.py"} <= names
    assert any(re.fullmatch(r"trawl/frontier/redis/scripts/\w+\.lua", name) for name in names)


@pytest.mark.interpreted
def test_what_an_index_shows_of_the_readme_links_to_nothing_that_is_not_there(tmp_path: Path) -> None:
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links), links
    assert "the panel shows what each request is waiting for:" not in text, "it announces a picture that is left out"


def test_what_the_readme_links_to_in_the_repository_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https://")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {trawl.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_each_extra_is_used_by_the_session_for_them() -> None:
    assert set(USES) == set(PROJECT["optional-dependencies"])


def sessions_of_nox() -> set[str]:
    """Return the names of the sessions."""
    body = ast.parse((ROOT / "noxfile.py").read_text("utf-8")).body
    return {node.name.replace("_", "-") for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list}


def test_the_workflow_runs_the_gate_on_each_version_of_python_and_the_compiled_build() -> None:
    assert "run: bash .ci/run\n" in WORKFLOW
    assert "nox -s compiled\n" in WORKFLOW
    [versions] = re.findall(r"python: \[(.+)\]", WORKFLOW)
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert re.findall(r"3\.\d+", versions) == claimed
    [listed] = re.findall(r"session: \[(.+)\]", WORKFLOW)
    assert set(listed.split(", ")) <= sessions_of_nox()


def test_the_workflow_pins_each_action_to_a_commit() -> None:
    used = re.findall(r"uses: (.+)", WORKFLOW)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_the_gate_runs_each_session_at_least_in_its_short_form() -> None:
    gate = (ROOT / ".ci" / "run").read_text("utf-8")
    run = {name.removesuffix("-short") for name in re.findall(r"[\w-]+", gate)}
    assert sessions_of_nox() - run == {"bench"}
