"""The checker of histories finds what it is for: each fault that it is to count, made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.histories.checker import Found, check, over_quota, read_records
from tests.histories.site import Hit

URLS = {"http://a/0", "http://a/3", "http://b/0"}
HITS = [Hit(0.0, 0.1, "a", "/0"), Hit(0.2, 0.3, "a", "/3"), Hit(0.1, 0.2, "b", "/0")]
RECORDS = sorted(URLS)
CLEAN = Found(
    pages=3, fetched=3, seconds=0.2, lost=0, twice=0, unknown=0, early=0, early_shared=0, over=0, most=1, left=[]
)


def found(hits: list[Hit] = HITS, records: list[str] = RECORDS, pending: int = 0) -> Found:
    return check(URLS, hits, records, {"q": pending, "u": 0})


def test_what_was_kept_is_clean() -> None:
    assert found() == CLEAN
    assert CLEAN.is_clean


def test_each_fault_is_counted() -> None:
    more = attrs.evolve(CLEAN, fetched=4)
    shared = [Hit(1.0, 1.01, "c", "/5"), Hit(1.03, 1.04, "d", "/9"), Hit(1.1, 1.11, "e", "/5")]
    crowd = [Hit(2.0 + each / 100, 2.0, f"c{each}", "/7") for each in range(42)]
    faults = [
        (found(records=RECORDS[1:]), attrs.evolve(CLEAN, lost=1)),
        (found(records=[*RECORDS, RECORDS[0]]), attrs.evolve(CLEAN, twice=1)),
        (found(records=[*RECORDS, "http://c/"]), attrs.evolve(CLEAN, unknown=1)),
        (found(hits=[*HITS, Hit(0.39, 0.4, "a", "/3")]), attrs.evolve(more, early=1, seconds=0.4)),
        (found(hits=[*HITS, Hit(0.29, 0.4, "a", "/3")]), attrs.evolve(more, early=1, most=2, seconds=0.3)),
        (found(hits=[*HITS, *shared]), attrs.evolve(CLEAN, fetched=6, early_shared=1, seconds=1.1)),
        (found(hits=[*HITS, *crowd]), attrs.evolve(CLEAN, fetched=45, over=2, seconds=2.4)),
        (found(pending=2), attrs.evolve(CLEAN, left=["q"])),
    ]
    for made, expected in faults:
        assert made == expected
        assert not made.is_clean


def test_what_fits_into_windows_is_not_over_a_quota() -> None:
    two_windows = [0.99] * 20 + [1.0] * 20 + [2.0] * 20
    assert over_quota(two_windows, 20, 1.0) == 0
    assert over_quota([*two_windows, 3.0], 20, 1.0) == 0
    assert over_quota([*two_windows, 2.5], 20, 1.0) == 1
    assert over_quota([each / 20.0 for each in range(400)], 20, 1.0) == 0
    assert over_quota([each / 21.0 for each in range(800)], 20, 1.0) > 0


def test_records_are_read(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(json.dumps({"url": "http://a/"}) + "\n", encoding="utf-8")
    assert read_records(tmp_path / "items.jsonl") == ["http://a/"]
