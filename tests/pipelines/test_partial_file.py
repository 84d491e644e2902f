"""A file on its way: written under a temporary name, whole or not there, whoever is cancelled and when."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
import trio

from tests.pipelines.test_large_files import left_in
from tests.transport.http11.memory import Servers, transport_to
from tests.transport.http11.test_checkpoints import cancelled_everywhere
from trawl.blocking import Blocking, InlineBlocking, ThreadBlocking
from trawl.errors import BodyNotWritten
from trawl.http import FileResponse, Outcome, Request, Response
from trawl.observe import Stats
from trawl.pipelines import FilesPipeline
from trawl.pipelines.file_store import FileStore, IncompleteFile, LocalFileStore, digest_of, open_file_store

BODY = b"0123456789" * 40_000


@pytest.fixture(params=["folder", "store"])
def store(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileStore]:
    """A store whose temporary files are in ``tmp_path``."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield open_file_store(str(tmp_path) if request.param == "folder" else "memory://shelf", {}, "FILES_STORE")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def kept(store: FileStore, path: str, folder: Path) -> bytes:
    if isinstance(store, LocalFileStore):
        return (folder / path).read_bytes()
    content: bytes = fsspec.filesystem("memory").cat_file(f"/shelf/{path}")
    return content


async def test_what_is_kept_is_whole_and_known_by_its_content(store: FileStore, tmp_path: Path) -> None:
    async with aclosing(IncompleteFile(store, InlineBlocking())) as part:
        part.begin()
        await part.write([b"ab", b"c"])
        await part.write([b"d"])
        assert len(left_in(tmp_path)) == 1
        response = FileResponse("http://a.example/", sink=part)
        assert (response.body, part.size_bytes) == (b"abcd", 4)
        await part.keep("x/y.bin")
        assert response.body == b"abcd"
        assert digest_of(response, "sha1") == hashlib.sha1(b"abcd").hexdigest()
        assert part.digest("md5") == hashlib.md5(b"abcd").hexdigest()
        assert kept(store, "x/y.bin", tmp_path) == b"abcd"
    assert left_in(tmp_path) == (["x/y.bin"] if isinstance(store, LocalFileStore) else [])


async def test_what_is_not_kept_is_removed(store: FileStore, tmp_path: Path) -> None:
    async with aclosing(IncompleteFile(store, InlineBlocking())) as part:
        part.begin()
        await part.write([b"a"])
        with pytest.raises(ValueError, match="is not a path below the store"):
            await part.keep("../x")
        assert len(left_in(tmp_path)) == 1
    assert left_in(tmp_path) == []
    with pytest.raises(ValueError, match="no longer exists"):
        part.open()
    with pytest.raises(ValueError, match="no longer exists"):
        await part.keep("x")


async def test_a_body_that_begins_anew_forgets_the_one_before(store: FileStore, tmp_path: Path) -> None:
    async with aclosing(IncompleteFile(store, InlineBlocking())) as part:
        for content in (b"long and wrong", b"right"):
            part.begin()
            await part.write([content])
            assert len(left_in(tmp_path)) == 1
        assert (part.size_bytes, part.digest("sha1")) == (5, hashlib.sha1(b"right").hexdigest())
        await part.discard()
        assert left_in(tmp_path) == []
        part.begin()
        await part.write([b"again"])
        await part.keep("x")
    assert kept(store, "x", tmp_path) == b"again"


async def test_no_file_is_made_before_something_is_written(store: FileStore, tmp_path: Path) -> None:
    async with aclosing(IncompleteFile(store, InlineBlocking())) as part:
        part.begin()
        assert left_in(tmp_path) == []


async def test_a_file_goes_to_a_folder_on_another_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def across(source: Any, target: Any) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr("os.replace", across)
    async with aclosing(IncompleteFile(LocalFileStore(tmp_path), InlineBlocking())) as part:
        part.begin()
        await part.write([b"abc"])
        await part.keep("mounted/x")
        assert (tmp_path / "mounted" / "x").read_bytes() == b"abc"
    assert left_in(tmp_path) == ["mounted/x"]


async def test_a_disk_that_fills_up_is_an_error_that_is_not_tried_again(tmp_path: Path) -> None:
    class Full(LocalFileStore):
        def open_temporary(self) -> Any:
            file, path = super().open_temporary()
            file.close()
            return open("/dev/full", "wb"), path

    async with aclosing(IncompleteFile(Full(tmp_path), InlineBlocking())) as part:
        part.begin()
        with pytest.raises(BodyNotWritten, match="its body can't be written: ") as caught:
            await part.write([BODY])
        assert not caught.value.is_retryable
    assert left_in(tmp_path) == []


async def test_closing_waits_for_a_write_and_nothing_begins_after_it(store: FileStore, tmp_path: Path) -> None:
    begun, may_end = trio.Event(), trio.Event()

    class Slow(InlineBlocking):
        async def run(self, function: Any, *args: Any) -> Any:  # type: ignore[override]  # mypy can't pass Ts on
            begun.set()
            with trio.CancelScope(shield=True):  # as a thread is waited for
                await may_end.wait()
            return await super().run(function, *args)

    slow: Any = Slow()
    part = IncompleteFile(store, slow)
    part.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(part.write, [b"abc"])
        await begun.wait()
        nursery.start_soon(part.aclose)
        await trio.testing.wait_all_tasks_blocked()
        may_end.set()
    assert left_in(tmp_path) == []
    part.begin()
    with pytest.raises(BodyNotWritten, match="its response was given up"):
        await part.write([b"abc"])
    await part.aclose()


class Crawl:
    """What a pipeline needs of a crawl: each fetch is a task of its own, as the engine has it."""

    def __init__(self, folder: Path, blocking: Blocking, nursery: trio.Nursery) -> None:
        self.spider = None
        self.stats = Stats()
        self.blocking = blocking
        self.settings = {
            "FILES_STORE": str(folder),
            "FILES_URLS_FIELD": "file_urls",
            "FILES_RESULT_FIELD": "files",
            "FILES_EXPIRES": 0,
            "MEDIA_ALLOW_REDIRECTS": False,
            "MEDIA_LIKE_SCRAPY": False,
            "MEDIA_STORE_OPTIONS": {},
        }
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        pieces = [BODY[at : at + 100_000] for at in range(0, len(BODY), 100_000)]
        self.transport = transport_to(Servers([[head, *pieces]]))
        self._nursery = nursery

    def now_utc(self) -> datetime:
        return datetime(2025, 1, 1, tzinfo=UTC)

    async def fetch(self, request: Request) -> Response:
        outcomes: list[Outcome] = []
        is_there = trio.Event()
        scope = trio.CancelScope()

        async def turn() -> None:
            with scope:
                outcomes.append(await self.transport.send(request, lambda: None))
                is_there.set()

        self._nursery.start_soon(turn)
        try:
            await is_there.wait()
        finally:
            scope.cancel()  # and does not wait for it
        assert outcomes[0].response is not None
        return outcomes[0].response


@pytest.mark.parametrize("made", [InlineBlocking, ThreadBlocking])
async def test_cancelling_at_each_checkpoint_leaves_no_temporary_file(
    made: Callable[[], Blocking], tmp_path: Path
) -> None:
    runs = 0
    whole = 0
    async with trio.open_nursery() as engine:  # what is cancelled is the pipeline, which withdraws its fetch

        async def download() -> None:
            nonlocal runs
            runs += 1
            crawl: Any = Crawl(tmp_path / str(runs), made(), engine)
            await FilesPipeline(crawl).process_item({"file_urls": ["http://a.example/x"]})

        async def settled() -> None:
            nonlocal whole
            while engine.child_tasks:  # noqa: ASYNC110
                await trio.lowlevel.checkpoint()
            store = tmp_path / str(runs)
            assert not list(store.rglob("*.part"))
            for path in left_in(store):
                whole += 1
                assert (store / path).read_bytes() == BODY

        steps = await cancelled_everywhere(download, settled)
    assert steps > 15
    assert 0 < whole < steps
