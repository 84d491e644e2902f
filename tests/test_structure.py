"""The rules of the house that a machine can hold: sizes, docstrings, cycles, the README, the examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from tests import conftest
from tests.promises import conftest as of_promises

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trawl"
MODULES = sorted(PACKAGE.rglob("*.py"))
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.py") if path.name != "__init__.py")

MOST_LINES_A_MODULE = 500
MOST_LINES_A_FUNCTION = 50
MOST_ATTRIBUTES_OF_A_CLASS = 20

Function = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(path: Path) -> str:
    """The import name of a module's file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """A module's tree: a dozen tests look at each."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def definitions(path: Path) -> list[ast.ClassDef | Function]:
    """The classes and functions of a module. Expressions, which are most of its nodes, are not walked through."""
    found: list[ast.ClassDef | Function] = []
    nodes: list[ast.AST] = [parsed(path)]
    for node in nodes:
        if isinstance(node, ast.ClassDef | Function):
            found.append(node)
        parts = ast.iter_child_nodes(node)
        nodes += [part for part in parts if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case)]
    return found


def length_of(function: Function) -> int:
    """The lines of a function's body, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno is not None else 0


def public(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """The classes and functions of a body whose names are public, with the public ones inside the classes."""
    for node in body:
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        if decorators & {"setter", "deleter", "overload", "override"}:
            continue
        yield f"{prefix}.{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from public(node.body, f"{prefix}.{node.name}")


def imports_at_start(path: Path) -> set[str]:
    """What a module imports when it is imported: not what only a type checker or a later call sees."""
    found: set[str] = set()
    todo: list[ast.stmt] = list(parsed(path).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            todo += node.body + node.orelse
        elif isinstance(node, ast.Try):
            todo += node.body + node.orelse + node.finalbody
            todo += [statement for handler in node.handlers for statement in handler.body]
    return found


def imports_ever(path: Path) -> set[str]:
    """What a module imports at any time, in a function or for a type checker too, or names to ``import_module``."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found.update(str(each.value) for each in node.args if isinstance(each, ast.Constant))
    return found


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """The names of one cycle, or nothing."""
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> list[str]:
        state[name] = 1
        path.append(name)
        for other in sorted(graph[name]):
            if state.get(other) == 1:
                return [*path[path.index(other) :], other]
            if other not in state and (found := visit(other)):
                return found
        state[name] = 2
        path.pop()
        return []

    return next((found for name in sorted(graph) if name not in state and (found := visit(name))), [])


def has_no_reason(path: Path) -> bool:
    """Whether the head of a module gives no reason for a size."""
    return "Length: " not in (ast.get_docstring(parsed(path)) or "")


def test_a_module_is_of_one_idea_and_not_long() -> None:
    lengths = {dotted(path): len(path.read_text("utf-8").splitlines()) for path in MODULES if has_no_reason(path)}
    long = {name: length for name, length in lengths.items() if length > MOST_LINES_A_MODULE}
    assert long == {}, "long: say why in its head, after Length:"


def test_a_function_fits_on_a_screen() -> None:
    functions = [
        (f"{dotted(path)}.{node.name}:{node.lineno}", length_of(node))
        for path in filter(has_no_reason, MODULES)
        for node in definitions(path)
        if isinstance(node, Function)
    ]
    assert [(name, length) for name, length in functions if length > MOST_LINES_A_FUNCTION] == []


def attributes_of(node: ast.ClassDef) -> set[str]:
    """The names that a class declares in its body, or that its methods set on ``self``."""
    declared = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    stored = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
    return declared | {each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self"}


def test_a_class_has_few_attributes() -> None:
    classes = {
        f"{dotted(path)}.{node.name}": len(attributes_of(node))
        for path in MODULES
        for node in definitions(path)
        # Settings and stored records have as many as there are values.
        if isinstance(node, ast.ClassDef) and not node.name.endswith(("Settings", "Record", "CrawlStatus"))
    }
    assert {name: count for name, count in classes.items() if count > MOST_ATTRIBUTES_OF_A_CLASS} == {}


def test_every_public_name_is_documented() -> None:
    bare = [dotted(path) for path in MODULES if not ast.get_docstring(parsed(path))]
    for path in MODULES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part.startswith("_") and part != "__init__" for part in parts):
            named = public(parsed(path).body, dotted(path))
            bare += [name for name, node in named if not ast.get_docstring(node)]
    assert bare == []


def told_in(docstring: str, section: str) -> list[str]:
    """The names that a section of a docstring tells of."""
    found: list[str] = []
    head: re.Match[str] | None = None
    for line in docstring.splitlines():
        if head is None:
            head = re.fullmatch(rf"( *){section}:", line)
        elif line and not line.startswith(head[1] + "    "):
            break
        elif (name := re.match(rf"{head[1]}    (\w+): ", line)) is not None:
            found.append(name[1])
    return found


def taken_by(function: Function) -> set[str]:
    """The names of a function's arguments."""
    arguments = function.args
    others = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    placed = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if placed[:1] in (["self"], ["cls"]):
        del placed[0]
    return {*placed, *[each.arg for each in (*arguments.kwonlyargs, *others)]} - {"_"}


@cache
def classes() -> dict[str, ast.ClassDef]:
    """The classes of the package, by name."""
    return {node.name: node for path in MODULES for node in definitions(path) if isinstance(node, ast.ClassDef)}


@cache
def members_of(cls: ast.ClassDef) -> set[str]:
    """The names that a class and its bases in the package have or set, roughly: those of its methods' variables too."""
    found: set[str] = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, Function):
            found.add(node.name)
    for base in cls.bases:
        known = classes().get(ast.unparse(base).rpartition(".")[2])
        if known is not None and known is not cls:
            found |= members_of(known)
    return found


def test_a_docstring_tells_of_the_arguments_and_attributes_that_there_are() -> None:
    wrong: list[str] = []
    nodes = [(path, node) for path in MODULES for node in definitions(path)]
    for path, node in nodes:
        docstring = ast.get_docstring(node) or ""
        made: ast.ClassDef | Function | None = node
        if isinstance(node, ast.ClassDef):
            gone = set(told_in(docstring, "Attributes")) - members_of(node)
            wrong += [f"{dotted(path)}.{node.name} has no {name}" for name in sorted(gone)]
            made = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
        arguments = set(told_in(docstring, "Args"))
        if arguments and isinstance(made, Function):
            wrong += [f"{dotted(path)}.{node.name}() and {name}" for name in sorted(arguments ^ taken_by(made))]
    assert wrong == []


def test_a_section_of_a_docstring_is_read() -> None:
    words = "Do it.\n\nArgs:\n    one: The first,\n        or: not.\n    two: The second.\n\nRaises:\n    three: Never."
    assert told_in(words, "Args") == ["one", "two"]
    assert told_in(words, "Attributes") == []


def test_a_package_says_what_it_exports() -> None:
    faces = [path for path in MODULES if path.name == "__init__.py" and len(list(path.parent.glob("*.py"))) > 1]
    assert [dotted(path) for path in faces if "__all__ = " not in path.read_text(encoding="utf-8")] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = {dotted(path) for path in MODULES}
    graph = {dotted(path): (imports_at_start(path) & known) - {dotted(path)} for path in MODULES}
    assert cycle_in(graph) == []


def test_no_package_imports_itself_by_way_of_others_not_even_for_a_type_or_later() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        if path != PACKAGE / "__init__.py":  # which finds everything by its name
            used = {each.split(".")[1] for each in imports_ever(path) if each.startswith("trawl.")}
            graph.setdefault(dotted(path).split(".")[1], set()).update(used)
    assert cycle_in({name: (used & graph.keys()) - {name} for name, used in graph.items()}) == []


def test_a_cycle_would_be_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c", "b"]


def test_one_module_imports_httpx() -> None:
    having = {
        dotted(path)
        for path in MODULES
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Import) and any(a.name.partition(".")[0] == "httpx" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "httpx")
    }
    assert having == {"trawl.transport.httpx_adapter"}


def test_the_readme_has_a_short_spider() -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    spider = next(text for language, text in blocks if language == "python")
    assert len([line for line in spider.splitlines() if line]) <= 10
    compile(spider, "README.md", "exec")


def test_every_example_has_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "examples").rglob("*.py")))
    assert [path.name for path in EXAMPLES if path.name not in tests] == []
    assert EXAMPLES, "there is no example"


def test_every_package_has_tests() -> None:
    having = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - having == set()


def test_a_promise_of_which_only_some_cases_run_also_runs_behind_user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "ONE_CASE_OF", {"test_a": 10**9})
    items = [Case(f"test_a[{form}-{seed}]") for form in ("plain", "behind-user-code") for seed in range(30)]
    conftest.pytest_collection_modifyitems(cast(list[pytest.Item], items))
    of_promises.pytest_collection_modifyitems(cast(list[pytest.Item], items))
    assert [item.name for item in items if not item.markers] == ["test_a[plain-0]", "test_a[behind-user-code-0]"]


class Case:
    """A collected case of a test."""

    originalname = "test_a"

    def __init__(self, name: str) -> None:
        self.name, self.nodeid = name, f"tests/promises/test_x.py::{name}"
        self.markers: list[object] = []

    def add_marker(self, marker: object) -> None:
        self.markers.append(marker)

    def get_closest_marker(self, name: str) -> None:
        """Return no marker."""


def test_each_test_of_which_only_some_cases_run_is_there() -> None:
    text = (ROOT / "tests" / "conftest.py").read_text("utf-8").partition("ONE_CASE_OF = {")[2].partition("}")[0]
    names = re.findall(r'"(test_\w+)"', text)
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert names
    assert [name for name in names if f"def {name}(" not in tests] == []
