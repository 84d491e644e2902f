"""The page of promises has every id that the tests and the package name, and a test for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext.promise_table import groups, ids_in_comments, proofs

ROOT = Path(__file__).parents[2]
# In the package: in brackets, (A05) or (A17-A19, E20), or at the start of a comment, "# A05: ...".
NAMED = re.compile(r"\(((?:[A-Z]\d{1,2}(?:-|, | )?)+)\)|# ([A-Z]\d{1,2}): ")
LISTED = {number: words for promises in groups().values() for number, words in promises.items()}


def named_in(text: str) -> set[str]:
    return {one for found in NAMED.findall(text) for one in re.findall(r"[A-Z]\d{1,2}", "".join(found))}


def test_every_promise_has_a_test() -> None:
    assert set(LISTED) - set(proofs()) == set()


def test_every_id_in_a_name_or_a_comment_of_a_test_is_a_promise() -> None:
    assert {number: tests for number, tests in proofs().items() if number not in LISTED} == {}


def test_every_id_in_the_package_is_a_promise() -> None:
    named = {path: named_in(path.read_text("utf-8")) for path in sorted((ROOT / "trawl").rglob("*.py"))}
    assert {str(path): found - set(LISTED) for path, found in named.items() if found - set(LISTED)} == {}


def test_no_id_is_listed_twice() -> None:
    assert len(LISTED) == sum(len(promises) for promises in groups().values())


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("of a Crawl-delay (D09-D13).", {"D09", "D13"}),
        ("Defaults meet here (A13-A16, E20, I06).", {"A13", "A16", "E20", "I06"}),
        ("if rate:  # I06: a rate says it all", {"I06"}),
        ("bytes that Python lacks are C1 controls (Encoding, 9)", set()),
    ],
)
def test_the_ids_of_a_text_are_found(text: str, ids: set[str]) -> None:
    assert named_in(text) == ids


def test_a_comment_is_not_a_string() -> None:
    assert ids_in_comments('a = "# A01"  # B02 and B03\n') == {1: {"B02", "B03"}}
