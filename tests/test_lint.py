"""The hooks of pre-commit are what ``nox -s lint`` runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOOKS = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"), re.M)


def commands_of_lint() -> list[str]:
    """The commands of the session without their files; one with several sets of rules, once for each set."""
    module = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    values = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    (lint,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "lint")
    calls = [node for node in ast.walk(lint) if isinstance(node, ast.Call) and ast.unparse(node.func) == "session.run"]
    commands = [[word.value if isinstance(word, ast.Constant) else word for word in call.args] for call in calls]
    found = []
    for command in commands:
        names = [word.id for word in command if isinstance(word, ast.Name)]
        for rules in [values["IN_CODE"], values["IN_TESTS"]] if "rules" in names else [""]:
            words = [
                rules if isinstance(word, ast.Name) else word for word in command if not isinstance(word, ast.Starred)
            ]
            found.append(" ".join(str(word) for word in words))
    return found


def test_each_command_of_lint_is_a_hook_and_each_hook_is_one_of_lints() -> None:
    assert len(HOOKS) >= 7
    assert sorted(HOOKS) == sorted(commands_of_lint())


def test_each_session_is_told_of_where_people_look_who_contribute() -> None:
    module = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    decorated = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    sessions = {node.name.replace("_", "-") for node in decorated}
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    assert sessions == set(re.findall(r"^\| `nox -s ([\w-]+)` \|", page, re.M))
