"""The page on middleware lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

from trawl.middleware import BUILT_IN

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-a-middleware.md"


def test_the_page_lists_the_middleware_that_is_there_with_its_numbers() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [(name, float(number)) for name, number in rows] == [(each.name, each.order) for each in BUILT_IN]
