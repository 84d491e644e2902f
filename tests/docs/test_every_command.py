"""No command that is printed is overlooked: a test runs its block, or a list has the reason why not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT
from tests.docs.not_run import a_session, group_of_trawl, installable, understood
from tests.docs.test_page_blocks import OTHERS, TUTORIAL

NO_PAGES = {".git", ".venv", ".nox", "_build", "newsfragments", ".pytest_cache", "node_modules"}
ANY_FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,}(?=\{))", re.M)
INLINE = re.compile(r"(?<!`)`((?:trawl|nox|pip|python|pytest) [^`]+)`(?!`)")
EXAMPLE = re.compile(r"^  (trawl .+)$", re.M)
PLACEHOLDERS = {"COMMAND": "crawl", "NAME": "crawl"}
"""What stands for a word of ``trawl``."""


OF_A_NAME_ALONE = {"MissingParameter", "BadOptionUsage", "Exit"}
"""What the reader of words says, by click's names or by those of typer's copy of it, of less than a whole command."""


def pages() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.md")) if not NO_PAGES & {*path.relative_to(ROOT).parts}]


def commands_of(command: Any) -> Iterator[Any]:
    """A command, and those below it."""
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from commands_of(each)


def words_in_prose(text: str) -> list[str]:
    """The commands that stand in sentences: whole ones, of which no part is left to the reader."""
    prose = "".join(
        part for at, part in enumerate(re.split(r"^(```|:::).*?^\1$", text, flags=re.M | re.S)) if at % 2 == 0
    )
    found = (" ".join(command.split()).partition(" >")[0] for command in INLINE.findall(prose))
    return [command for command in found if "..." not in command]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_block_of_a_page_is_one_that_is_run_or_looked_at(path: Path) -> None:
    text = path.read_text("utf-8")
    fences, blocks = ANY_FENCE.findall(text), list(blocks_of(text))
    assert len(fences) <= 2 * len(blocks), "a block that is indented, or not closed, is not seen by the tests"
    assert blocks == [] or path in (*TUTORIAL, *OTHERS)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_in_a_sentence_is_understood(path: Path) -> None:
    for command in words_in_prose(path.read_text("utf-8")):
        look_at(command)


def look_at(command: str) -> None:
    """Refuse a word, an option, a session or an extra that there is not."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    if words[0] == "nox":
        a_session(words)
    elif words[:2] == ["pip", "install"]:
        installable(words)
    elif words[0] == "trawl":
        try:
            understood(words)
        except Exception as error:
            if type(error).__name__ not in OF_A_NAME_ALONE:
                raise


def test_each_command_in_the_help_of_another_is_understood() -> None:
    printed = [
        example for command in commands_of(group_of_trawl()) for example in EXAMPLE.findall(command.epilog or "")
    ]
    assert len(printed) > 40
    for example in printed:
        look_at(example.partition(" >")[0])


@pytest.mark.parametrize(
    "text",
    [
        "`trawl crowl spider.py`",
        "`trawl crawl --no-such-option`",
        "`trawl check a.py --all`",
        "`nox -s test`",
        "`pip install 'trawl-crawler[http3]'`",
        "`pip install trawl`",
    ],
)
def test_a_command_that_is_wrong_would_be_found(text: str) -> None:
    [command] = words_in_prose(f"Type {text}, and\n\n```sh\ntrawl nonsense\n```\n")
    with pytest.raises(Exception):  # noqa: B017, PT011 - an assertion, or what click raises
        look_at(command)
