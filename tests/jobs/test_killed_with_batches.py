"""A feed in batches, killed at every step: the batches are those of a run that nobody killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.jobs.killing import Photographer, put_back
from tests.jobs.site import Runs, site

FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "xml", "jsonl.gz", "sqlite"])
async def test_killed_before_its_first_item_a_feed_in_batches_begins_with_the_first(
    tmp_path: Path, autojump_clock: MockClock, ending: str
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    feeds = {"FEEDS": {str(folder / f"items-%(batch)d.{ending}"): {"batch_item_count": 2}}}
    runs = Runs(folder, site(4), settings={**FREE, **feeds})
    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        await runs.run()
    finally:
        trio.lowlevel.remove_instrument(photographer)
    whole = {f"items-1.{ending}", f"items-2.{ending}"}
    assert {path.name for path in folder.glob("items-*")} == whole
    early = [picture for picture in photographer.pictures if len(list(picture.glob("items-*"))) == 1]
    assert early
    for picture in early[:5]:
        put_back(picture, folder)
        await runs.run()
        assert {path.name for path in folder.glob("items-*")} == whole, picture
