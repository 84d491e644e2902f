"""C7: with items that a feed can't take, a killed job gives and counts each of the others, and each loss, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from tests.feeds.fakes import read_csv
from tests.jobs.killing import Photographer, put_back
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.http import Response

PAGES = 6


class TwoKinds(Linked):
    """Gives on each page an item that has the columns, one that has none of them, and one that can't be stored."""

    name = "kinds"

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield {"author": response.url}
        yield {"url": object()}
        await trio.sleep(0.01 * len(response.url) * (response.url[-1] in "24"))
        for request in response.follow_all(css="a"):
            yield request


async def test_c7_killed_at_any_step_each_item_is_written_or_lost_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    settings = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    runs = Runs(folder, site(PAGES), TwoKinds, settings, feed="items.csv")
    photographer = Photographer(folder, tmp_path / "album")
    trio.lowlevel.add_instrument(photographer)
    try:
        assert (await runs.run()).reason == "finished"
    finally:
        trio.lowlevel.remove_instrument(photographer)
    pictures = photographer.pictures
    assert len(pictures) > 10
    for picture in pictures:
        put_back(picture, folder)
        result = await runs.run()
        rows = read_csv(runs.feed.read_bytes())
        assert sorted(row["url"] for row in rows) == sorted(all_urls(PAGES)), picture
        counts = [result.stats[key] for key in ("item_scraped_count", "item_lost_count")]
        assert counts == [PAGES, 2 * PAGES], picture
