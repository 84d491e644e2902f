"""C1: what a power cut leaves at any step of a job is enough: nothing is lost, and nothing is written twice."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.jobs.killing import put_back
from tests.jobs.power import Cuts, Disk
from tests.jobs.site import Linked, Runs, site
from trawl.http import Response
from trawl.testing import SimulatedWeb

PAGES = 3
EACH = 3
PACE = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}


class Several(Linked):
    """Gives several items a page, so that batches fill within one copy."""

    name = "several"

    def parse(self, response: Response, **kwargs: Any) -> Any:
        for number in range(EACH):
            yield {"it": f"{response.url}#{number}"}
        yield from response.follow_all(css="a")


WANTED = Counter({f"http://a.example/{page or ''}#{number}": 1 for page in range(PAGES) for number in range(EACH)})


def read(folder: Path) -> Counter[str]:
    """How often each item is in the feed's files."""
    found: Counter[str] = Counter()
    for path in folder.iterdir():
        if path.suffix == ".jsonl":
            found.update(json.loads(line)["it"] for line in path.read_text(encoding="utf-8").splitlines())
        elif path.suffix == ".csv":
            found.update(row["it"] for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        elif path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as database:
                found.update(it for (it,) in database.execute("SELECT it FROM items"))
    return found


async def pictures(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What a cut at each step of a run may leave: the least, and with one of the two folders written in full."""
    folder = runs.directory.parent
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        cuts = Cuts(disk, tmp_path / "album", [(), ("job",), ("feeds",)])
        trio.lowlevel.add_instrument(cuts)
        try:
            assert (await runs.run()).reason == "finished"
        finally:
            trio.lowlevel.remove_instrument(cuts)
            disk.close()
    return cuts.pictures


@pytest.mark.parametrize("feed", ["%(batch)02d.jsonl", "%(batch)02d.csv", "one.jsonl", "one.sqlite"])
async def test_c1_c7_cut_off_at_any_step_nothing_is_lost_and_nothing_is_twice(
    feed: str, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    settings = {**PACE, "FEED_EXPORT_BATCH_ITEM_COUNT": 2 if "batch" in feed else 0}

    def runs() -> Runs:
        return Runs(folder, site(PAGES), Several, settings, feed=f"feeds/{feed}")

    taken = await pictures(runs(), tmp_path, monkeypatch)
    assert read(folder / "feeds") == WANTED
    assert len(taken) > 8
    for picture in [*taken[:8], *taken[8 :: max(1, len(taken) // 8)]]:
        put_back(picture, folder)
        result = await runs().run()
        assert (result.reason, result.stats["item_scraped_count"]) == ("finished", sum(WANTED.values())), picture
        assert read(folder / "feeds") == WANTED, picture


async def test_c1_a_feed_that_is_continued_by_a_new_job_keeps_what_it_had_at_any_cut(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "whole"
    (folder / "feeds").mkdir(parents=True)
    before = b'{"it":"of an earlier crawl"}\n'
    (folder / "feeds" / "one.jsonl").write_bytes(before)

    def runs() -> Runs:
        return Runs(folder, site(2), Several, PACE, feed="feeds/one.jsonl")

    taken = await pictures(runs(), tmp_path, monkeypatch)
    whole = read(folder / "feeds")
    assert set(whole.values()) == {1}
    for picture in taken:
        put_back(picture, folder)
        await runs().run()
        assert read(folder / "feeds") == whole, picture


def with_files(web: SimulatedWeb, body: bytes) -> SimulatedWeb:
    for number in range(3):
        web.add_page(f"http://a.example/{number}.bin", body=body, headers={"Content-Type": "application/octet-stream"})
    return web


class Files(Linked):
    """One item with three files."""

    name = "files"

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"it": "files", "file_urls": [f"http://a.example/{number}.bin" for number in range(3)]}


@pytest.mark.parametrize("size", [100, 400_000])
async def test_a_file_that_an_item_names_is_whole_at_any_cut(
    size: int, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, body = tmp_path / "whole", b"x" * size
    folder.mkdir()
    files = {"ITEM_PIPELINES": {"trawl.pipelines.files.FilesPipeline": 1}, "FILES_STORE": str(folder / "store")}
    runs = Runs(folder, with_files(site(1), body), Files, {**PACE, **files}, feed="feeds/one.jsonl")
    with_items = 0
    for picture in await pictures(runs, tmp_path, monkeypatch):
        feed = picture / "feeds" / "one.jsonl"
        for line in feed.read_text(encoding="utf-8").splitlines() if feed.exists() else ():
            for file in json.loads(line)["files"]:
                assert (picture / "store" / file["path"]).read_bytes() == body, picture
                with_items += 1
    assert with_items
