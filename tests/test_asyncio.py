"""A crawl in an asyncio program: awaited, cancelled, interrupted, and several at once."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import trawl

AT_ONCE = {"DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "ROBOTSTXT_OBEY": False}
PROGRAM = """
import asyncio, sys, trawl

class Pages(trawl.Spider):
    name = "pages"
    start_urls = [sys.argv[1] + "1", sys.argv[1] + "silent"]
    def parse(self, response):
        yield {"url": response.url}

settings = {"FEEDS": {sys.argv[2]: {"format": "json"}}, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY_PER_SLOT": 0}
try:
    asyncio.run(trawl.crawl_in_asyncio(Pages, settings))
except KeyboardInterrupt:
    sys.exit("interrupted")
"""
APPLICATION = """
import asyncio, contextlib, sys, trawl

class Pages(trawl.Spider):
    name = "pages"
    start_urls = ["{url}1", "{url}silent"]
    def parse(self, response):
        yield {{"url": response.url}}

settings = {{"FEEDS": {{"{feed}": {{"format": "json"}}}}, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY_PER_SLOT": 0}}

async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    crawl = asyncio.create_task(trawl.crawl_in_asyncio(Pages, settings))
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    crawl.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await crawl
    await send({{"type": "lifespan.shutdown.complete"}})
"""


class Site:
    """A server in the asyncio loop of the test. It never answers a request for ``/silent``."""

    def __init__(self) -> None:
        self.requests = 0
        self.is_silent = asyncio.Event()
        self.has_lost_client = asyncio.Event()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            self.requests += 1
            if b"/silent" in head:
                self.is_silent.set()
                try:
                    await reader.read()
                finally:
                    self.has_lost_client.set()
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await site.handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield site
    finally:
        server.close()


class Pages(trawl.Spider[Any]):
    name = "pages"

    def __init__(self, url: str, paths: str, **arguments: Any) -> None:
        super().__init__(start_urls=[url + path for path in paths.split()], **arguments)

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        yield {"url": response.url}


def test_a_crawl_is_awaited_and_another_one_can_follow() -> None:
    async def main() -> list[int]:
        async with serving() as site:
            results = [await trawl.crawl_in_asyncio(Pages, AT_ONCE, url=site.url, paths="1 2 3") for _ in range(2)]
        return [len(result.items or ()) for result in results]

    assert asyncio.run(main()) == [3, 3]


def test_crawls_side_by_side_keep_the_delay_of_a_host_together() -> None:
    async def main() -> tuple[int, float]:
        limits = AT_ONCE | {"DOWNLOAD_DELAY": 0.25, "RANDOMIZE_DOWNLOAD_DELAY": False}
        now = asyncio.get_running_loop().time
        async with serving() as site:
            started_at = now()
            crawls = [trawl.crawl_in_asyncio(Pages, limits, url=site.url, paths=paths) for paths in ("1 2", "3 4")]
            await asyncio.gather(*crawls)
            return site.requests, now() - started_at

    requests, seconds = asyncio.run(main())
    assert requests == 4
    assert seconds >= 3 * 0.25  # apart, each crawl would need one delay


@pytest.mark.parametrize("times", [1, 2])
def test_cancelling_ends_the_crawl_and_its_feed_before_the_task_ends(tmp_path: Path, times: int) -> None:
    feed = tmp_path / "pages.json"

    async def main() -> None:
        async with serving() as site:
            settings = AT_ONCE | {"FEEDS": {str(feed): {"format": "json"}}}
            crawl = asyncio.create_task(trawl.crawl_in_asyncio(Pages, settings, url=site.url, paths="1 silent"))
            await site.is_silent.wait()
            for _ in range(times):
                crawl.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await crawl
            assert len(json.loads(feed.read_text("utf-8"))) == 1
            await site.has_lost_client.wait()

    asyncio.run(main())


def test_a_crawl_that_is_cancelled_before_it_starts_leaves_others_alone() -> None:
    async def main() -> int:
        async with serving() as site:
            first, second = (
                asyncio.create_task(trawl.crawl_in_asyncio(Pages, AT_ONCE, url=site.url, paths="1 2")) for _ in range(2)
            )
            await asyncio.sleep(0)
            first.cancel()
            result = await second
            assert first.cancelled()
        return len(result.items or ())

    assert asyncio.run(main()) == 2


def test_an_error_reaches_the_caller() -> None:
    async def main() -> None:
        await trawl.crawl_in_asyncio(Pages, {"DOWNLOAD_DELAYS": 1}, url="http://127.0.0.1/", paths="1")

    with pytest.raises(trawl.errors.SettingsError, match="unknown setting DOWNLOAD_DELAYS"):
        asyncio.run(main())


async def test_inside_trio_it_names_the_function_for_trio() -> None:
    with pytest.raises(RuntimeError, match=r"write `await trawl.crawl\(Pages"):
        await trawl.crawl_in_asyncio(Pages, url="http://127.0.0.1/", paths="1")


async def ended_by(number: signal.Signals, site: Site, *command: str) -> tuple[int, str]:
    """Start a program, and send it a signal when it has asked for ``/silent``."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
    ended, asked = asyncio.ensure_future(process.communicate()), asyncio.ensure_future(site.is_silent.wait())
    await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not ended.done():
        process.send_signal(number)
    _, said = await ended
    assert process.returncode is not None
    return process.returncode, said.decode()


def test_ctrl_c_ends_an_asyncio_program_and_its_feed_is_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving() as site:
            program = ("-X", "dev", "-c", PROGRAM, site.url, str(tmp_path / "a.json"))
            status, said = await ended_by(signal.SIGINT, site, *program)
        assert (status, "interrupted" in said, "Traceback" in said) == (1, True, False), said

    asyncio.run(main())
    assert len(json.loads((tmp_path / "a.json").read_text("utf-8"))) == 1


@pytest.mark.servers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_uvicorn_shuts_down_with_a_crawl_in_its_lifespan(tmp_path: Path, number: signal.Signals) -> None:
    feed = tmp_path / "a.json"

    async def main() -> None:
        async with serving() as site:
            (tmp_path / "web.py").write_text(APPLICATION.format(url=site.url, feed=feed), "utf-8")
            command = ("-m", "uvicorn", "--app-dir", str(tmp_path), "--port", "0", "web:app")
            _, said = await ended_by(number, site, *command)
        assert "Application shutdown complete" in said, said
        assert "Traceback" not in said.partition("Application shutdown complete")[0], said

    asyncio.run(main())
    assert len(json.loads(feed.read_text("utf-8"))) == 1
