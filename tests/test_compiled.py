"""The compiled build: its list of modules, how it is asked for, and that a compiled run is one."""

from __future__ import annotations

import ast
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.conftest import IS_COMPILED
from trawl.cli import main

ROOT = Path(__file__).parent.parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
HOOK = BUILD["targets"]["wheel"]["hooks"]["custom"]
MODULES: list[str] = HOOK["modules"]
WHOLE = ("scheduler", "throttling", "engine", "transport/http11")
"""The packages of which each module is compiled, or left out for a reason."""


def the_hook() -> Any:
    """What hatchling calls when it makes a wheel."""
    builder = WheelBuilder(str(ROOT))
    hooks = builder.get_build_hooks("unused")
    return hooks["custom"]


def test_the_list_is_in_order_and_names_modules_that_there_are() -> None:
    assert sorted(MODULES) == MODULES
    assert [name for name in [*MODULES, *HOOK["left-out"]] if not (ROOT / name).is_file()] == []


def test_each_module_of_the_hot_packages_is_compiled_or_left_out_for_a_reason() -> None:
    files = {str(path.relative_to(ROOT)) for name in WHOLE for path in (ROOT / "trawl" / name).glob("[!_]*.py")}
    assert files - set(MODULES) - HOOK["left-out"].keys() == set()
    assert HOOK["left-out"].keys() & set(MODULES) == set()
    assert all(HOOK["left-out"].values())


def test_no_compiled_module_has_what_mypyc_refuses_when_the_module_is_imported() -> None:
    refused = []
    for file in MODULES:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            values = [node.value for node in kind.body if isinstance(node, ast.AnnAssign | ast.Assign)]
            calls = {ast.unparse(value.func) for value in values if isinstance(value, ast.Call)}
            names = calls | {ast.unparse(base) for base in kind.bases}
            refused += [
                (file, kind.name) for name in names if name.split(".")[-1] in {"Factory", "field", "ib", "Struct"}
            ]
    assert refused == []


@pytest.mark.parametrize("file", MODULES)
def test_a_module_is_compiled_in_a_compiled_run_and_in_no_other(file: str) -> None:
    spec = find_spec(file.removesuffix(".py").replace("/", "."))
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.endswith(EXTENSION_SUFFIXES[0]) is IS_COMPILED


def test_the_version_says_how_many_modules_are_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert (f", {len(MODULES)} modules compiled)" in capfd.readouterr().out) is IS_COMPILED


@pytest.mark.parametrize("value", [None, "", "0"])
def test_a_wheel_is_pure_python_and_needs_no_compiler(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("TRAWL_COMPILED", value)
    hook = the_hook()
    assert hook.dependencies() == []
    built: dict[str, Any] = {}
    hook.initialize("standard", built)
    assert built == {}


def test_a_compiled_wheel_needs_the_compiler_and_what_the_package_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAWL_COMPILED", "1")
    needed = the_hook().dependencies()
    assert set(HOOK["requires"]) < set(needed)
    assert [name for name in needed if name.startswith("trio")] != []


def test_an_editable_install_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAWL_COMPILED", "1")
    with pytest.raises(ValueError, match=r"editable .* leave out either TRAWL_COMPILED or --editable"):
        the_hook().initialize("editable", {})


def test_a_value_that_is_neither_yes_nor_no_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAWL_COMPILED", "yes")
    with pytest.raises(ValueError, match="TRAWL_COMPILED is 'yes'; set it to 1"):
        the_hook().dependencies()
