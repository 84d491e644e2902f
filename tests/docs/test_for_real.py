"""Tutorial, README and examples, typed into a terminal beside a ``trawl demo``: three minutes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.test_demo import demo
from tests.docs.blocks import blocks_of
from tests.docs.given import ROOT
from tests.docs.not_run import looked_at
from tests.docs.real import EXAMPLES, RealCommands, RealPage, lay_out_examples
from tests.docs.test_examples import typed_in
from tests.docs.test_page_blocks import TUTORIAL
from trawl.testing.demo import DEMO_HOST

pytestmark = pytest.mark.servers


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
def test_a_part_of_the_tutorial_works_beside_a_real_demo(page: Path, folder: Path, tmp_path: Path, host: str) -> None:
    folder = tmp_path if page.stem == "your-own-site" else folder
    follow(page, folder, host)
    written = {path.name: len(path.read_text("utf-8").splitlines()) for path in folder.glob("[alnq]*.*")}
    expected = {
        "first-polite-crawl": {"quotes.jsonl": 100, "love.jsonl": 18},
        "data-that-lasts": {"quotes.jsonl": 100, "authors.csv": 51},
        "your-own-site": {"new.csv": 87},
    }
    assert written.items() >= expected.get(page.stem, {}).items()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_commands_of_an_example_work_beside_a_real_demo(
    path: Path, tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOWNLOAD_DELAY", "DOWNLOAD_DELAY_PER_SLOT"):
        monkeypatch.setenv(f"TRAWL_{name}", "0.01")
    lay_out_examples(tmp_path, host)
    example = tmp_path / "examples" / path.name
    quick = re.sub(r'("(?:DOWNLOAD_DELAY|delay)"): [\d.]+', r"\1: 0.01", example.read_text("utf-8"))
    example.write_text(quick, "utf-8")
    commands = RealCommands(tmp_path)
    for line in typed_in(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""):
        if "s3://" in line or looked_at(line):
            continue
        said = commands.run(line.replace(DEMO_HOST, host))
        assert commands.status == 0, said
        assert not re.search("ERROR|Traceback", said), said
        assert not line.startswith("trawl crawl") or re.search(r"^ items +[1-9]", said, re.M), said


def test_the_readme_works_beside_a_real_demo(tmp_path: Path, host: str) -> None:
    follow(ROOT / "README.md", tmp_path, host)
    assert len((tmp_path / "quotes.jsonl").read_text("utf-8").splitlines()) == 100
