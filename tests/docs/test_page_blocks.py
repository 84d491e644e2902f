"""Every page: each block of it is run, or checked by what would read it, and prints what the page says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of
from tests.docs.given import ROOT, SHOWN, SPIDERS, a_store, lay_out
from tests.docs.mentioned import MENTIONED
from tests.docs.not_run import BLOCKS, LINES, known
from tests.docs.page import Page
from trawl.errors import TrawlError

DOCS = ROOT / "docs"
WIDTH = 90  # characters; the theme shows 84, and a line of output may be cut
PARTS = ("first-polite-crawl", "data-that-lasts", "throttle-and-test", "your-own-site")
TUTORIAL = [DOCS / "tutorial" / f"{name}.md" for name in PARTS]
OTHERS = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"),
    *sorted(path for path in DOCS.rglob("*.md") if path not in TUTORIAL and "_build" not in path.parts),
]


def blocks(path: Path) -> list[Block]:
    return list(blocks_of(path.read_text(encoding="utf-8")))


WITH_BLOCKS = [path for path in OTHERS if blocks(path)]


def follow(path: Path, folder: Path, *, after: Sequence[Path] = ()) -> Page:
    """Work through a page in a folder that has the files which the pages before it leave there."""
    lay_out(path, folder)
    page = Page(path, folder)
    for block in (block for earlier in after for block in blocks(earlier) if block.is_of_a_file):
        page.check(block)
    with a_store():
        for block in blocks(path):
            try:
                page.check(block)
            except BaseException as error:
                error.add_note(f"{path.name}, line {block.line}")
                raise
    return page


@pytest.mark.parametrize("part", [1, 2, 3, 4])
def test_a_part_of_the_tutorial_works_and_prints_what_it_says(part: int, tmp_path: Path) -> None:
    page = follow(TUTORIAL[part - 1], tmp_path, after=TUTORIAL[: part - 1] if part < 4 else ())
    assert page.counts["sh"] > 3


def test_the_tutorial_is_followed_in_its_order() -> None:
    assert re.findall(r"^[\w-]+$", (TUTORIAL[0].parent / "index.md").read_text("utf-8"), re.M) == list(PARTS)


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_page_work_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    page = follow(path, tmp_path)
    assert (
        page.counts.get("python") or page.counts.get("sh") or path.parent.name != "howto" or path.name == "index.md"
    ), "no code"


def test_the_blocks_of_a_page_fit_its_column() -> None:
    kinds = {"python", "sh", "text", "toml", "diff"}
    pages = [*TUTORIAL, *(path for path in OTHERS if path.is_relative_to(DOCS))]
    shown = [(path, block) for path in pages for block in blocks(path) if block.language in kinds]
    long_lines = ("15 3 ", "python3.11 -m venv .venv && ")  # cron takes no line in two; the first command is one line
    shown = [(path, block) for path, block in shown if not block.text.startswith(long_lines)]
    wide = [f"{path}, line {block.line}" for path, block in shown if max(map(len, block.text.splitlines())) > WIDTH]
    assert wide == []


def test_what_is_not_run_and_what_is_given_is_on_a_page() -> None:
    pages = {path: blocks(path) for path in [*TUTORIAL, *OTHERS]}
    texts = [block.text for found in pages.values() for block in found]
    texts += [path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")]
    texts += MENTIONED
    assert [one.sign for one in LINES if not any(one.sign in text for text in texts)] == []
    assert [one.sign for one in BLOCKS if not any(text.startswith(one.sign) for text in texts)] == []
    given = [*((page, name) for page, names in SPIDERS.items() for name in names), *SHOWN.items()]
    commands = {path: "\n".join(b.text for b in found if b.language == "sh") for path, found in pages.items()}
    howto = DOCS / "howto"
    assert [(page, name) for page, name in given if Path(name).parts[0] not in commands[howto / f"{page}.md"]] == []


def test_the_extras_that_a_page_names_are_there() -> None:
    texts = [path.read_text("utf-8") for path in [*TUTORIAL, *OTHERS]]
    named = [name for text in texts for name in re.findall(r"trawl-crawler\[[^\]]*\]", text)]
    assert len(named) >= 5
    for name in named:
        known(name)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```",
        "```sh\nfalse\ntrue\n```",
        "```sh\ntrawl version --of-what\n```",
        "```sh\necho one\n```\n\n```text\ntwo\n```",
        "```sh\necho one\n```\n\nIt prints\n\n```text\ntwo\n```",
        "```sh\necho one two\n```\n\n```text\none...three\n```",
        "```text\n$ false\n$ echo $?\n0\n```",
        "```text\nnobody printed this\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "Save this as `one.py`:\n\n```python\na = 1\n```\n\nChange `one.py`:\n\n```diff\n-a = 2\n+a = 3\n```",
        "Save this as `one.py`:\n\n```python\nprint(1)\n```\n\n```sh\npython one.py\n```\n\n```text\n2\n```",
        "```python\nDOWNLOAD_DELEY = 1\n```",
        "```python\nTHROTTLING_SCOPES = {'a.example': {'dely': 1}}\n```",
        "```python\ndef test_it(simulated_web):\n    assert False\n```",
        "```sh\ntrawl crawl spider.py -s DOWNLOAD_DELAY=-1\n```",
        "```sh\ntrawl crawl spider.py --no-such-option\n```",
        "```sh\ntrawl crawl spider.py -s CLOSESPIDER_PAGECOUNT=1 -s ALLOWED_DOMAINS=x\n```",
        "```sh\ntrawl crawl no_such_file.py\n```",
        "```sh\ntrawl crowl spider.py\n```",
        "```sh\nHTTPS_PROXY=http://other.example:3128 trawl crawl catalogue.py\n```",
        "```sh\nexport TRAWL_HTTP_OUTH='{}'\ntrawl settings\n```",
        "```text\ntrawl list --all\n```",
        "```text\ntrawl check\n```",
        "```toml\n[tool.trawl]\nDOWNLOAD_DELAY = 'much'\n```",
        "```toml\n[tool.trawl]\nDOWNLOAD_DELEY = 1\n```",
        "```toml\n[hosts.'a.example']\nlatency = 'much'\n```",
        "```sh\npip install trawl-crawler[http3]\n```",
        "```sh\npip install trawl[http2]\n```",
        "```sh\npip install -e . --group deb\n```",
        "```sh\n.venv/bin/nox -s test\n```",
        "```sh\npython examples/transports.py\n```",
        "```json\n{}\n```",
        "```{image} none.svg\n```",
        "```{image} rampup.svg\n```",
        "```sh\necho another > rampup.svg\n```\n\n```{image} rampup.svg\n```",
        "```{literalinclude} ../../examples/boks.py\n```",
        "```{literalinclude} ../../examples/books.py\n:pyobject: Boks\n```",
    ],
)
def test_a_page_that_is_wrong_would_be_found(text: str, tmp_path: Path) -> None:
    lay_out(DOCS / "howto" / "cache.md", tmp_path)
    page, found = Page(DOCS / "howto" / "cache.md", tmp_path), list(blocks_of(text))
    for block in found[:-1]:
        page.check(block)
    with pytest.raises((AssertionError, TrawlError, OSError, SystemExit)):
        page.check(found[-1])


def test_dates_and_places_and_what_is_left_out_are_no_difference(tmp_path: Path) -> None:
    page = Page(ROOT / "README.md", tmp_path)
    said = "a ... d /home/you/x 2026-01-01 12:00:00\nin 0.01s"
    for block in blocks_of(f"```sh\necho a b c d $PWD/x 2031-02-03 04:05:06 in 1.23s\n```\n\n```text\n{said}\n```"):
        page.check(block)
