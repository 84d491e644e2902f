"""Feeds that exporter classes write, as those of a moved spider: Scrapy's bytes, whole after each flush."""

from __future__ import annotations

import csv
import io
import logging
import marshal
import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import STARTED_UTC, states_of, write_all
from trawl import exporters
from trawl.blocking import InlineBlocking, ThreadBlocking
from trawl.compat.messages import HeaderText
from trawl.errors import FeedError, SettingsError
from trawl.feeds import Feeds, FeedsSettings, open_feeds
from trawl.feeds.job_item import from_stored, to_stored
from trawl.feeds.outbox import open_outbox
from trawl.items import Field, Item
from trawl.scrapy_names.moved import MOVED_DEFAULTS

BASE: Any = MOVED_DEFAULTS["FEED_EXPORTERS_BASE"]
PATHS = ("o.csv", "o.json", "o.jl", "o.xml", "o.pickle", "o.marshal")


class Quote(Item):
    text = Field()
    tags = Field()
    author = Field(serializer=str.upper)


ITEMS: list[Any] = [
    Quote(tags=["a", "b"], text="t"),
    Quote(author="me", text=datetime(2024, 5, 6, 7, 8, tzinfo=UTC), tags=(1, None)),
    Quote(text=Decimal("1.0"), tags={"n": [math.inf, {"x": True}]}),
]
CSV = (
    b"text,tags,author\r\n"
    b't,"a,b",\r\n'
    b'2024-05-06 07:08:00+00:00,"(1, None)",ME\r\n'
    b"1.0,\"{'n': [inf, {'x': True}]}\",\r\n"
)
XML = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    b"<item><text>t</text><tags><value>a</value><value>b</value></tags></item>\n"
    b"<item><text>2024-05-06 07:08:00+00:00</text><tags><value>1</value><value>None</value></tags>"
    b"<author>ME</author></item>\n"
    b"<item><text>1.0</text><tags><n><value>inf</value><value><x>True</x></value></n></tags></item>\n"
    b"</items>"
)
LINES = (
    b'{"text": "t", "tags": ["a", "b"]}',
    b'{"text": "2024-05-06T07:08:00+00:00", "tags": [1, null], "author": "ME"}',
    b'{"text": "1.0", "tags": {"n": [Infinity, {"x": true}]}}',
)
JSON = b"[\n" + b",\n".join(LINES) + b"\n]"
ROWS = [
    {"text": "t", "tags": ["a", "b"]},
    {"text": datetime(2024, 5, 6, 7, 8, tzinfo=UTC), "tags": (1, None), "author": "ME"},
    {"text": Decimal("1.0"), "tags": {"n": [math.inf, {"x": True}]}},
]
BYTES = {
    "o.csv": CSV,
    "o.json": JSON,
    "o.jl": b"".join(line + b"\n" for line in LINES),
    "o.xml": XML,
    "o.pickle": b"".join(pickle.dumps(row, 4) for row in ROWS),
}


async def opened(path: Path, states: Any = None, exporters: Any = None, **mapping: Any) -> Feeds:
    """The feed of a moved spider."""
    entry: Any = mapping
    return await open_feeds(
        FeedsSettings(
            feeds={path: entry}, feed_exporters_base=BASE, feed_exporters=exporters or {}, feed_export_encoding=None
        ),
        InlineBlocking(),
        spider_name="quotes",
        started_utc=STARTED_UTC,
        states=states,
    )


@pytest.mark.parametrize("name", BYTES)
async def test_a_moved_spiders_feed_has_scrapys_bytes(name: str, tmp_path: Path) -> None:
    await write_all(await opened(tmp_path / name), ITEMS)
    assert (tmp_path / name).read_bytes() == BYTES[name]


async def test_marshal_writes_what_it_knows(tmp_path: Path) -> None:
    await write_all(await opened(tmp_path / "o.marshal"), [{"a": [1, (2,)]}, {"b": None}])
    content = io.BytesIO((tmp_path / "o.marshal").read_bytes())
    assert [marshal.load(content), marshal.load(content)] == [{"a": [1, (2,)]}, {"b": None}]


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_a_file_that_is_continued_has_the_bytes_of_one_that_is_not(name: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / name
    feeds = await opened(path)
    await feeds.start()
    for item in ITEMS[:count]:
        feeds.put_nowait(item)
    await feeds.sync()
    states = states_of(feeds)
    feeds.all[0].close()
    path.write_bytes(path.read_bytes() + b"half")  # as a kill leaves it
    await write_all(await opened(path, states), ITEMS[count:])
    assert path.read_bytes() == BYTES[name]


@pytest.mark.parametrize("name", ["o.csv", "o.json", "o.jl", "o.xml"])
async def test_a_file_is_continued_after_its_last_whole_record(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    await write_all(await opened(path), ITEMS[:2])
    await write_all(await opened(path), ITEMS[2:])
    assert path.read_bytes() == BYTES[name]


async def test_an_xml_of_another_name_is_continued_alike(tmp_path: Path) -> None:
    for items in (ITEMS[:2], ITEMS[2:]):
        await write_all(await opened(tmp_path / "o.tree", exporters={"tree": exporters.XmlItemExporter}), items)
    assert (tmp_path / "o.tree").read_bytes() == XML


@pytest.mark.parametrize("name", ["o.csv", "o.json", "o.xml"])
async def test_the_file_is_whole_after_each_flush(name: str, tmp_path: Path) -> None:
    whole = []
    for count in range(3):
        await write_all(await opened(tmp_path / f"{count}-{name}"), ITEMS[:count])
        whole.append((tmp_path / f"{count}-{name}").read_bytes())
    feeds = await opened(tmp_path / name)
    await feeds.start()
    for count in range(3):
        assert (tmp_path / name).read_bytes() == whole[count]
        feeds.put_nowait(ITEMS[count])
        await feeds.sync()
    await feeds.aclose()


@pytest.mark.parametrize("name", ["o.pickle", "o.marshal"])
async def test_what_has_no_readable_end_is_not_continued(name: str, tmp_path: Path) -> None:
    await write_all(await opened(tmp_path / name), [{"a": 1}])
    with pytest.raises(FeedError, match=r"only a job can continue a file of .*ItemExporter; overwrite it"):
        await opened(tmp_path / name)
    await write_all(await opened(tmp_path / name, overwrite=True), [{"a": 1}])


async def test_an_item_that_cannot_be_written_takes_no_header_with_it(tmp_path: Path) -> None:
    feeds = await opened(tmp_path / "o.csv", encoding="ascii")
    await feeds.start()
    with pytest.raises(Exception, match="is left out"):
        feeds.put_nowait({"a": "é", "b": 1})
    feeds.put_nowait({"a": "e", "c": 1})
    await feeds.aclose()
    assert (tmp_path / "o.csv").read_bytes() == b"a,c\r\ne,1\r\n"


@pytest.mark.parametrize(
    ("path", "options", "content"),
    [
        ("o.csv", {"item_export_kwargs": {"delimiter": ";"}}, b"a;b\r\n1;x,y\r\n;2\r\n"),
        ("o.csv", {"item_export_kwargs": {"include_headers_line": False}}, b'1,"x,y"\r\n2\r\n'),
        ("o.csv", {"item_export_kwargs": {"join_multivalued": "|"}, "fields": ["b"]}, b"b\r\nx|y\r\n2\r\n"),
        ("o.csv", {"fields": {"b": "B", "c": "C"}}, b'B,C\r\n"x,y",\r\n2,\r\n'),
        ("o.json", {"indent": None}, b'[{"a": 1, "b": ["x", "y"]},{"b": 2}]'),
        ("o.json", {"indent": 1, "fields": ["b"]}, b'[\n{\n "b": [\n  "x",\n  "y"\n ]\n},\n{\n "b": 2\n}\n]'),
        ("o.xml", {"item_export_kwargs": {"root_element": "r", "item_element": "i"}, "fields": ["a"]},
         b'<?xml version="1.0" encoding="utf-8"?>\n<r>\n<i><a>1</a></i>\n<i></i>\n</r>'),
        ("o.csv", {"exporter": None}, b'a,b\r\n1,"[""x"",""y""]"\r\n,2\r\n'),
    ],
)  # fmt: skip
async def test_a_feeds_options_are_the_exporters(path: str, options: Any, content: bytes, tmp_path: Path) -> None:
    await write_all(await opened(tmp_path / path, **options), [{"a": 1, "b": ["x", "y"]}, {"b": 2}])
    assert (tmp_path / path).read_bytes() == content


async def test_a_feed_without_items_has_scrapys_bytes(tmp_path: Path) -> None:
    contents = {"o.csv": b"", "o.json": b"[\n\n]", "o.jl": b"", "o.pickle": b""}
    for name, content in contents.items():
        await write_all(await opened(tmp_path / name), [])
        assert (tmp_path / name).read_bytes() == content


class Quoted(exporters.CsvItemExporter):
    """A table with quotes around all."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, quoting=csv.QUOTE_ALL, **options)


class Semicolons(exporters.CsvItemExporter):
    """A table as spreadsheets of some countries have it."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, delimiter=";", **options)


class Workbook(exporters.BaseItemExporter):
    """All at its end, as a workbook is written."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(**options)
        self.file = file
        self.rows: list[Any] = []

    def export_item(self, item: Any) -> None:
        self.rows.append(dict(self.get_serialized_fields(item)))

    def finish_exporting(self) -> None:
        self.file.write(repr(self.rows).encode())


class Named(Workbook):
    """Writes to the path of its file, as scrapy-xlsx does."""

    def finish_exporting(self) -> None:
        Path(self.file.name).write_bytes(f"{Path(self.file.name).suffix} {self.rows!r}".encode())


class WithCrawler(exporters.CsvItemExporter):
    """Asks for what is not there."""

    @classmethod
    def from_crawler(cls, crawler: object, *args: Any) -> WithCrawler:
        return cls(*args)


async def test_an_exporter_of_the_users_writes_a_format(tmp_path: Path) -> None:
    path = tmp_path / "o.table"
    for items in ([{"a": 1, "b": 2}], [{"a": 3, "b": 4}]):
        await write_all(await opened(path, exporters={"table": f"{__name__}.Quoted"}), items)
    assert path.read_bytes() == b'"a","b"\r\n"1","2"\r\n"3","4"\r\n'


async def test_another_dialect_of_csv_is_continued_by_a_job_only(tmp_path: Path) -> None:
    path, kinds = tmp_path / "o.table", {"table": Semicolons}
    feeds = await opened(path, exporters=kinds)
    await write_all(feeds, [{"a": "1", "b": "2"}])
    with pytest.raises(FeedError, match="only a job can continue a file of Semicolons; overwrite it"):
        await opened(path, exporters=kinds)
    await write_all(await opened(path, states_of(feeds), exporters=kinds), [{"a": "3", "b": "4"}])
    assert path.read_bytes() == b"a;b\r\n1;2\r\n3;4\r\n"


async def test_an_exporter_may_write_all_at_its_end(tmp_path: Path) -> None:
    feeds = await opened(tmp_path / "o.book", exporters={"book": Workbook})
    await feeds.start()
    for item in ({"a": 1}, {"a": 2}):
        feeds.put_nowait(item)
        await feeds.sync()
    assert (tmp_path / "o.book").read_bytes() == b""
    await feeds.finish()
    assert (tmp_path / "o.book").read_bytes() == b"[{'a': 1}, {'a': 2}]"
    assert feeds.all[0].records == 2


async def test_an_exporter_may_write_to_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "o.xlsx"
    await write_all(await opened(path, exporters={"xlsx": Named}), [{"a": 1}, {"a": 2}])
    assert path.read_bytes() == b".xlsx [{'a': 1}, {'a': 2}]"
    assert list(tmp_path.iterdir()) == [path]  # noqa: ASYNC240


async def test_an_exporter_that_cannot_end_its_file_is_an_error_that_names_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Workbook):
        def finish_exporting(self) -> None:
            raise RuntimeError("no sheet")

    feeds = await opened(tmp_path / "o.book", exporters={"book": Broken})
    await feeds.put({"a": 1})
    feeds.close()
    with (
        caplog.at_level(logging.INFO, "trawl.feeds"),
        pytest.raises(FeedError, match=r"feed .*o\.book: .*Broken can't end the file: RuntimeError\('no sheet'\)"),
    ):
        await feeds.write()
    assert caplog.messages == []


async def test_an_exporter_ends_its_file_where_blocking_work_is_done(tmp_path: Path) -> None:
    class Noted(Workbook):
        def finish_exporting(self) -> None:
            with pytest.raises(RuntimeError, match="async context"):
                trio.lowlevel.current_task()
            super().finish_exporting()

    settings = FeedsSettings(feeds={tmp_path / "o.book": {"exporter": Noted}})
    feeds = await open_feeds(settings, ThreadBlocking(), spider_name="q", started_utc=STARTED_UTC)
    await feeds.put({"a": 1})
    await feeds.finish()
    assert (tmp_path / "o.book").read_bytes() == b"[{'a': 1}]"


async def test_what_is_whole_only_at_its_end_is_no_feed_of_a_job(tmp_path: Path) -> None:
    settings = FeedsSettings(feeds={tmp_path / "o.book": {"exporter": Workbook}})
    with pytest.raises(FeedError, match="can't be a feed of a job: a file of Workbook is complete only at its end"):
        await open_feeds(settings, InlineBlocking(), spider_name="q", started_utc=STARTED_UTC, states={})


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        ("o.csv", {"item_export_kwargs": {"delim": ";"}}, r"CsvItemExporter can't be made with .*delim"),
        ("o.csv", {"exporter": WithCrawler}, r"WithCrawler has from_crawler\(\), which is not called"),
        ("o.csv", {"exporter": dict}, r"dict has no export_item\(\); derive the class from one in"),
        ("o.csv", {"exporter": "nowhere.Csv"}, r"the exporter of feed .*o\.csv: nowhere\.Csv"),
        ("o.csv", {"exporter": "trawl.exporters.logger"}, r"is not a class"),
    ],
)
async def test_an_exporter_that_cannot_write_is_refused_by_name(
    path: str, options: Any, why: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=why):
        await opened(tmp_path / path, **options)


async def test_scrapys_path_of_an_exporter_is_understood(tmp_path: Path) -> None:
    feeds = await opened(tmp_path / "o.txt", exporters={"txt": "scrapy.exporters.PprintItemExporter"})
    await write_all(feeds, [{"a": "1"}])
    assert (tmp_path / "o.txt").read_bytes() == b"{'a': '1'}\n"


async def test_a_format_that_only_an_exporter_writes_is_named(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r'FEED_EXPORTERS = \{pickle = "trawl.exporters.PickleItemExporter"\} adds it'):
        await open_feeds(
            FeedsSettings(feeds={"o.pickle": {}}), InlineBlocking(), spider_name="q", started_utc=STARTED_UTC
        )


VALUES: list[Any] = [
    None, True, 1, 1.5, math.inf, "é", b"\xff", [1, [2]], (1, (2,)), {1}, {"a": (1,)}, {1: 2}, {"": ["str", 1]},
    datetime(2024, 5, 6, tzinfo=UTC), datetime(2024, 5, 6).date(), datetime(2024, 5, 6, 7).time(), Decimal("1.10"),
    datetime(2024, 5, 6) - datetime(2024, 5, 5),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_stored_item_is_the_item_to_an_exporter(value: Any) -> None:
    stored = from_stored(to_stored({"a": value}, is_exact=True))
    assert (stored.item, type(stored.item["a"])) == ({"a": value}, type(value))


class Size(IntEnum):
    SMALL = 1


class Colour(str, Enum):  # noqa: UP042 - its text is not its value
    RED = "red"


class Point(NamedTuple):
    x: object
    y: object


class Weight(float):
    pass


class Names(list[object]):
    pass


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Size.SMALL, 1),
        (Colour.RED, "red"),
        (Weight(1.5), 1.5),
        (Weight("inf"), math.inf),
        (Names([Size.SMALL]), [1]),
        (Point(1, Names("a")), (1, ["a"])),
        ({Colour.RED: Size.SMALL}, {"red": 1}),
    ],
    ids=repr,
)
def test_a_stored_value_of_a_subclass_is_its_base_to_an_exporter(value: object, base: object) -> None:
    stored = from_stored(to_stored({"a": value}, is_exact=True))
    assert repr(stored.item) == repr({"a": base})


def test_a_stored_item_declares_the_fields_of_its_class() -> None:
    stored = from_stored(to_stored(Quote(author="me"), is_exact=True))
    assert isinstance(stored.item, Item)
    assert (list(stored.item.fields), dict(stored.item)) == (["text", "tags", "author"], {"author": "ME"})
    assert stored.fields == {"author": "ME"}


def test_an_item_that_was_stored_for_other_feeds_is_its_plain_fields() -> None:
    assert from_stored(to_stored(Quote(tags=(1,)))).item == {"tags": [1]}


@pytest.mark.parametrize("name", BYTES)
async def test_a_jobs_feed_has_the_same_bytes(name: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    entry: Any = {tmp_path / name: {}}
    settings = FeedsSettings(feeds=entry, feed_exporters_base=BASE, feed_export_encoding=None)
    job = FakeJob()
    for items in (ITEMS[:1], ITEMS[1:]):
        blocking = InlineBlocking()
        _, outbox = await open_outbox(settings, blocking, job, spider_name="q", started_utc=STARTED_UTC)
        job.hold(*[outbox.encode(item) for item in items])
        outbox.acknowledged(len(items))
        outbox.close()
        await outbox.write()
        job = job.killed()
    assert (tmp_path / name).read_bytes() == BYTES[name]


@attrs.frozen
class Book:
    title: str = attrs.field(metadata={"serializer": str.upper})


async def test_a_fields_serializer_acts_in_trawls_own_formats(tmp_path: Path) -> None:
    entries: Any = {tmp_path / name: {} for name in ("o.csv", "o.jsonl")}
    feeds = await open_feeds(FeedsSettings(feeds=entries), InlineBlocking(), spider_name="q", started_utc=STARTED_UTC)
    await write_all(feeds, [Book("dune")])
    assert (tmp_path / "o.csv").read_bytes() == b"title\r\nDUNE\r\n"
    assert (tmp_path / "o.jsonl").read_bytes() == b'{"title":"DUNE"}\n'


@attrs.define
class Tagged:
    tags: object = attrs.field(metadata={"serializer": lambda tags: [str(tag).upper() for tag in tags]})
    plain: object = ()


class TaggedItem(Item):
    tags = Field(serializer=lambda tags: [str(tag).upper() for tag in tags])
    plain = Field()
    never = Field()


@pytest.mark.parametrize("kind", [Tagged, TaggedItem])
async def test_with_a_job_a_list_that_a_serializer_made_is_written_as_without(kind: Any, tmp_path: Path) -> None:
    item = kind(tags=("a", "b"), plain=["c", "d"])
    lines = []
    for given in (item, from_stored(to_stored(item, is_exact=True)).item):
        feeds = await opened(tmp_path / "o.csv", overwrite=True)
        await write_all(feeds, [given])
        lines.append((tmp_path / "o.csv").read_text())
    assert lines[0] == lines[1]
    assert "\"['A', 'B']\",\"c,d\"" in lines[0]


async def test_marshal_writes_header_texts_as_plain_ones(tmp_path: Path) -> None:
    item = {"a": HeaderText("x"), "b": [HeaderText("y"), (HeaderText("z"), 1)], "c": {HeaderText("k"): {1}}}
    await write_all(await opened(tmp_path / "o.marshal"), [item])
    assert marshal.loads((tmp_path / "o.marshal").read_bytes()) == {"a": "x", "b": ["y", ("z", 1)], "c": {"k": {1}}}
