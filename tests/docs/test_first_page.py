"""The picture of the live panel on the first page."""

from __future__ import annotations

from docs._ext.panel_picture import PICTURE, drawn


def test_the_picture_is_what_the_panel_shows_and_asks_no_other_site() -> None:
    assert PICTURE.read_text("utf-8") == drawn(), "run python -m docs._ext.panel_picture"
    assert "url(http" not in drawn().replace('"', "")
