"""No command that is printed is overlooked: it is run as printed, or a list has the reason why not."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
from contextlib import chdir, closing
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.commands import Commands
from tests.docs.given import ROOT
from tests.docs.mentioned import MENTIONED, files, inline
from tests.docs.not_run import looked_at
from tests.docs.test_page_blocks import OTHERS, TUTORIAL
from tests.docs.typed import PLACEHOLDERS, TYPED, filled, reader_in, typed_for

PAGES = [ROOT / path for path in files() if path.suffix == ".md"]
ANY_FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,}(?=\{))", re.M)


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    reader_in(tmp_path)
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    return Commands(tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_block_of_a_page_is_one_that_is_run_or_looked_at(path: Path) -> None:
    text = path.read_text("utf-8")
    fences, blocks = ANY_FENCE.findall(text), list(blocks_of(text))
    assert len(fences) <= 2 * len(blocks), "a block that is indented, or not closed, is not seen by the tests"
    assert blocks == [] or path in (*TUTORIAL, *OTHERS)


def is_left_out(commands: Commands, line: str) -> bool:
    with chdir(commands.here):
        return looked_at(line)


@pytest.mark.parametrize("printed", sorted(MENTIONED))
def test_a_command_in_a_sentence_does_what_the_sentence_says(printed: str, commands: Commands) -> None:
    typed = typed_for(printed)
    for line in typed.first:
        assert is_left_out(commands, line) or (commands.run(line), commands.status)[1] == 0
    if is_left_out(commands, typed.line):
        return
    said = commands.run(typed.line)
    assert commands.status == typed.status, f"{typed.line}\n{said}"
    assert re.search(typed.says, said), f"{typed.line}\n{said}"
    assert not re.search(r"(?m)^\S+ ERROR |Traceback", said), f"{typed.line}\n{said}"


def test_what_is_typed_for_a_command_of_a_sentence_is_for_one_that_is_there() -> None:
    assert {*TYPED} <= {*MENTIONED}
    words = {word for printed in MENTIONED for word in printed.split(" ")}
    assert {*PLACEHOLDERS} <= words


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Type `trawl crawl\nb.py`, and", ["trawl crawl b.py"]),
        ("It is ``nox -s lint``.", ["nox -s lint"]),
        ("`TRAWL_COMPILED=1 pip install .`", ["TRAWL_COMPILED=1 pip install ."]),
        ("`trawl.crawl(x)`, `a trawl crawl`, ```trawl crawl b```", []),
    ],
)
def test_a_command_in_a_sentence_is_found(text: str, printed: list[str]) -> None:
    assert [*inline(text)] == printed


@pytest.mark.parametrize(
    "line",
    [
        "trawl crowl quotes.py",
        "trawl crawl --no-such-option",
        "trawl check a.py --all",
        "trawl worker --sipder quotes.py redis://store.internal/quotes",
        "nox -s test",
        "pip install 'trawl-crawler[http3]'",
        "pip install trawl",
    ],
)
def test_a_command_that_is_wrong_would_be_found(line: str, commands: Commands) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - an assertion, or what click raises
        assert is_left_out(commands, line) or (commands.run(line), commands.status)[1] == 0


def test_a_job_goes_on_with_what_is_left_after_the_statement_that_a_page_has_for_it(commands: Commands) -> None:
    [line] = [printed for printed in MENTIONED if printed.startswith("sqlite3 DIR/job.db")]
    commands.run("trawl crawl quotes.py --job DIR")
    assert commands.status == 0
    with closing(sqlite3.connect(commands.here / "DIR" / "job.db")) as job, job:
        job.execute("DELETE FROM seen")
    assert "it is damaged" in commands.run("trawl crawl quotes.py --job DIR")
    assert commands.status == 1
    _, path, statement = shlex.split(line)
    with closing(sqlite3.connect(commands.here / path)) as job, job:
        job.execute(statement)
    said = commands.run("trawl crawl quotes.py --job DIR")
    assert commands.status == 0, said


def test_what_a_new_project_says_to_type_works(commands: Commands) -> None:
    said = commands.run("trawl new project shop-two")
    [now] = re.findall(r"^Now: (.*)$", said, re.M)
    assert now == "cd shop-two && trawl crawl spiders/example.py"
    readme = (commands.here / "shop-two" / "README.md").read_text("utf-8")
    lines = [*now.split(" && "), *re.findall(r"^ {4}(.*)$", readme, re.M), *inline(readme)]
    assert len(lines) == 7
    for line in lines:
        said = commands.run(filled(line))
        assert commands.status == 0, said
    assert (commands.here / "items.jsonl").read_text("utf-8")
