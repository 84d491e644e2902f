"""Every block of code in the how-to pages is run on the simulated web, or checked: what a reader copies works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import Page, blocks_of
from trawl.errors import TrawlError
from trawl.settings import Layer, load
from trawl.throttling import ThrottlingSettings

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
WIDTH = 90  # characters; the theme shows 84, and a line of output may be cut
PAGES = sorted(path for path in HOWTO.glob("*.md") if path.name != "index.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_works_and_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    page = Page(tmp_path)
    for block in blocks_of(path.read_text(encoding="utf-8")):
        try:
            page.check(block)
        except Exception as error:
            error.add_note(f"{path.name}, line {block.line}")
            raise
    assert page.counts.get("python"), f"{path.name} has no code"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_fits_its_column(path: Path) -> None:
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    assert [line for block in blocks for line in block.text.splitlines() if len(line) > WIDTH] == []


def test_every_page_is_checked() -> None:
    assert len(PAGES) >= 11


def test_h14_the_documented_starting_points_of_autothrottle() -> None:
    text = (HOWTO / "autothrottle.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (a [^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    assert [(target, most, start) for _, target, most, start in rows] == [
        ("1.0", "10", "2.0"),
        ("4.0", "30", "1.0"),
        ("2.0", "60", "1.0"),
    ]
    assert ["polite" in rows[0][0], "cooperates" in rows[1][0], "many domains" in rows[2][0]] == [True] * 3
    for _, target, most, start in rows:
        point = {
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": float(target),
            "AUTOTHROTTLE_MAX_DELAY": float(most),
            "AUTOTHROTTLE_START_DELAY": float(start),
        }
        assert load(Layer("docs", point)).of(ThrottlingSettings).autothrottle_enabled


@pytest.mark.parametrize(
    "text",
    [
        "```python\nDOWNLOAD_DELEY = 1\n```",
        "```python\nTHROTTLING_SCOPES = {'a.example': {'dely': 1}}\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "```sh\ntrawl crawl x.py -s DOWNLOAD_DELAY=-1\n```",
        "```sh\ntrawl crawl x.py --no-such-option\n```",
        "```sh\ntrawl crowl x.py\n```",
        "```toml\n[tool.trawl]\nDOWNLOAD_DELAY = 'much'\n```",
        "```python\ndef test_it(simulated_web):\n    assert False\n```",
    ],
)
def test_a_page_that_is_wrong_would_be_found(text: str, tmp_path: Path) -> None:
    page, blocks = Page(tmp_path), list(blocks_of(text))
    for block in blocks[:-1]:
        page.check(block)
    with pytest.raises((AssertionError, TrawlError)):
        page.check(blocks[-1])
