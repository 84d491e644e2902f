"""The pictures of the first page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs._ext.first_page import FOLDER, PICTURES
from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_a_crawl_does_and_asks_no_other_site(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / name).read_text("utf-8") == drawn, "run python -m docs._ext.first_page"
    assert "url(http" not in drawn.replace('"', "")


def opening(page: Path) -> str:
    """Return the text of a first page up to its examples, with links and pictures as from ``docs``."""
    text = page.read_text("utf-8")
    return text[text.index("# trawl\n") : text.index("## Try it")].replace("(docs/", "(")


def examples(page: Path) -> str:
    text = page.read_text("utf-8")
    return text[text.index("## Write a spider") :].replace("(docs/", "(").partition("\n## ")[0]


def test_the_readme_and_the_landing_page_have_the_same_first_screen() -> None:
    readme, index = ROOT / "README.md", FOLDER / "index.md"
    assert opening(readme).split() == opening(index).split()
    assert examples(readme).split() == examples(index).split()


def test_the_readme_is_one_column_that_fits_a_phone() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "<table" not in text
    assert "\n|" not in text
    assert 130 <= len(text.splitlines()) <= 150
    assert max(map(len, text.splitlines())) <= 120


def test_the_first_two_shell_blocks_are_one_command_line_each() -> None:
    blocks = [block for block in blocks_of((ROOT / "README.md").read_text("utf-8")) if block.language == "sh"]
    crawl, tests = (block.text for block in blocks[:2])
    assert crawl.count("\n") == tests.count("\n") == 1
    assert "trawl crawl examples/pydoc.py -O out.jsonl" in crawl
    assert "nox -s tests" in tests
