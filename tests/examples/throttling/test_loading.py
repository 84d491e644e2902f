"""Every recipe is a file that ``trawl crawl`` takes as it is, and whose settings are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from trawl.cli.load import load_spider
from trawl.settings import load, of_spider
from trawl.throttling import ThrottlingSettings

RECIPES = Path(__file__).parents[3] / "examples" / "throttling"
SPIDERS = {"per_address": ("PerAddress", "HostAndAddress")}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_a_recipe_loads_from_its_file_and_says_when_to_use_it(path: Path) -> None:
    for name in SPIDERS.get(path.stem, ("",)):
        spider = load_spider(f"{path}:{name}" if name else str(path))
        assert load(of_spider(spider)).of(ThrottlingSettings).throttling_scopes is not None
    assert "\nUse this recipe " in path.read_text(encoding="utf-8").split('"""')[1]
