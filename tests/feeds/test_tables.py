"""Feeds that are tables: SQLite, with and without a job, and Parquet."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import ROWS, STARTED_UTC, left_in, opened
from tests.feeds.test_outbox import Mortal, give, outbox_of, run_until_killed
from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.errors import FeedError, SettingsError
from trawl.feeds import Feeds, FeedsSettings, open_feeds, tables
from trawl.feeds.base import FeedState
from trawl.feeds.feed import Feed
from trawl.feeds.options import FeedOptions
from trawl.feeds.tables import SqliteTable


async def write(feeds: Feeds, *items: object) -> None:
    for item in items:
        await feeds.put(item)
    await feeds.finish()


def rows_of(path: Path, table: str = "items") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM {table}")]


def parquet(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


async def test_a_column_is_made_for_every_field_that_comes(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    await write(await opened(path), {"a": 1, 'b"': [1]}, {"A": 2.5, "rowid": "x", "c": True}, {"c": None})
    assert rows_of(path) == [
        {"a": 1, 'b"': "[1]", "rowid": None, "c": None},
        {"a": 2.5, 'b"': None, "rowid": "x", "c": 1},
        {"a": None, 'b"': None, "rowid": None, "c": None},
    ]
    assert left_in(tmp_path) == ["out.sqlite"]


async def test_a_later_crawl_adds_rows_or_writes_the_table_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE mine (x)")
    await write(await opened(path), {"a": 1})
    await write(await opened(path), {"a": 2})
    assert [row["a"] for row in rows_of(path)] == [1, 2]
    await write(await opened(path, overwrite=True, item_export_kwargs={"table": "items"}), {"b": 3})
    assert rows_of(path) == [{"b": 3}]
    assert rows_of(path, "mine") == []


async def test_values_that_sqlite_has_no_type_for_are_text(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    when = datetime(2025, 1, 1, tzinfo=UTC)
    await write(await opened(path), {"big": 2**70, "when": when, "nan": float("nan"), "deep": {"x": [1]}})
    assert rows_of(path) == [{"big": str(2**70), "when": "2025-01-01T00:00:00Z", "nan": None, "deep": '{"x":[1]}'}]


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    path.write_text("hello " * 1000)
    with pytest.raises(FeedError, match=r"out\.sqlite: file is not a database"):
        await opened(path)
    assert path.read_text() == "hello " * 1000


async def test_c7_killed_at_any_write_each_item_is_in_the_table_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    for steps in range(1, 40):
        job, path = FakeJob(), tmp_path / f"{steps}.sqlite"
        if await run_until_killed(job, path, {}, Mortal(steps)):
            break
        assert await run_until_killed(job.killed(), path, {}, InlineBlocking())
        assert rows_of(path) == ROWS
    assert steps > 10


async def test_a_table_with_fewer_rows_than_a_job_has_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    await write(await opened(path), {"a": 1})
    with pytest.raises(FeedError, match="its table items has 1 rows, not the 3 that were written to it"):
        await opened(path, states={str(path): FeedState(3)})


async def test_a_failed_write_leaves_whole_transactions(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    async with await opened(path) as feeds:
        [feed] = feeds.all
        feed.add({"a": 1})
        await feed.flush(InlineBlocking())
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "CREATE TRIGGER no BEFORE INSERT ON items WHEN new.a = 3 BEGIN SELECT group_concat(no_3) OVER (); END"
            )
        feed.add({"a": 2, "b": 1})
        feed.add({"a": 3})
        with pytest.raises(FeedError, match="no_3"):
            await feed.flush(InlineBlocking())
        assert feed.state.position == 1
    assert [row["a"] for row in rows_of(path)] == [1]


async def put(feeds: Feeds, item: object) -> None:
    await feeds.put(item)
    for feed in feeds.all:
        await feed.flush(InlineBlocking())


async def test_two_crawls_may_write_to_one_table_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    first, second = await opened(path), await opened(path)  # there is no table yet
    await put(first, {"a": 1})
    await put(second, {"b": 2})
    await put(first, {"b": 3, "c": 4})
    await first.finish()
    third = await opened(path)
    await put(second, {"a": 5})
    await third.finish()  # having written nothing, it removes nothing
    await second.finish()
    assert [{name: value for name, value in row.items() if value is not None} for row in rows_of(path)] == [
        {"a": 1},
        {"b": 2},
        {"b": 3, "c": 4},
        {"a": 5},
    ]
    assert left_in(tmp_path) == ["out.sqlite"]


async def test_a_crawl_without_an_item_leaves_the_file_to_the_one_that_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    values = FeedsSettings(feeds={str(path): {"store_empty": False}})
    first = await open_feeds(values, InlineBlocking(), spider_name="x", started_utc=datetime.now(UTC))
    second = await opened(path)
    await first.finish()
    await write(second, {"a": 1})
    assert rows_of(path) == [{"a": 1}]


async def test_a_table_that_was_made_beforehand_is_kept_as_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE items (url TEXT UNIQUE, n INTEGER)")
    await write(await opened(path), {"n": "7", "url": "u"})
    assert rows_of(path) == [{"url": "u", "n": 7}]
    await write(await opened(path), {"url": "u"}, {"url": "v"})
    assert rows_of(path) == [{"url": "u", "n": 7}, {"url": "v", "n": None}]


async def test_a_job_has_its_table_to_itself_and_deletes_no_row_of_others(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path, job = tmp_path / "out.sqlite", FakeJob()
    outbox = await outbox_of(job, {path: {}})
    other = await opened(path)
    await write(other, {"of": "another"})
    give(job, outbox, {"a": 1})
    outbox.close()
    with pytest.raises(
        FeedError, match=r"out\.sqlite: another program writes to its table items, which only the job may"
    ):
        await outbox.write()
    assert rows_of(path) == [{"of": "another"}]


async def test_a_database_that_another_crawl_is_just_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.sqlite"
    run = SqliteTable._run
    refusals: list[Exception] = []

    def busy_at_first(table: SqliteTable, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        if "journal_mode = WAL" in statement and not refusals:
            with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0)) as late:
                other.execute("BEGIN EXCLUSIVE")
                try:
                    late.execute(statement)
                except sqlite3.OperationalError as error:
                    refusals.append(error)
                    raise
        return run(table, statement, values)

    monkeypatch.setattr(SqliteTable, "_run", busy_at_first)
    monkeypatch.setattr(tables, "_AGAIN", 0.0)
    await write(await opened(path), {"a": 1})
    assert [str(error) for error in refusals] == ["database is locked"]
    assert rows_of(path) == [{"a": 1}]


async def test_tables_are_written_from_threads(tmp_path: Path) -> None:
    settings = FeedsSettings(feeds={str(tmp_path / "a.sqlite"): {}, str(tmp_path / "a.parquet"): {}})
    started_utc = datetime(2025, 1, 1, tzinfo=UTC)
    feeds = await open_feeds(settings, ThreadBlocking(), spider_name="x", started_utc=started_utc)
    await write(feeds, {"a": 1})
    assert rows_of(tmp_path / "a.sqlite") == parquet(tmp_path / "a.parquet") == [{"a": 1}]


async def test_parquet_is_written_in_row_groups_of_the_first_ones_types(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "out.parquet"
    rows = [
        {"n": 1, "price": 2, "tags": ["a"], "deep": {"x": 1}, "none": None},
        {"n": 2, "price": 2.5, "tags": [], "when": datetime(2025, 1, 1, tzinfo=UTC)},
        {"n": "three", "price": 3, "more": 1, "none": 5},
    ]
    await write(await opened(path, item_export_kwargs={"row_group_size": 2}), *rows)
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == 2
    assert [row["price"] for row in parquet(path)] == [2.0, 2.5, 3.0]
    assert [row["n"] for row in parquet(path)] == [1, 2, None]
    assert [row["none"] for row in parquet(path)] == [None, None, "5"]
    assert parquet(path)[0]["deep"] == '{"x":1}'
    assert parquet(path)[1]["when"] == datetime(2025, 1, 1, tzinfo=UTC)
    assert "field 'more' has no column" in caplog.text
    assert "field 'n' is not always int64" in caplog.text


async def test_the_types_of_columns_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    schema = {"price": "double", "when": "timestamp[us]"}
    feeds = await opened(path, item_export_kwargs={"row_group_size": 1, "schema": schema})
    await write(feeds, {"price": 1}, {"price": 1.5})
    assert [row["price"] for row in parquet(path)] == [1.0, 1.5]
    with pytest.raises(SettingsError, match="Arrow has no type 'number'"):
        await opened(path, item_export_kwargs={"schema": {"price": "number"}})


async def test_fields_say_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    await write(await opened(path, fields={"b": "second", "a": "first"}), {"a": Decimal("1.5"), "c": 3})
    assert parquet(path) == [{"second": None, "first": Decimal("1.5")}]


async def test_a_parquet_file_is_at_its_place_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    path.write_bytes(b"earlier")
    feeds = await opened(path, overwrite=True)
    await feeds.put({"a": 1})
    assert path.read_bytes() == b"earlier"
    await feeds.finish()
    assert parquet(path) == [{"a": 1}]
    assert left_in(tmp_path) == ["out.parquet"]
    with pytest.raises(FeedError, match="can't be continued; overwrite it"):
        await opened(path)


@pytest.mark.parametrize("name", ["out.parquet", "out.sqlite"])
async def test_a_feed_without_items_leaves_a_file_unless_it_is_not_to(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    await write(await opened(path, store_empty=False))
    assert left_in(tmp_path) == []
    await write(await opened(path))
    assert path.exists()


async def test_a_table_whose_fields_are_said_is_there_without_an_item(tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    for _ in range(2):
        await write(await opened(path, fields={"a": "A", "b": "b"}))
        assert rows_of(path) == []
    await write(await opened(path, fields={"a": "A", "b": "b"}), {"a": 1})
    assert rows_of(path) == [{"A": 1, "b": None}]


async def test_text_that_can_not_be_encoded_is_replaced_in_tables(tmp_path: Path) -> None:
    item = {"name\ud800": "text\ud800", "list": ["x", "\udfff"]}
    await write(await opened(tmp_path / "out.sqlite"), item)
    assert rows_of(tmp_path / "out.sqlite") == [{"name\ufffd": "text\ufffd", "list": '["x","\ufffd"]'}]
    await write(await opened(tmp_path / "out.parquet"), item)
    assert parquet(tmp_path / "out.parquet") == [{"name\ufffd": "text\ufffd", "list": ["x", "\ufffd"]}]


async def test_fields_that_are_one_column_to_sqlite_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "out.sqlite"
    await write(await opened(path), {"Title": 1, "title": 2}, {"Title": 3, "title": 4}, {"TITLE": 5})
    assert [row["title"] for row in rows_of(path)] == [2, 4, 5]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"feed {path}: field 'Title' is left out: to SQLite it is the same column as 'title'"
    ]


async def test_a_job_refuses_parquet_and_names_the_feed(tmp_path: Path, autojump_clock: MockClock) -> None:
    with pytest.raises(FeedError, match=r"out\.parquet: can't be a feed of a job: a parquet file can't be continued"):
        await run_until_killed(FakeJob(), tmp_path / "out.parquet", {}, InlineBlocking())


async def test_tables_in_batches_are_files_of_their_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    await write(await opened(tmp_path / "%(batch)d.parquet", batch_item_count=2), *({"n": n} for n in range(3)))
    assert [parquet(tmp_path / f"{number}.parquet") for number in (1, 2)] == [[{"n": 0}, {"n": 1}], [{"n": 2}]]


async def test_no_compression_is_put_around_a_table(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has its own compression"):
        await opened(tmp_path / "out.parquet.gz")


async def test_a_table_feed_says_what_it_wrote(tmp_path: Path) -> None:
    feed = Feed(FeedOptions(uri=str(tmp_path / "x.sqlite"), format="sqlite"), started_utc=STARTED_UTC)
    assert (feed.records, feed.format, feed.state) == (0, "sqlite", FeedState(0, format="sqlite"))
    assert json.loads(json.dumps(feed.destination)) == str(tmp_path / "x.sqlite")
