"""The browsers of a crawl with programs that are no Chromium: ends at the start, and the end of all attempts."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import MockClock

from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.browser import Answer, Asked, Browsers, BrowserSettings, Opening, devtools, pool
from trawl.errors import BrowserEnded, UsageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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
        with pytest.raises(
            UsageError,
            match=r"3 browsers in a row ended before they rendered a page: .*did not start: it wrote nothing",
        ):
            async with browsers.open_page(Opening(ask=ask)):
                pass
        nursery.cancel_scope.cancel()
    assert browsers.launched == 0


async def test_the_last_output_of_a_browser_that_does_not_start_is_in_the_error(tmp_path: Path) -> None:
    words = "echo 'error while loading shared libraries: libnss3.so' >&2\nexit 127"
    path = program(tmp_path / "chromium-headless-shell", words)
    browsers = Browsers(BrowserSettings(browser_path=path, browser_sandbox=False), ThreadBlocking())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        with pytest.raises(BrowserEnded, match=r"did not start: error while loading shared libraries: libnss3\.so"):
            async with browsers.open_page(Opening(ask=ask)):
                pass
        nursery.cancel_scope.cancel()


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


STARTS = """printf '{"id":1,"result":{}}\\0' >&4; exec cat <&3 >/dev/null"""


@pytest.mark.parametrize("starts", [True, False])
async def test_a_browser_that_ends_in_a_namespace_is_started_once_more_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, starts: bool
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path / "unshare", 'while [ "${1#--}" != "$1" ]; do shift; done; export NAMESPACE=own; exec "$@"')
    script = f"echo start >> {tmp_path}/starts; "
    script += (
        f'[ -z "$NAMESPACE" ] || {{ echo no sandbox >&2; exit 1; }}\n{STARTS if starts else "echo no >&2; exit 1"}'
    )
    path = program(tmp_path / "chromium-headless-shell", script)
    with nullcontext() if starts else pytest.raises(BrowserEnded, match=r"did not start: no$"):
        async with devtools.open_chromium(path, [], has_sandbox=False, blocking=ThreadBlocking()) as chromium:
            assert chromium.connection.ended is None
    assert (tmp_path / "starts").read_text() == "start\n" * 2  # noqa: ASYNC240
    assert [record.getMessage() for record in caplog.records if record.name == "trawl.browser"] == [
        f"{path} did not start in a network namespace (no sandbox). Starting it without one."
    ]


@pytest.mark.parametrize("starts", [True, False])
async def test_a_browser_is_started_once_if_the_kernel_allows_no_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, starts: bool
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path / "unshare", "exit 1")
    script = f"echo start >> {tmp_path}/starts; {STARTS if starts else 'echo no >&2; exit 1'}"
    path = program(tmp_path / "chromium-headless-shell", script)
    with nullcontext() if starts else pytest.raises(BrowserEnded, match=r"did not start: no$"):
        async with devtools.open_chromium(path, [], has_sandbox=False, blocking=ThreadBlocking()) as chromium:
            assert chromium.connection.ended is None
    assert (tmp_path / "starts").read_text() == "start\n"  # noqa: ASYNC240
    assert [record.getMessage() for record in caplog.records if record.name == "trawl.browser"] == []


async def test_a_variable_of_the_environment_does_not_change_how_a_browser_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("u", "false")
    path = program(tmp_path / "chromium-headless-shell", STARTS)
    for has_network in (True, False):
        async with devtools.open_chromium(
            path, [], has_sandbox=False, blocking=ThreadBlocking(), has_network=has_network
        ) as chromium:
            assert chromium.connection.ended is None


def test_a_profile_that_a_process_in_another_container_uses_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used, left = tmp_path / f"{devtools.PROFILE}99999998-a", tmp_path / f"{devtools.PROFILE}99999999-b"
    used.mkdir()
    left.mkdir()
    lock = devtools._lock(str(used))
    devtools._remove(*devtools._new_profile())
    assert list(tmp_path.iterdir()) == [used]
    os.close(lock)
    devtools._remove(*devtools._new_profile())
    assert list(tmp_path.iterdir()) == []


async def test_a_profile_whose_removal_hangs_does_not_delay_the_end() -> None:
    abandonable: list[str] = []

    class Noting(ThreadBlocking):
        async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
            abandonable.append(function.__name__)
            return await super().run_abandonable(function, *args)

    path = shutil.which("false")
    assert path is not None
    with pytest.raises(BrowserEnded):
        async with devtools.open_chromium(path, [], has_sandbox=False, blocking=Noting()):
            pass
    assert abandonable == ["_remove"]


async def test_a_page_that_is_cancelled_while_its_browser_starts_leaves_no_process(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"echo $$ > {started}.new; mv {started}.new {started}\nexec sleep 60"
    path = program(tmp_path / "chromium-headless-shell", script)
    browsers = Browsers(BrowserSettings(browser_path=path, browser_sandbox=False), ThreadBlocking())
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


class FakeChromium:
    """Opens contexts, and has a fixed memory until it ends."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.pid = 0
        self.ended: BrowserEnded | None = None
        self.connection = self

    def memory_bytes(self) -> int:
        return self.memory

    def post(self, *command: object) -> int:
        return 0

    async def call(self, *command: object, undo: object = None) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {"browserContextId": "c"}


@asynccontextmanager
async def fake_browsers(
    monkeypatch: pytest.MonkeyPatch, memories: list[int], settings: BrowserSettings
) -> AsyncGenerator[Browsers, None]:
    @asynccontextmanager
    async def opened(*args: object, **options: object) -> AsyncGenerator[FakeChromium, None]:
        chromium = FakeChromium(memories.pop(0))
        yield chromium
        chromium.ended = BrowserEnded("over")

    @asynccontextmanager
    async def page(*args: object) -> AsyncGenerator[None, None]:
        yield

    monkeypatch.setattr(devtools, "find_chromium", str)
    monkeypatch.setattr(devtools, "open_chromium", opened)
    monkeypatch.setattr("trawl.browser.page.open_page", page)
    browsers = Browsers(settings, InlineBlocking())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browsers.run)
        yield browsers
        nursery.cancel_scope.cancel()


async def test_the_memory_of_a_browser_is_told_until_its_last_page_is_closed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    told: list[int] = []

    async def tell() -> None:
        await trio.sleep(pool.MEASURE_EVERY)
        told.append(browsers.memory_bytes())

    async with fake_browsers(monkeypatch, [7, 9], BrowserSettings(browser_recycle=2)) as browsers:
        await tell()
        async with browsers.open_page(Opening(ask=ask)):
            async with browsers.open_page(Opening(ask=ask)):
                await tell()
            await tell()  # no further page gets this browser
        await tell()
        async with browsers.open_page(Opening(ask=ask)):
            await tell()
    assert told == [0, 7, 7, 0, 9]


async def test_a_new_browser_does_not_end_because_of_the_memory_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with fake_browsers(monkeypatch, [2 << 20, 1 << 10], BrowserSettings(browser_recycle_mb=1)) as browsers:
        for _ in range(3):
            async with browsers.open_page(Opening(ask=ask)):
                pass
            await trio.sleep(1.0)
    assert browsers.launched == 2
