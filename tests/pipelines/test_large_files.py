"""Large files go to disk while they come: bounded memory, nothing half, nothing left behind."""

from __future__ import annotations

import hashlib
import io
import os
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from PIL import Image

import trawl
from tests.net.badserver import MEGABYTE, BadServer, Behaviour, Connection, serving
from tests.net.crawls import AT_ONCE
from trawl._run import crawl_with
from trawl.http import FileResponse, Request, Response
from trawl.pipelines import FilesPipeline, ImagesPipeline
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.transport.body import MEMORY_BYTES

LARGE = random.Random(0).randbytes(MEGABYTE)
NAME = hashlib.sha1(LARGE).hexdigest()


def left_in(folder: Path) -> list[str]:
    """The files of a store, without what is known of URLs."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [str(path.relative_to(folder)) for path in paths if path.parent.name != ".urls"]


# Over a real wire.


async def crawled(
    server: BadServer, folder: Path, **settings: object
) -> tuple[trawl.CrawlResult, list[dict[str, str]]]:
    """A crawl whose one item has one file, and what became of that."""

    class Files(trawl.Spider):
        name = "files"

        async def start(self) -> AsyncIterator[Any]:
            yield {"file_urls": [f"{server.url}a.bin"]}

    given = {
        **AT_ONCE,
        "ITEM_PIPELINES": {FilesPipeline: 1},
        "FILES_STORE": str(folder),
        "ALLOW_PRIVATE_ADDRESSES": True,
        "DOWNLOAD_MAXSIZE": 0,
        "DOWNLOAD_WARNSIZE": 0,
        **settings,
    }
    result = await crawl_with(Files, load(Layer("test", given)), collect=True)
    assert result.items is not None
    return result, result.items[0]["files"]


def in_chunks(size: int) -> Behaviour:
    """An endless supply, sent in chunks up to ``size``."""
    piece = bytes(65_536)
    chunk = b"10000\r\n" + piece + b"\r\n"

    async def send(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(size // len(piece)):
            await connection.send(chunk)
        await connection.send(b"0\r\n\r\n")
        connection.is_kept = True

    return send


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_a_file_of_32_megabytes_takes_a_few_of_memory(tmp_path: Path, traced: None) -> None:
    size = 32 * MEGABYTE
    async with serving(in_chunks(MEGABYTE)) as server:
        await crawled(server, tmp_path / "before")  # what is imported and remembered once
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    async with serving(in_chunks(size)) as server:
        result, [found] = await crawled(server, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    assert (tmp_path / found["path"]).stat().st_size == size
    assert peak - before < 4 * MEGABYTE
    assert result.stats["response_bytes"] == size


async def test_a_body_that_is_cut_off_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    tries = 0
    seen: list[list[str]] = []

    async def breaks_first(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        seen.append(left_in(tmp_path))
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE)
        await connection.send(head + (LARGE if tries == 3 else LARGE[: MEMORY_BYTES * 2]))

    again = {"RETRY_ENABLED": True, "RETRY_DELAY": 0.0}
    async with serving(breaks_first) as server:
        _, [found] = await crawled(server, tmp_path, **again)
    assert tries == 3
    assert seen == [[], [], []]  # what was cut off is gone before the next try
    assert found["checksum"] == hashlib.md5(LARGE).hexdigest()
    assert left_in(tmp_path) == [found["path"]] == [f"full/{NAME}.bin"]
    assert (tmp_path / found["path"]).read_bytes() == LARGE


async def test_a_body_that_stays_cut_off_leaves_nothing(tmp_path: Path) -> None:
    async def breaks(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + LARGE)

    async with serving(breaks) as server:
        _, found = await crawled(server, tmp_path)
    assert found == []
    assert left_in(tmp_path) == []


async def test_a_crawl_that_is_cancelled_in_the_middle_of_a_file_leaves_nothing(tmp_path: Path) -> None:
    async def stalls(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + LARGE)
        await connection.until_gone()

    async with serving(stalls) as server, trio.open_nursery() as nursery:
        nursery.start_soon(crawled, server, tmp_path)
        with trio.fail_after(60):
            while not left_in(tmp_path):  # noqa: ASYNC110
                await trio.sleep(0.001)
        [name] = left_in(tmp_path)
        assert name.endswith(".part")
        nursery.cancel_scope.cancel()
    assert left_in(tmp_path) == []


async def test_a_full_disk_is_told_and_the_request_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    async with serving(in_chunks(MEGABYTE)) as server:
        _, found = await crawled(server, tmp_path, RETRY_ENABLED=True)
        assert len(server.heads) == 1
    assert found == []
    assert "a.bin: its body can't be written: [Errno 28] No space left on device" in caplog.text


# In simulation.


class Server:
    """A server with one large file, by the ending of the URL another one."""

    def __init__(self) -> None:
        self.content = LARGE
        self.etag = '"v1"'

    def __call__(self, request: Request) -> SimulatedResponse:
        if request.url.endswith("moved.bin"):
            return SimulatedResponse(302, LARGE, {"Location": "/a.bin"})
        if request.url.endswith("missing.bin"):
            return SimulatedResponse(404, LARGE)
        if request.headers.get("If-None-Match") == self.etag:
            return SimulatedResponse(304)
        return SimulatedResponse(200, self.content, {"ETag": self.etag, "Content-Type": "text/html"})

    def web(self) -> SimulatedWeb:
        web = SimulatedWeb()
        web.add_host("a.example", handler=self)
        return web


class Files(trawl.Spider):
    name = "files"
    url = "http://a.example/a.bin"

    async def start(self) -> AsyncIterator[Any]:
        yield {"file_urls": [self.url]}


def simulated(folder: Path, server: Server, spider: Any = Files, **settings: object) -> Simulation:
    given = {"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(folder), "RETRY_ENABLED": False, **settings}
    return simulate(spider, server.web(), settings=given)


def moved() -> type[Files]:
    return type("Moved", (Files,), {"url": "http://a.example/moved.bin"})


def test_a_large_file_is_kept_by_its_content_in_simulation(tmp_path: Path) -> None:
    result = simulated(tmp_path, Server())
    assert result.items[0]["files"] == [
        {
            "url": Files.url,
            "path": f"full/{NAME}.bin",
            "checksum": hashlib.md5(LARGE).hexdigest(),
            "status": "downloaded",
        }
    ]
    assert left_in(tmp_path) == [f"full/{NAME}.bin"]
    assert (tmp_path / "full" / f"{NAME}.bin").read_bytes() == LARGE
    assert os.stat(tmp_path / "full" / f"{NAME}.bin").st_mode & 0o777 == 0o644


def test_a_large_file_is_asked_for_again_only_if_it_has_changed(tmp_path: Path) -> None:
    server = Server()
    simulated(tmp_path, server)
    [item] = simulated(tmp_path, server, FILES_EXPIRES=0).items
    assert item["files"][0]["status"] == "uptodate"
    server.content, server.etag = LARGE[::-1], '"v2"'
    [item] = simulated(tmp_path, server, FILES_EXPIRES=0).items
    assert item["files"][0]["status"] == "downloaded"
    assert (tmp_path / item["files"][0]["path"]).read_bytes() == LARGE[::-1]
    assert len(left_in(tmp_path)) == 2


def test_redirects_to_large_files_are_followed_and_large_errors_are_none(tmp_path: Path) -> None:
    [item] = simulated(tmp_path, Server(), moved(), MEDIA_ALLOW_REDIRECTS=True).items
    assert [found["path"] for found in item["files"]] == [f"full/{NAME}.bin"]
    missing = type("Missing", (Files,), {"url": "http://a.example/missing.bin"})
    [item] = simulated(tmp_path / "other", Server(), missing).items
    assert item["files"] == []
    assert left_in(tmp_path / "other") == []


def test_a_success_that_is_sent_again_begins_its_file_anew(tmp_path: Path) -> None:
    server = Server()

    def once_more(request: Request, response: Response | None, error: Exception | None) -> bool | None:
        if "retry_times" in request.meta or response is None or request.url.endswith("robots.txt"):
            return None
        server.content = LARGE[::-1]
        return True

    result = simulated(tmp_path, server, RETRY_ENABLED=True, RETRY_PREDICATE=once_more)
    [found] = result.items[0]["files"]
    assert left_in(tmp_path) == [found["path"]]
    assert (tmp_path / found["path"]).read_bytes() == LARGE[::-1]


class OfOldTimes(FilesPipeline):
    """As someone wrote it who knows of bodies in memory only."""

    def file_path(self, request: Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        return f"old/{hashlib.sha256(response.body).hexdigest()}"

    async def keep(self, request: Request, response: Response, item: Any) -> str:
        path = await super().keep(request, response, item)
        item["begins"] = response.body[:4]
        return path


def test_a_pipeline_that_looks_at_the_body_has_it_read_back(tmp_path: Path) -> None:
    [item] = simulated(tmp_path, Server(), ITEM_PIPELINES={OfOldTimes: 1}).items
    assert left_in(tmp_path) == [f"old/{hashlib.sha256(LARGE).hexdigest()}"]
    assert item["begins"] == LARGE[:4]


class Refusing(FilesPipeline):
    """Puts files where they may not be."""

    def file_path(self, request: Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        return "../outside"


def test_a_file_that_may_not_be_kept_leaves_nothing(tmp_path: Path) -> None:
    [item] = simulated(tmp_path / "store", Server(), ITEM_PIPELINES={Refusing: 1}).items
    assert item["files"] == []
    assert left_in(tmp_path) == []


def test_a_store_behind_fsspec_gets_the_file_and_no_temporary_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec  # type: ignore[import-untyped]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [item] = simulated(Path("memory://shelf/files"), Server(), FILES_STORE="memory://shelf/files").items
    store = fsspec.filesystem("memory")
    assert store.cat_file(f"/shelf/files/{item['files'][0]['path']}") == LARGE
    assert left_in(tmp_path) == []
    store.store.clear()


def test_the_cache_does_not_keep_what_went_to_a_file(tmp_path: Path) -> None:
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    result = simulated(tmp_path / "store", Server(), **cache)
    assert len(result.items[0]["files"]) == 1
    assert result.stats["httpcache/uncacheable"] == 1
    assert "httpcache/store" not in result.stats


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may read a body back whole."""

    def refuse(response: FileResponse) -> bytes:
        raise AssertionError("it was read back")

    monkeypatch.setattr(FileResponse, "body", property(refuse, FileResponse.__dict__["body"].fset))


def test_detectors_of_refusals_and_refreshes_do_not_read_it_back(tmp_path: Path, unread: None) -> None:
    asked: list[str] = []

    def detector(response: Response) -> bool:
        asked.append(response.url)
        return False

    settings = {"SOFT_BLOCK_DETECTOR": detector, "METAREFRESH_ENABLED": True, "AUTOTHROTTLE_ENABLED": True}
    result = simulated(tmp_path, Server(), AUTOTHROTTLE_DEBUG=True, **settings)
    assert len(result.items[0]["files"]) == 1
    assert asked == ["http://a.example/robots.txt"]
    assert "throttling_errors" not in result.stats
    assert result.stats["response_bytes"] >= len(LARGE)


def test_an_archive_of_the_traffic_has_it_from_the_file(tmp_path: Path, unread: None) -> None:
    simulated(tmp_path / "store", Server(), WARC_FILE=str(tmp_path / "x.warc.gz"))
    again = SimulatedWeb.from_warc(tmp_path / "x-00001.warc.gz")
    given = {"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(tmp_path / "again")}
    [item] = simulate(Files, again, settings=given).items
    assert left_in(tmp_path / "again") == [item["files"][0]["path"]] == [f"full/{NAME}.bin"]


def test_a_large_image_is_read_back_from_disk(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.frombytes("RGB", (500, 500), random.Random(1).randbytes(750_000)).save(content, "PNG")
    assert len(content.getvalue()) > MEMORY_BYTES
    server = Server()
    server.content = content.getvalue()

    class Images(Files):
        async def start(self) -> AsyncIterator[Any]:
            yield {"image_urls": [self.url]}

    settings = {"ITEM_PIPELINES": {ImagesPipeline: 1}, "IMAGES_STORE": str(tmp_path), "IMAGES_THUMBS": {"s": [9, 9]}}
    [item] = simulated(tmp_path, server, Images, **settings).items
    name = hashlib.sha1(content.getvalue()).hexdigest()
    assert left_in(tmp_path) == [f"full/{name}.jpg", f"thumbs/s/{name}.jpg"]
    assert item["images"][0]["checksum"] == hashlib.md5(content.getvalue()).hexdigest()
    with Image.open(tmp_path / "full" / f"{name}.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (500, 500))
