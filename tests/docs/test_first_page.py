"""The pictures of the first page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs._ext.first_page import FOLDER, PICTURES
from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT

ROWS, COLUMNS = 18, 45
"""The lines in the blocks of a column, and their width, for which a window of 1,280 x 800 has room."""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_a_crawl_does_and_asks_no_other_site(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / name).read_text("utf-8") == drawn, "run python -m docs._ext.first_page"
    assert "url(http" not in drawn.replace('"', "")


def first_screen(page: Path) -> str:
    """What stands in the two columns, with links and pictures as from ``docs``."""
    text = page.read_text("utf-8")
    return text[text.index("# trawl\n") : text.index("</table>")].replace("(docs/", "(")


def test_the_readme_and_the_first_page_say_the_same_in_one_screen() -> None:
    shown = first_screen(ROOT / "README.md")
    assert shown == first_screen(FOLDER / "index.md")
    columns = shown.split("</td><td")
    assert [column.count("![") for column in columns] == [2, 0]
    assert "| trawl | Scrapy" in columns[1]
    for column in columns:
        lines = [line for block in blocks_of(column) for line in block.text.splitlines()]
        assert 10 < len(lines) <= ROWS
        assert max(map(len, lines)) <= COLUMNS
