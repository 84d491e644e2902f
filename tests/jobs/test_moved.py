"""A job that is moved, with its feeds or without them: every item is in the feed once, or the feed is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.jobs.killing import Photographer
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.errors import FeedError
from trawl.http import Response

PAGES = 8
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}


async def pictures_of(folder: Path, settings: dict[str, Any], feed: str, spider: type[Linked] = Linked) -> list[Path]:
    """What a kill leaves at some steps of a crawl, with more and less of its items in the feed."""
    photographer = Photographer(folder, folder.with_name("album"))
    trio.lowlevel.add_instrument(photographer)
    try:
        await Runs(folder, site(PAGES), spider, {**FREE, **settings}, feed).run()
    finally:
        trio.lowlevel.remove_instrument(photographer)
    return photographer.pictures[2::4]


def urls_in(feed: Path) -> list[str]:
    """The URLs of the items in a feed."""
    if feed.suffix == ".sqlite":
        with closing(sqlite3.connect(feed)) as table:
            urls = [row[0] for row in table.execute("SELECT url FROM items")]
    else:
        parts = [path.read_text(encoding="utf-8") for path in feed.parent.glob(feed.name.replace("%(batch)d", "*"))]
        urls = [json.loads(line)["url"] for part in parts for line in part.splitlines()]
    return sorted(urls, key=lambda url: (len(url), url))


@pytest.mark.parametrize("is_relative", [True, False])
@pytest.mark.parametrize("feed", ["items.jsonl", "items.sqlite", "items-%(batch)d.jsonl"])
@pytest.mark.parametrize("overwrite", [True, False])
async def test_c1_a_job_that_is_moved_with_its_feed_goes_on_as_if_it_were_not(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    feed: str,
    is_relative: bool,
    overwrite: bool,
) -> None:
    options = {"overwrite": overwrite, **({"batch_item_count": 3} if "batch" in feed else {})}
    (old := tmp_path / "old").mkdir()
    for number, picture in enumerate(await pictures_of(old, {"FEEDS": {str(old / feed): options}}, feed)):
        shutil.rmtree(old, ignore_errors=True)
        moved = tmp_path / f"new {number}"
        shutil.copytree(picture, moved)
        where = Path() if is_relative else moved
        monkeypatch.chdir(moved)
        settings = {**FREE, "JOB_DIR": str(where / "job"), "FEEDS": {str(where / feed): options}}
        await Runs(moved, site(PAGES), settings=settings).run()
        assert urls_in(moved / feed) == all_urls(PAGES), picture


async def test_c1_a_job_that_is_moved_without_its_feed_finds_it_where_it_was(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    (old := tmp_path / "old").mkdir()
    for number, picture in enumerate(await pictures_of(old, {}, "items.jsonl")):
        shutil.rmtree(old)
        shutil.copytree(picture, old)
        (old / "job").rename(moved := tmp_path / f"job {number}")
        await Runs(old, site(PAGES), settings={**FREE, "JOB_DIR": str(moved)}).run()
        assert urls_in(old / "items.jsonl") == all_urls(PAGES), picture


async def test_c1_a_copy_of_a_job_and_its_feed_goes_on_beside_the_original(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    (old := tmp_path / "old").mkdir()
    for number, picture in enumerate(await pictures_of(old, {}, "items.jsonl")):
        shutil.copytree(picture, copied := tmp_path / f"copy {number}")
        await Runs(copied, site(PAGES), settings=FREE).run()
        assert urls_in(copied / "items.jsonl") == all_urls(PAGES), picture
    assert urls_in(old / "items.jsonl") == all_urls(PAGES)


@pytest.mark.parametrize("feed", ["items.jsonl", "items.json", "items.csv", "items.sqlite", "items-%(batch)d.jsonl"])
async def test_a_copy_of_a_feed_that_is_older_than_the_copy_of_its_job_is_refused(
    tmp_path: Path, autojump_clock: MockClock, feed: str
) -> None:
    (old := tmp_path / "old").mkdir()
    options = {"batch_item_count": 30} if "batch" in feed else {}
    pictures = await pictures_of(old, {"FEEDS": {str(old / feed): options}}, feed)
    (file,) = old.glob(feed.replace("%(batch)d", "*"))
    older = next(each for each in pictures if (each / file.name).exists())
    shutil.copytree(old, copied := tmp_path / "copied")
    shutil.copy(older / file.name, copied / file.name)
    if feed == "items.json":  # it was complete at that time
        with (copied / file.name).open("a") as ended:
            ended.write("\n]\n")
    before = (copied / file.name).read_bytes()
    with pytest.raises(FeedError, match=f"^feed {copied}/"):
        await Runs(copied, site(PAGES), settings={**FREE, "FEEDS": {str(copied / feed): options}}).run()
    assert (copied / file.name).read_bytes() == before
    shutil.copy(file, copied)
    await Runs(copied, site(PAGES), settings={**FREE, "FEEDS": {str(copied / feed): options}}).run()
    assert (copied / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("overwrite", [True, False])
async def test_a_feed_that_is_moved_without_its_job_is_refused_and_both_stay_as_they_are(
    tmp_path: Path, autojump_clock: MockClock, overwrite: bool
) -> None:
    (old := tmp_path / "old").mkdir()
    elsewhere = tmp_path / "elsewhere.jsonl"
    pictures = await pictures_of(old, {}, "items.jsonl")
    picture = next(each for each in pictures if (each / "items.jsonl").stat().st_size > 100)
    shutil.rmtree(old)
    shutil.copytree(picture, old)
    (old / "items.jsonl").rename(elsewhere)
    before = elsewhere.read_bytes()
    runs = Runs(old, site(PAGES), settings=FREE)
    with pytest.raises(FeedError, match=f"^feed {elsewhere}: .*{old}/items.jsonl is missing.* move it back"):
        await runs.run(FEEDS={str(elsewhere): {"overwrite": overwrite}})
    assert elsewhere.read_bytes() == before
    elsewhere.rename(old / "items.jsonl")
    await runs.run()
    assert urls_in(old / "items.jsonl") == all_urls(PAGES)


async def test_another_file_at_the_same_path_from_a_moved_job_is_not_cut(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    (old := tmp_path / "old").mkdir()
    other = tmp_path / "other"
    picture = (await pictures_of(old, {}, "items.jsonl"))[-1]
    other.mkdir()
    (other / "items.jsonl").write_text('{"url":"another crawl\'s"}\n' * 100, encoding="utf-8")
    shutil.copytree(picture / "job", other / "job")
    await Runs(other, site(PAGES), settings=FREE).run()
    assert (other / "items.jsonl").read_text(encoding="utf-8").count("another crawl") == 100


@dataclass
class Visited:
    """An item that is no dict: a filter sees the item itself, never what is stored of it."""

    url: str


class Typed(Linked):
    """Gives items of a class."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield Visited(response.url)
        yield from response.follow_all(css="a")


def is_even(item: Visited) -> bool:
    """What an ``item_filter`` says."""
    return item.url[-1] in "02468/"


async def test_what_a_filter_said_of_items_that_wait_is_found_after_a_move(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    (old := tmp_path / "old").mkdir()
    options = {"item_filter": is_even}
    pictures = await pictures_of(old, {"FEEDS": {str(old / "items.jsonl"): options}}, "items.jsonl", Typed)
    for number, picture in enumerate(pictures):
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(picture, moved := tmp_path / f"new {number}")
        runs = Runs(moved, site(PAGES), Typed, {**FREE, "FEEDS": {str(moved / "items.jsonl"): options}})
        await runs.run()
        assert urls_in(moved / "items.jsonl") == [url for url in all_urls(PAGES) if is_even(Visited(url))], picture
