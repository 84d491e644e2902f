"""The pictures of the first page."""

from __future__ import annotations

import pytest

from docs._ext.first_page import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_a_crawl_does_and_asks_no_other_site(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / name).read_text("utf-8") == drawn, "run python -m docs._ext.first_page"
    assert "url(http" not in drawn.replace('"', "")
