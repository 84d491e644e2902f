"""The tutorial, the explanation pages and the README: every block of code is run, and prints what the page says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Page, blocks_of
from tests.docs.commands import Commands

ROOT = Path(__file__).parents[2]
WIDTH = 90  # characters; the theme shows 84, and a line of output may be cut
PARTS = ("first-polite-crawl", "data-that-lasts", "throttle-and-test")
TUTORIAL = [ROOT / "docs" / "tutorial" / f"{name}.md" for name in PARTS]
OTHERS = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "explanation").glob("*.md"))]
NOT_RUN = {
    "python3.11 -m venv .venv": "makes a Python, to be filled from an index of packages",
    ".venv/bin/pip install .": "installs from an index of packages",
    "pip install pytest": "installs from an index of packages",
    ".venv/bin/pip install nox": "installs from an index of packages",
    ". .venv/bin/activate": "there is no such environment to enter",
    ".venv/bin/nox -s tests": "runs the tests, this one among them",
    ".venv/bin/trawl crawl examples/pydoc.py -O out.jsonl": "takes half a minute; tests/examples/test_pydoc.py runs it",
}


def blocks(path: Path) -> list[Block]:
    return list(blocks_of(path.read_text(encoding="utf-8")))


def follow(path: Path, folder: Path, *, after: Sequence[Path] = ()) -> Page:
    """Work through a page in a folder that has the files which the pages before it leave there."""
    (folder / "examples").symlink_to(ROOT / "examples")
    page = Page(folder, Commands(folder), NOT_RUN)
    for block in (block for earlier in after for block in blocks(earlier) if block.is_of_a_file):
        page.save(block)
    for block in blocks(path):
        try:
            page.check(block)
        except BaseException as error:
            error.add_note(f"{path.name}, line {block.line}")
            raise
    return page


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_part_of_the_tutorial_works_and_prints_what_it_says(part: int, tmp_path: Path) -> None:
    page = follow(TUTORIAL[part - 1], tmp_path, after=TUTORIAL[: part - 1])
    assert page.counts["sh"] > 3


def test_the_tutorial_is_followed_in_its_order() -> None:
    assert re.findall(r"^[\w-]+$", (TUTORIAL[0].parent / "index.md").read_text("utf-8"), re.M) == list(PARTS)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_the_code_of_a_page_works_and_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    follow(path, tmp_path)


@pytest.mark.parametrize("path", [*TUTORIAL, *OTHERS], ids=lambda path: path.stem)
def test_the_code_of_a_page_fits_its_column(path: Path) -> None:
    kinds = {"python", "sh", "text", "toml", "diff"}
    shown = [block for block in blocks(path) if block.language in kinds]
    assert [line for block in shown for line in block.text.splitlines() if len(line) > WIDTH] == []


def test_what_is_not_run_is_there() -> None:
    lines = {line for path in [*TUTORIAL, *OTHERS] for block in blocks(path) for line in block.text.splitlines()}
    assert set(NOT_RUN) <= lines


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```",
        "```sh\ntrawl version --of-what\n```",
        "```sh\necho one\n```\n\n```text\ntwo\n```",
        "```sh\necho one two\n```\n\n```text\none...three\n```",
        "```text\n$ false\n$ echo $?\n0\n```",
        "Save this as `one.py`:\n\n```python\na = 1\n```\n\nChange `one.py`:\n\n```diff\n-a = 2\n+a = 3\n```",
        "Save this as `one.py`:\n\n```python\nprint(1)\n```\n\n```sh\npython one.py\n```\n\n```text\n2\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
    ],
)
def test_a_page_that_is_wrong_would_be_found(text: str, tmp_path: Path) -> None:
    page, found = Page(tmp_path, Commands(tmp_path)), list(blocks_of(text))
    for block in found[:-1]:
        page.check(block)
    with pytest.raises(AssertionError):
        page.check(found[-1])


def test_dates_and_places_and_what_is_left_out_are_no_difference(tmp_path: Path) -> None:
    page = Page(tmp_path, Commands(tmp_path))
    said = "a ... d /home/you/x 2026-01-01 12:00:00\nin 0.01s"
    for block in blocks_of(f"```sh\necho a b c d $PWD/x 2031-02-03 04:05:06 in 1.23s\n```\n\n```text\n{said}\n```"):
        page.check(block)
