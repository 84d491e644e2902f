"""C1 for rendered pages: killed, or stopped, with open pages, a job renders each of them again and loses none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import trawl
from tests.jobs.killing import killed_after
from tests.jobs.site import Runs
from trawl.http import Request, Response
from trawl.testing import Rendered, SimulatedWeb

PAGES = 4
SETTINGS = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False, "DOWNLOAD_DELAY": 1.0, "BROWSER_PAGES": 2}


class Shop(trawl.Spider):
    name = "shop"

    async def start(self) -> Any:
        for n in range(PAGES):
            yield Request(f"http://a.example/{n}", meta={"browser": trawl.Page(wait_for="p", run=self.act)})

    async def act(self, page: Any) -> None:
        await page.settled(0.5)

    def parse(self, response: Response) -> Any:
        yield {"url": response.url, "flags": response.flags}


def runs_in(folder: Path) -> Runs:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.2)
    for n in range(PAGES):
        rendered = Rendered(f"<p>{n}</p>", [[f"/api/{n}"], [f"/api/{n}/more"]], 0.3)
        web.add_page(f"http://a.example/{n}", body="<div></div>", rendered=rendered)
    return Runs(folder, web, Shop, SETTINGS)


@pytest.mark.parametrize("seconds", [0.1, 0.6, 1.5, 2.1, 2.9, 3.4, 5.0, 7.7, 10.3])
@pytest.mark.parametrize("is_kill", [True, False])
async def test_c1_pages_that_were_open_at_the_end_of_a_run_are_rendered_in_the_next(
    tmp_path: Path, autojump_clock: MockClock, seconds: float, is_kill: bool
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    runs = runs_in(folder)
    if is_kill:
        await killed_after(runs, seconds, tmp_path / "album")
    else:
        await runs.run(stop_after=seconds)
    assert (await runs.run()).reason == "finished"
    assert runs.urls == [f"http://a.example/{n}" for n in range(PAGES)]
    assert all(item["flags"] == ["browser"] for item in runs.items)
