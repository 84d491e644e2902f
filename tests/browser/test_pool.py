"""The browsers of a crawl with programs that are no Chromium: ends at the start, and the end of all attempts."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from trawl.blocking import ThreadBlocking
from trawl.browser import Answer, Asked, Browsers, BrowserSettings, Opening
from trawl.errors import BrowserEnded, UsageError


async def ask(asked: Asked) -> Answer | None:
    await trio.lowlevel.checkpoint()
    return None


async def test_three_browsers_that_end_at_the_start_are_enough() -> None:
    path = shutil.which("false")
    assert path is not None
    browsers = Browsers(BrowserSettings(browser_path=path, browser_sandbox=False), ThreadBlocking())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        for _ in range(3):
            with pytest.raises(BrowserEnded, match="did not start: it wrote nothing"):
                async with browsers.open_page(Opening(ask=ask)):
                    pass
        with pytest.raises(UsageError, match="3 browsers in a row ended before they rendered a page"):
            async with browsers.open_page(Opening(ask=ask)):
                pass
        nursery.cancel_scope.cancel()
    assert browsers.launched == browsers.open == 0


async def test_the_last_output_of_a_browser_that_does_not_start_is_in_the_error(tmp_path: Path) -> None:
    program = tmp_path / "chromium-headless-shell"
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries: libnss3.so' >&2\nexit 127\n")
    program.chmod(0o755)
    browsers = Browsers(BrowserSettings(browser_path=str(program), browser_sandbox=False), ThreadBlocking())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        with pytest.raises(BrowserEnded, match=r"did not start: error while loading shared libraries: libnss3\.so"):
            async with browsers.open_page(Opening(ask=ask)):
                pass
        nursery.cancel_scope.cancel()


async def test_a_page_that_is_cancelled_while_its_browser_starts_leaves_no_process(tmp_path: Path) -> None:
    program, started = tmp_path / "chromium-headless-shell", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\nexec sleep 60\n")
    program.chmod(0o755)
    browsers = Browsers(BrowserSettings(browser_path=str(program), browser_sandbox=False), ThreadBlocking())
    waits: list[str] = []

    @contextmanager
    def paused() -> Generator[None, None, None]:
        waits.append("paused")
        try:
            yield
        finally:
            waits.append("continued")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as opening:

                async def cancel() -> None:
                    while not started.exists():  # noqa: ASYNC110 - the program writes it
                        await trio.sleep(0.01)
                    waits.append("program started")
                    scope.cancel()

                opening.start_soon(cancel)
                async with browsers.open_page(Opening(ask=ask, paused=paused)):
                    pass
        nursery.cancel_scope.cancel()
    assert waits == ["paused", "program started", "continued"]
    assert not Path(f"/proc/{started.read_text().strip()}").exists()  # noqa: ASYNC240
