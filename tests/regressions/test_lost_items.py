"""What is written of an item is what its own library writes; what can't be written is lost, and said so."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow.parquet  # type: ignore[import-untyped]
import pydantic
import pytest

import trawl
from trawl.events import ItemFailed, ItemScraped
from trawl.exceptions import ItemLost
from trawl.testing import SimulatedWeb, simulate

URL = "http://a.example/"


class Maker(pydantic.BaseModel):
    """A model inside of an item."""

    site: pydantic.HttpUrl
    notes: str = pydantic.Field(default="n", exclude=True)


class Product(pydantic.BaseModel):
    """A model that says in every way how it is written."""

    url: pydantic.HttpUrl
    any_url: pydantic.AnyUrl = pydantic.AnyUrl("ftp://files.example/x")
    token: pydantic.SecretStr = pydantic.SecretStr("secret")
    address: IPv4Address = IPv4Address("192.0.2.1")
    cents: int = pydantic.Field(default=250, serialization_alias="price")
    hidden: str = pydantic.Field(default="no", exclude=True)
    maker: Maker = pydantic.Field(default_factory=lambda: Maker(site=pydantic.HttpUrl("http://m.example/")))

    @pydantic.field_serializer("cents")
    def in_euros(self, cents: int) -> str:
        return f"{cents / 100:.2f} EUR"

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def host(self) -> str | None:
        return self.url.host


class Struct(msgspec.Struct, rename="camel", omit_defaults=True, tag_field="kind", tag="s"):
    """A Struct with names of its own."""

    page_url: str
    sold_out: bool = False
    of_model: Any = None


@attrs.define
class Attrs:
    """An attrs class with a private name, which ``attrs.asdict`` writes."""

    _id: int
    inner: Any = None


WRITTEN = {
    "url": "http://a.example/1",
    "any_url": "ftp://files.example/x",
    "token": "**********",
    "address": "192.0.2.1",
    "price": "2.50 EUR",
    "maker": {"site": "http://m.example/"},
    "host": "a.example",
}


def product() -> Product:
    return Product(url=pydantic.HttpUrl("http://a.example/1"))


def crawl(items: list[Any], feeds: dict[Path, Any], **more: Any) -> Any:
    """One crawl of one page, whose callback gives ``items``."""

    class Giver(trawl.Spider):
        name = "giver"
        start_urls = (URL,)

        def parse(self, response: trawl.Response) -> Any:
            yield from items

    web = SimulatedWeb()
    web.add_host("a.example")
    return simulate(
        Giver,
        web,
        settings={"FEEDS": {str(path): options for path, options in feeds.items()}, **more},
        errors="collect",
    )


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM items")]


@pytest.fixture(params=[False, True], ids=["without a job", "with a job"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return {"JOB_DIR": str(tmp_path / "job")} if request.param else {}


def test_a_pydantic_item_is_written_as_pydantic_writes_it(tmp_path: Path, job: dict[str, str]) -> None:
    feeds: dict[Path, Any] = {tmp_path / name: {} for name in ("a.jsonl", "a.csv", "a.xml", "a.sqlite")}
    result = crawl([product()], feeds, **job)
    assert product().model_dump(mode="json", by_alias=True) == WRITTEN
    assert lines(tmp_path / "a.jsonl") == [WRITTEN]
    [row] = csv.DictReader((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines())
    assert row == {**WRITTEN, "maker": '{"site":"http://m.example/"}'}
    assert table(tmp_path / "a.sqlite") == [row]
    assert "<price>2.50 EUR</price>" in (tmp_path / "a.xml").read_text(encoding="utf-8")
    assert result.stats["item_scraped_count"] == 1
    assert result.items == [product()]  # who collects them has the items themselves


def test_a_parquet_feed_has_the_names_of_pydantic_and_its_own_types(tmp_path: Path) -> None:
    class Seen(Product):
        at: pydantic.AwareDatetime

    crawl(
        [Seen.model_validate({"url": "http://a.example/1", "at": "2025-01-01T00:00:00Z"})], {tmp_path / "a.parquet": {}}
    )
    [row] = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert row.pop("at").isoformat() == "2025-01-01T00:00:00+00:00"
    assert row == {**WRITTEN, "maker": '{"site":"http://m.example/"}'}


def test_items_inside_of_items_are_written_as_their_own_libraries_write_them(
    tmp_path: Path, job: dict[str, str]
) -> None:
    items = [
        {"it": product(), "secret": pydantic.SecretStr("x"), "at": IPv4Address("192.0.2.2")},
        Struct("u", of_model=product()),
        Attrs(1, [Attrs(2, Struct("v", sold_out=True))]),
    ]
    crawl(items, {tmp_path / "a.jsonl": {}}, **job)
    assert lines(tmp_path / "a.jsonl") == [
        {"it": WRITTEN, "secret": "**********", "at": "192.0.2.2"},
        {"kind": "s", "pageUrl": "u", "ofModel": WRITTEN},
        {"_id": 1, "inner": [{"_id": 2, "inner": {"kind": "s", "pageUrl": "v", "soldOut": True}}]},
    ]


def test_fields_of_a_feed_are_named_as_they_are_written_and_filters_see_the_item(
    tmp_path: Path, job: dict[str, str]
) -> None:
    feeds: dict[Path, Any] = {
        tmp_path / "a.csv": {"fields": {"price": "EUR"}, "item_filter": lambda item: item.cents > 100}
    }
    result = crawl([product(), product().model_copy(update={"cents": 99})], feeds, **job)
    assert (tmp_path / "a.csv").read_bytes() == b"EUR\r\n2.50 EUR\r\n"
    assert result.stats["item_scraped_count"] == 2  # one was not wanted by the feed, which is no loss
    assert "item_lost_count" not in result.stats


class Odd(pydantic.BaseModel):
    """A model that can hold anything."""

    name: str = "x"
    value: Any = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def half(self) -> Any:
        return 1 // self.value if self.value == 0 else None


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"n": 0, "x": object()}, "its field 'x': a value of type object has no written form"),
        (Odd(value=object()), "its field 'value': a value of type object has no written form"),
        (Odd(value=0), "its field 'half': .*ZeroDivisionError"),
        (Attrs(1, object()), "its field 'inner': a value of type object"),
        (Struct("u", of_model=object()), "its field 'ofModel': a value of type object"),
        ({"n": 10**5000}, "its field 'n': .*4300"),
        ({"n": nested(100_000)}, "its field 'n': .*nested too deep"),
    ],
)
def test_what_can_not_be_written_is_lost_and_not_an_item(
    bad: Any, why: str, tmp_path: Path, job: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    feeds: dict[Path, Any] = {tmp_path / name: {} for name in ("a.jsonl", "a.json", "a.xml", "a.sqlite")}
    feeds[tmp_path / "a.csv"] = {"fields": ["n", "x", "value", "half", "inner", "ofModel"]}
    if not job:  # which writes no parquet
        feeds[tmp_path / "a.parquet"] = {}
    result = crawl([{"n": 1}, bad, {"n": 2}], feeds, **job)
    assert (result.reason, result.stats["item_scraped_count"], result.stats["item_lost_count"]) == ("finished", 2, 1)
    assert result.items == lines(tmp_path / "a.jsonl") == [{"n": 1}, {"n": 2}]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == (1 if job else len(feeds))
    for words in told:
        assert f"an item of type {type(bad).__name__} from {URL} is left out" in words
        assert re.search(why, words), words


def test_a_lost_item_is_told_as_a_failure_and_counts_for_its_feeds_only(tmp_path: Path, job: dict[str, str]) -> None:
    seen: list[Any] = []

    async def watch(crawl: Any) -> None:
        with crawl.events(ItemScraped, ItemFailed) as events:
            async for event in events:
                seen.append(event.error if isinstance(event, ItemFailed) else event.item)

    feeds: dict[Path, Any] = {tmp_path / "a.csv": {}, tmp_path / "a.jsonl": {}}
    result = crawl([{"a": 1}, {"b": 2}, {"b": object()}], feeds, WATCHERS={watch: 1}, **job)
    assert lines(tmp_path / "a.jsonl") == [{"a": 1}, {"b": 2}]
    assert (tmp_path / "a.csv").read_bytes() == b"a\r\n1\r\n"
    assert (result.stats["item_scraped_count"], result.stats["item_lost_count"]) == (2, 1)
    assert result.stats["feed_item_errors"] == (2 if job else 3)  # with a job, an item is refused once for all feeds
    assert seen[:2] == [{"a": 1}, {"b": 2}]
    assert isinstance(seen[2], ItemLost)
    assert len(seen) == 3


def test_an_item_without_a_column_leaves_no_empty_row(
    tmp_path: Path, job: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    items = [{"text": "t", "author": "a"}, {"name": "n", "born": "b"}, {"text": "u", "more": 1}, {}]
    feeds: dict[Path, Any] = {
        tmp_path / "a.csv": {},
        tmp_path / "b.csv": {"fields": ["text"]},
        tmp_path / "c.sqlite": {"fields": ["text"]},
    }
    result = crawl(items, feeds, **job)
    assert (tmp_path / "a.csv").read_bytes() == b"text,author\r\nt,a\r\nu,\r\n"
    assert (tmp_path / "b.csv").read_bytes() == b"text\r\nt\r\nu\r\n"
    assert table(tmp_path / "c.sqlite") == [{"text": "t"}, {"text": "u"}]
    assert (result.stats["item_scraped_count"], result.stats["item_lost_count"]) == (2, 2)
    assert "it has none of the feed's columns text,author, but name,born" in caplog.text


def test_the_columns_are_those_of_the_first_item_that_can_be_written(tmp_path: Path, job: dict[str, str]) -> None:
    crawl([{"bad": object()}, {"a": 1}, {"bad": 2}], {tmp_path / "a.csv": {}}, **job)
    assert (tmp_path / "a.csv").read_bytes() == b"a\r\n1\r\n"


def test_no_batch_begins_with_an_item_that_can_not_be_written(tmp_path: Path, job: dict[str, str]) -> None:
    items = [{"a": 1}, {"a": 2}, {"a": object()}, {"a": 3}, {"a": 4}, {"a": object()}]
    crawl(items, {tmp_path / "%(batch)d.jsonl": {"batch_item_count": 2}}, **job)
    written = {path.name: lines(path) for path in tmp_path.glob("*.jsonl")}
    assert written == {"1.jsonl": [{"a": 1}, {"a": 2}], "2.jsonl": [{"a": 3}, {"a": 4}]}


def test_a_thousand_items_of_the_wrong_kind_are_told_a_few_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = crawl([{"a": 1}, *[{"b": n} for n in range(1000)]], {tmp_path / "a.csv": {}})
    assert result.stats["item_lost_count"] == result.stats["feed_item_errors"] == 1000
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 11


@pytest.mark.parametrize("batch", [0, 1])
def test_the_2001st_column_of_a_sqlite_feed_is_one_lost_item(
    batch: int, tmp_path: Path, job: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    wide = {f"c{n}": n for n in range(1999)}
    items = [wide, {"c0": 1, "d": 2}, {"c0": 2, "e": 3}, {"c1": 4}, {f"x{n}": n for n in range(2001)}]
    if batch:
        items = items[-1:] + items[:-1]
    result = crawl(items, {tmp_path / "a.sqlite": {}}, **job)
    rows = table(tmp_path / "a.sqlite")
    assert [(row["c0"], row["c1"], row["d"]) for row in rows] == [(0, 1, None), (1, None, 2), (None, 4, None)]
    assert (result.reason, result.stats["item_scraped_count"], result.stats["item_lost_count"]) == ("finished", 3, 2)
    assert f"an item of type dict from {URL} is left out: a SQLite table has at most 2000 columns" in caplog.text


def test_constraints_of_a_table_that_was_made_beforehand_cost_single_items(tmp_path: Path, job: dict[str, str]) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE items (url TEXT UNIQUE NOT NULL, n INTEGER CHECK (n < 5))")
    items = [{"url": "u"}, {"url": "u", "new": 1}, {"n": 1}, {"url": "v", "n": 9}, {"url": "w", "n": 4}]
    result = crawl(items, {path: {}}, **job)
    assert table(path) == [{"url": "u", "n": None}, {"url": "w", "n": 4}]
    assert (result.stats["item_scraped_count"], result.stats["item_lost_count"]) == (2, 3)


def test_fields_with_the_names_of_sqlite_s_row_numbers_are_columns_as_far_as_there_are_names(
    tmp_path: Path, job: dict[str, str]
) -> None:
    result = crawl([{"rowid": "a", "oid": "b"}, {"_rowid_": "c"}, {"oid": "d"}], {tmp_path / "a.sqlite": {}}, **job)
    assert table(tmp_path / "a.sqlite") == [{"rowid": "a", "oid": "b"}, {"rowid": None, "oid": "d"}]
    assert result.stats["item_lost_count"] == 1


def test_numbers_and_texts_that_are_odd_are_written_as_before(tmp_path: Path, job: dict[str, str]) -> None:
    odd = {"big": 10**30, "nan": float("nan"), "inf": float("inf"), "half": "\ud800", "\udfff": 1}
    feeds: dict[Path, Any] = {tmp_path / name: {} for name in ("a.jsonl", "a.csv", "a.xml", "a.sqlite")}
    result = crawl([odd], feeds, **job)
    assert lines(tmp_path / "a.jsonl") == [{"big": 10**30, "nan": None, "inf": None, "half": "\ufffd", "\ufffd": 1}]
    assert result.stats["item_scraped_count"] == 1


def test_a_job_whose_feed_refused_items_goes_on_and_counts_each_once(tmp_path: Path) -> None:
    items = [{"name": "first kind"}, {"text": "t"}, {"name": "n"}]
    job = {"JOB_DIR": str(tmp_path / "job")}
    (tmp_path / "a.csv").write_bytes(b"text\r\nbefore\r\n")
    for _ in range(2):
        result = crawl(items, {tmp_path / "a.csv": {}}, **job)
        assert (result.stats["item_scraped_count"], result.stats["item_lost_count"]) == (1, 2)
        assert (tmp_path / "a.csv").read_bytes() == b"text\r\nbefore\r\nt\r\n"


def test_a_lost_item_takes_no_place_of_those_that_are_wanted(tmp_path: Path, job: dict[str, str]) -> None:
    items = [{"n": number if number % 2 else object()} for number in range(20)]
    result = crawl(items, {tmp_path / "a.jsonl": {}}, CLOSESPIDER_ITEMCOUNT=5, **job)
    assert lines(tmp_path / "a.jsonl") == [{"n": number} for number in (1, 3, 5, 7, 9)]
    assert (result.reason, result.stats["item_scraped_count"]) == ("closespider_itemcount", 5)
