from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import trio
import trio.testing
from rich.console import Console
from trio.testing import MockClock

from tests.cli.fake_crawl import FakeCrawl
from trawl.cli.view import Panels, can_show, log_watcher, panel, panel_watcher
from trawl.observe import CrawlStatus, Estimate
from trawl.observe.status import Rate, Rates, WaitingGroup
from trawl.spiders import Spider


def drawn(now: CrawlStatus, *, width: int = 120, colours: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colours, color_system="standard" if colours else None
    )
    console.print(panel(now))
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


NOW = CrawlStatus(
    spider="quotes",
    at=75,
    pages=1203,
    items=950,
    queued=37,
    in_flight=4,
    errors=2,
    rates=Rates(pages=Rate(20.05), items=Rate(15.8)),
)


def test_the_panel_tells_where_the_crawl_is() -> None:
    assert drawn(NOW) == (
        "quotes · 1 min 15 s · 1,203 pages (20.1/s) · 950 items (15.8/s) · 37 queued · 4 in flight · 2 errors\n"
    )


def test_the_panel_tells_what_is_waited_for_and_when_it_ends() -> None:
    """I11."""
    groups = [WaitingGroup(20, "a.example delay 0.4 s"), WaitingGroup(17, "b.example Retry-After 12 s")]
    end = Estimate(seconds=120.0, scope="b.example", reason="delay 5 s")
    lines = drawn(CrawlStatus(held=37, groups=2, waiting=groups, estimate=end)).splitlines()
    assert lines[1] == "37 waiting: a.example delay 0.4 s; b.example Retry-After 12 s"
    assert lines[2] == "pending ends in 2 min: b.example (delay 5 s)"


def test_a_narrow_terminal_loses_nothing() -> None:
    lines = drawn(NOW, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "2 errors" in lines[-1]


def test_errors_are_red_only_when_there_are_some() -> None:
    assert "\x1b[1;31m" in drawn(CrawlStatus(errors=1), colours=True)
    assert "\x1b[1;31m" not in drawn(CrawlStatus(errors=0), colours=True)


def test_a_spider_cannot_write_to_the_terminal_by_its_name() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    console.print(panel(CrawlStatus(spider="\x1b]0;owned\x07")))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b]0" not in console.file.getvalue()


async def test_the_panel_is_drawn_every_second_and_gone_at_the_end(autojump_clock: MockClock) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    crawl: Any = FakeCrawl(waiting=(WaitingGroup(3, "a.example delay 2 s (DOWNLOAD_DELAY)"),))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(panel_watcher(console), crawl)
        for second in range(1, 4):
            await trio.sleep(0.9)
            crawl.stats.inc("response_count", 10)
            crawl.elapsed = second
        await trio.sleep(0.9)
        nursery.cancel_scope.cancel()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "20 pages (0.0/s)" in text
    assert "3 waiting: a.example delay 2 s (DOWNLOAD_DELAY)" in text
    assert text.count("quotes ·") == 5  # at once, three times in 3.6 s, and when it goes
    assert text.endswith("\x1b[1A\x1b[2K")


async def test_the_panels_of_several_crawls_stand_one_below_the_other_and_go_with_them(
    autojump_clock: MockClock,
) -> None:
    class Authors(Spider):
        name = "authors"

    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    panels, scope = Panels(console), trio.CancelScope()

    quotes: Any = FakeCrawl(queued=3)
    authors: Any = FakeCrawl(Authors(), queued=4)

    async def watch_quotes() -> None:
        with scope:
            await panels.watch(quotes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_quotes)
        nursery.start_soon(panels.watch, authors)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(panels.draw)
        await trio.sleep(1.4)
        scope.cancel()
        await trio.sleep(1.2)
        nursery.cancel_scope.cancel()
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "queued" in line]
    names = ["authors" if "authors" in line else "quotes" for line in lines]
    assert names[:5] == ["authors", "quotes", "authors", "quotes", "authors"]  # at once, after 1 s, after 2 s
    assert "quotes" not in names[4:]


async def test_a_terminal_that_goes_away_does_not_end_the_crawl(autojump_clock: MockClock) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    with trio.fail_after(10):
        await panel_watcher(Console(file=Gone(), force_terminal=True, width=80))(FakeCrawl())


def test_a_panel_needs_a_terminal_that_can_move_its_cursor() -> None:
    assert can_show(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"}))
    assert not can_show(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"}))
    assert not can_show(Console(file=io.StringIO(), force_terminal=False))


async def test_progress_is_logged_once_a_minute_of_the_run_clock(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    crawl: Any = FakeCrawl()
    with caplog.at_level(logging.INFO, "trawl.progress"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_watcher(60.0), crawl)
            for minute in (1, 2):
                await trio.sleep(59)
                crawl.stats.inc("response_count", 600 * minute)
                crawl.rates = Rates(pages=Rate(minute=10.0 * minute))
                await trio.sleep(1.5)
            nursery.cancel_scope.cancel()
    assert caplog.messages == [
        "600 pages (10.0/s), 0 items (0.0/s), 0 queued, 0 in flight, 0 errors",
        "1,800 pages (20.0/s), 0 items (0.0/s), 0 queued, 0 in flight, 0 errors",
    ]
