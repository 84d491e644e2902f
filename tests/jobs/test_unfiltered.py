"""A callback that gives many requests with ``dont_filter``, with a job: they are held to its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import trawl
from tests.jobs.site import site
from trawl.http import Request, Response
from trawl.testing import simulate


def calls_for(requests: int, folder: Path) -> int:
    """How many calls are made from the first request that a callback gives to its last."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    class Many(trawl.Spider):
        name = "many"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Request]:
            sys.setprofile(count)
            try:
                for number in range(requests):
                    yield Request(f"http://a.example/{number}?", dont_filter=True)
            finally:
                sys.setprofile(None)
            raise trawl.CloseSpider("enough")

    simulate(Many, site(1), settings={"JOB_DIR": str(folder / str(requests)), "ROBOTSTXT_OBEY": False})
    return calls


def test_four_times_as_many_unfiltered_requests_of_a_callback_are_four_times_the_work(tmp_path: Path) -> None:
    few, many = calls_for(500, tmp_path), calls_for(2000, tmp_path)
    assert few > 500
    assert many < 4.5 * few
