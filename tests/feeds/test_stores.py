"""Feeds for stores, through fsspec: whole objects, put there at the end."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import fsspec  # type: ignore[import-untyped]
import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import STARTED_UTC, left_in
from trawl.blocking import InlineBlocking
from trawl.errors import FeedError, SettingsError
from trawl.exporters import BaseItemExporter
from trawl.feeds import FeedMapping, Feeds, FeedsSettings, open_feeds
from trawl.feeds.outbox import open_outbox
from trawl.feeds.storages import FileStorage
from trawl.feeds.writer import FEEDS_CLOSE_GRACE

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STORE = "memory://bucket/a/out.json"


@pytest.fixture(autouse=True)
def store() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


async def opened(folder: Path, uri: str = STORE, **mapping: Any) -> Feeds:
    entry: FeedMapping = {**mapping}  # type: ignore[typeddict-item]  # a test's keyword arguments
    settings = FeedsSettings(feeds={uri: entry}, feed_tempdir=str(folder))
    return await open_feeds(settings, InlineBlocking(), spider_name="quotes", started_utc=STARTED_UTC)


async def test_an_object_is_put_when_the_feed_is_whole(tmp_path: Path, store: Any) -> None:
    feeds = await opened(tmp_path)
    await feeds.put({"a": 1})
    assert not store.exists("/bucket/a/out.json")
    await feeds.finish()
    assert json.loads(store.cat("/bucket/a/out.json")) == [{"a": 1}]
    assert left_in(tmp_path) == []


async def test_each_batch_is_put_when_it_is_whole(tmp_path: Path, store: Any, autojump_clock: MockClock) -> None:
    feeds = await opened(tmp_path, "memory://bucket/%(name)s-%(batch)03d.sqlite", batch_item_count=1)
    for number in range(3):
        await feeds.put({"n": number})
    [feed] = feeds.all
    await feed.flush(InlineBlocking())
    assert len(store.ls("/bucket")) == 2
    await feeds.finish()
    names = sorted(name.rpartition("/")[2] for name in store.ls("/bucket", detail=False))
    assert names == ["quotes-001.sqlite", "quotes-002.sqlite", "quotes-003.sqlite"]
    assert store.cat("/bucket/quotes-001.sqlite").startswith(b"SQLite format 3")
    assert left_in(tmp_path) == []


class CancelsAfter(InlineBlocking):
    """Cancels a scope when so many steps are done."""

    def __init__(self, steps: float) -> None:
        self.steps = steps
        self.scope = trio.CancelScope()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        result = await super().run(function, *args)
        self.steps -= 1
        if not self.steps:
            self.scope.cancel()
        return result


@pytest.mark.parametrize("ending", ["json", "sqlite"])
async def test_cancelled_between_any_two_steps_each_batch_is_put_once(
    ending: str, tmp_path: Path, store: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    is_cancelled, steps = True, 1
    while is_cancelled:
        steps += 1
        blocking = CancelsAfter(steps)
        entry: FeedMapping = {"batch_item_count": 1}
        settings = FeedsSettings(feeds={f"memory://{steps}/%(batch)d.{ending}": entry}, feed_tempdir=str(tmp_path))
        feeds = await open_feeds(settings, blocking, spider_name="quotes", started_utc=STARTED_UTC)
        for number in range(3):
            feeds.put_nowait({"n": number})
        feeds.close()
        with blocking.scope:
            await feeds.write()
        is_cancelled = blocking.scope.cancel_called
        assert sorted(store.ls(f"/{steps}", detail=False)) == [f"/{steps}/{batch}.{ending}" for batch in (1, 2, 3)]
        assert feeds.all[0].records == 3
        assert left_in(tmp_path) == []
    assert steps > 6
    assert caplog.messages == []


async def test_an_object_that_is_there_is_replaced_only_on_request(tmp_path: Path, store: Any) -> None:
    store.pipe("/bucket/a/out.json", b"earlier")
    with pytest.raises(FeedError, match="it exists, and"):
        await opened(tmp_path)
    await (await opened(tmp_path, overwrite=True)).finish()
    assert json.loads(store.cat("/bucket/a/out.json")) == []


async def test_what_can_not_be_stored_is_kept_and_named(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    feeds = await opened(tmp_path)
    await feeds.put({"a": 1})
    monkeypatch.setattr(type(store), "put_file", refuse)
    with pytest.raises(FeedError, match=r"it can't be uploaded, and is kept in .*: Access Denied"):
        await feeds.finish()
    [kept] = left_in(tmp_path)
    assert json.loads((tmp_path / kept).read_bytes()) == [{"a": 1}]


@pytest.mark.parametrize("step", ["write", "sync"])
async def test_what_a_full_disk_leaves_of_an_object_is_kept_and_named(
    step: str, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    feeds = await opened(tmp_path, "memory://bucket/a/out.jsonl")
    await feeds.start()
    await feeds.put({"a": 1})
    await feeds.sync()
    await feeds.put({"a": 2})
    monkeypatch.setattr(FileStorage, step, fail)
    with pytest.raises(FeedError, match="No space left on device"):
        await feeds.finish()
    kept = tmp_path / left_in(tmp_path)[0]
    assert kept.read_bytes() == b'{"a":1}\n' + (b'{"a":2}\n' if step == "sync" else b"")
    words = f"feed memory://bucket/a/out.jsonl: it was not uploaded to its store; its items are kept in {kept}"
    assert caplog.record_tuples == [("trawl.feeds", logging.ERROR, words)]


@pytest.mark.parametrize(("ending", "is_kept"), [("jsonl", True), ("sqlite", True), ("parquet", False)])
async def test_an_object_whose_turn_did_not_come_in_time_is_kept_if_it_can_be_read(
    ending: str,
    is_kept: bool,
    tmp_path: Path,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    put_file = type(store).put_file

    def put_slowly(*args: Any, **keywords: Any) -> None:
        put_file(*args, **keywords)
        autojump_clock.jump(FEEDS_CLOSE_GRACE + 1)

    monkeypatch.setattr(type(store), "put_file", put_slowly)
    uris = "memory://bucket/1.jsonl", f"memory://bucket/2.{ending}"
    settings = FeedsSettings(feeds={uri: {} for uri in uris}, feed_tempdir=str(tmp_path))
    feeds = await open_feeds(settings, InlineBlocking(), spider_name="quotes", started_utc=STARTED_UTC)
    await feeds.start()
    await feeds.put({"a": 1})
    await feeds.sync()
    await feeds.aclose()
    assert store.find("/bucket") == ["/bucket/1.jsonl"]
    kept = left_in(tmp_path)
    assert [Path(name).suffix for name in kept] == [f".{ending}"] * is_kept
    assert all(f"its items are kept in {tmp_path / name}" in caplog.text for name in kept)


async def test_an_object_that_an_exporter_has_ended_is_kept_if_its_turn_did_not_come(
    tmp_path: Path, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending(BaseItemExporter):
        def __init__(self, file: Any, **options: Any) -> None:
            super().__init__(**options)
            self.file = file

        def export_item(self, item: Any) -> None:
            pass

        def finish_exporting(self) -> None:
            self.file.write(b"whole")

    class Refusing(InlineBlocking):
        async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
            if function == file.end:
                raise FeedError("full", STORE)
            return await super().run(function, *args)

    feeds = await opened(tmp_path, exporter=Ending)
    [feed] = feeds.all
    file = feed.file
    await feeds.start()
    await feeds.put({"a": 1})
    with pytest.raises(FeedError):
        await feed.finish(Refusing())
    kept = tmp_path / left_in(tmp_path)[0]
    assert kept.read_bytes() == b"whole"
    assert f"its items are kept in {kept}" in caplog.text


async def test_a_crawl_that_does_not_begin_leaves_nothing(tmp_path: Path, store: Any) -> None:
    settings = FeedsSettings(feeds={STORE: {}, str(tmp_path): {"format": "json"}}, feed_tempdir=str(tmp_path))
    with pytest.raises(FeedError):
        await open_feeds(settings, InlineBlocking(), spider_name="x", started_utc=STARTED_UTC)
    assert left_in(tmp_path) == []


async def test_a_store_that_nobody_knows_is_told(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"feed nowhere://x\.json: Protocol not known: nowhere"):
        await opened(tmp_path, "nowhere://x.json")


async def test_what_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"needs the extra fsspec: pip install 'trawl-crawler\[fsspec\]"):
        await opened(tmp_path, "oci://x/y.json")


async def test_a_job_refuses_a_store_and_names_the_feed() -> None:
    settings = FeedsSettings(feeds={STORE: {}})
    with pytest.raises(FeedError, match=r"feed memory://bucket/a/out\.json: can't be a feed of a job"):
        await open_outbox(settings, InlineBlocking(), FakeJob(), spider_name="x", started_utc=STARTED_UTC)
