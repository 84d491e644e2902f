"""The tutorial and the README, typed into a terminal beside a ``trawl demo``: two minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.test_demo import demo
from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT
from tests.docs.real import RealPage, lay_out_examples

pytestmark = pytest.mark.servers

TUTORIAL = [
    ROOT / "docs" / "tutorial" / f"{part}.md" for part in ("first-polite-crawl", "data-that-lasts", "throttle-and-test")
]


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with demo() as (_, url):
        yield urlsplit(url).netloc


def follow(page: Path, folder: Path, host: str) -> None:
    real = RealPage(page, folder, host)
    for block in blocks_of(page.read_text("utf-8")):
        try:
            real.check(block)
        except BaseException as error:
            error.add_note(f"{page.name}, line {block.line}")
            raise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, host: str) -> Path:
    """The folder that a reader has for all parts of the tutorial."""
    folder = tmp_path_factory.mktemp("reader")
    lay_out_examples(folder, host)
    return folder


@pytest.mark.parametrize("page", TUTORIAL, ids=lambda path: path.stem)
def test_a_part_of_the_tutorial_works_beside_a_real_demo(page: Path, folder: Path, host: str) -> None:
    follow(page, folder, host)
    written = {path.name: len(path.read_text("utf-8").splitlines()) for path in folder.glob("[lqa]*.*")}
    expected = {
        "first-polite-crawl": {"quotes.jsonl": 100, "love.jsonl": 18},
        "data-that-lasts": {"quotes.jsonl": 100, "authors.csv": 51},
    }
    assert written.items() >= expected.get(page.stem, {}).items()


def test_the_readme_works_beside_a_real_demo(tmp_path: Path, host: str) -> None:
    follow(ROOT / "README.md", tmp_path, host)
    assert len((tmp_path / "quotes.jsonl").read_text("utf-8").splitlines()) == 100
