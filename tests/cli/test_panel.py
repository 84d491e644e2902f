from __future__ import annotations

import io
import logging
from collections.abc import Generator
from typing import Any

import pytest
import trio
import trio.testing
from rich.console import Console
from trio.testing import MockClock

from tests.cli.fake_crawl import FakeCrawl, Held
from trawl.cli.view import Panels, can_show, log_watcher, panel, panel_watcher, progress_of
from trawl.engine import Pace
from trawl.engine.state import in_steps
from trawl.observe import Progress, Speed
from trawl.spiders import Spider
from trawl.throttling import Reason


def drawn(now: Progress, speed: Speed, *, width: int = 120, colours: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colours, color_system="standard" if colours else None
    )
    console.print(panel("quotes", now, speed))
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_the_panel_tells_where_the_crawl_is() -> None:
    now = Progress(at=75, pages=1203, items=950, queued=37, in_flight=4, errors=2)
    assert drawn(now, Speed(20.05, 15.8)) == (
        "quotes · 1 min 15 s · 1,203 pages (20.1/s) · 950 items (15.8/s) · 37 queued · 4 in flight · 2 errors\n"
    )


def test_the_panel_tells_what_is_waited_for() -> None:
    """I11."""
    now = Progress(queued=37, held=37, waiting=("a.example delay 0.4 s", "b.example Retry-After 12 s"))
    assert drawn(now, Speed()).splitlines()[1] == "37 waiting: a.example delay 0.4 s; b.example Retry-After 12 s"


def test_a_narrow_terminal_loses_nothing() -> None:
    now = Progress(at=75, pages=1203, items=950, queued=37, in_flight=4, errors=2)
    lines = drawn(now, Speed(20.05, 15.8), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "2 errors" in lines[-1]


def test_errors_are_red_only_when_there_are_some() -> None:
    assert "\x1b[1;31m" in drawn(Progress(errors=1), Speed(), colours=True)
    assert "\x1b[1;31m" not in drawn(Progress(errors=0), Speed(), colours=True)


def test_a_spider_cannot_write_to_the_terminal_by_its_name() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    console.print(panel("\x1b]0;owned\x07", Progress(), Speed()))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b]0" not in console.file.getvalue()


async def test_the_panel_is_drawn_four_times_a_second_and_gone_at_the_end(autojump_clock: MockClock) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    crawl = FakeCrawl(
        queued=3, held=(Held(3, Reason("a.example", "delay", trio.current_time() + 2.0, "DOWNLOAD_DELAY")),)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(panel_watcher(console), crawl)
        for second in range(1, 4):
            await trio.sleep(0.9)
            crawl.stats.inc("response_count", 10)
            crawl.elapsed = second
        nursery.cancel_scope.cancel()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "20 pages (10.0/s)" in text
    assert "3 waiting: a.example delay 2 s (DOWNLOAD_DELAY)" in text
    assert text.count("quotes ·") == 12  # at once, ten times in 2.7 s, and when it goes
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
        await trio.sleep(0.4)
        scope.cancel()
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "queued" in line]
    names = ["authors" if "authors" in line else "quotes" for line in lines]
    assert names[:5] == ["authors", "quotes", "authors", "quotes", "authors"]  # at once, after 0.25 s, after 0.5 s
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
    crawl = FakeCrawl()
    with caplog.at_level(logging.INFO, "trawl.progress"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_watcher(60.0), crawl)
            for minute in (1, 2):
                await trio.sleep(59)
                crawl.stats.inc("response_count", 600 * minute)
                crawl.elapsed = 60.0 * minute
                await trio.sleep(1.5)
            nursery.cancel_scope.cancel()
    assert caplog.messages == [
        "600 pages (10.0/s), 0 items (0.0/s), 0 queued, 0 in flight, 0 errors",
        "1,800 pages (20.0/s), 0 items (0.0/s), 0 queued, 0 in flight, 0 errors",
    ]


async def test_a_panel_of_many_reasons_shows_three_and_counts_the_others(autojump_clock: MockClock) -> None:
    until = trio.current_time() + 2.0
    held = tuple(Held(9 - n, Reason(f"{n}.example", "delay", until, "DOWNLOAD_DELAY")) for n in range(5))
    now = await in_steps(progress_of(FakeCrawl(queued=35, held=held)))  # type: ignore[arg-type]
    assert now.held == 9 + 8 + 7 + 6 + 5
    assert [words.partition(" ")[0] for words in now.waiting] == ["0.example", "1.example", "2.example", "and"]
    assert now.waiting[-1] == "and 2 more"


async def test_looks_take_one_and_a_half_percent_of_a_core_however_long_one_takes(mock_clock: MockClock) -> None:
    def look() -> Generator[None, None, str]:
        for _ in range(4):
            mock_clock.jump(0.02)
            yield
        return "seen"

    async def others() -> None:
        while True:
            mock_clock.jump(1.0)  # their time is not the look's
            await trio.lowlevel.checkpoint()

    pace = Pace(0.25)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await pace.look(look()) == "seen"
        nursery.cancel_scope.cancel()
    mock_clock.autojump_threshold = 0
    started_at = trio.current_time()
    await pace.pause()
    assert 0.08 / (0.08 + trio.current_time() - started_at) <= 0.015
