"""Feeds in .gz and .zst: whole between any two flushes, continued, repaired, and exactly once with a job."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from trio.testing import MockClock

from tests.feeds.fake_job import FakeJob
from tests.feeds.fakes import READERS, ROWS, opened, write_all
from tests.feeds.test_outbox import Mortal, run_until_killed
from trawl.blocking import InlineBlocking
from trawl.errors import FeedError
from trawl.feeds.compression import PIECE_BYTES
from trawl.feeds.files import TextFile


def unzst(content: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True) as reader:
        return reader.read()


UNPACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.decompress, "zst": unzst}
PACKED = pytest.mark.parametrize("ending", list(UNPACK))
FORMATS = pytest.mark.parametrize("name", list(READERS))


@PACKED
@FORMATS
async def test_the_ending_says_how_a_feed_is_compressed(
    tmp_path: Path, autojump_clock: MockClock, name: str, ending: str
) -> None:
    path = tmp_path / f"out.{name}.{ending}"
    await write_all(await opened(path), ROWS)
    assert READERS[name](UNPACK[ending](path.read_bytes())) == ROWS


@PACKED
@FORMATS
async def test_a_later_crawl_goes_on_in_the_file(
    tmp_path: Path, autojump_clock: MockClock, name: str, ending: str
) -> None:
    path = tmp_path / f"out.{name}.{ending}"
    for row in ROWS:
        await write_all(await opened(path), [row])
    assert READERS[name](UNPACK[ending](path.read_bytes())) == ROWS


@PACKED
@FORMATS
async def test_the_file_is_whole_after_every_flush(
    tmp_path: Path, autojump_clock: MockClock, name: str, ending: str
) -> None:
    path = tmp_path / f"out.{name}.{ending}"
    async with await opened(path) as feeds:
        [feed] = feeds.all
        for count, row in enumerate(ROWS, 1):
            feed.add(row)
            await feed.sync(InlineBlocking())
            assert READERS[name](UNPACK[ending](path.read_bytes())) == ROWS[:count]


@PACKED
@FORMATS
async def test_a_file_that_is_broken_off_is_cut_to_its_whole_pieces_and_continued(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, name: str, ending: str
) -> None:
    path = tmp_path / f"out.{name}.{ending}"
    await write_all(await opened(path), ROWS[:1])
    whole = path.stat().st_size
    await write_all(await opened(path), ROWS[1:2])
    path.write_bytes(path.read_bytes()[: whole + 5])
    await write_all(await opened(path), ROWS[2:])
    left = READERS[name](UNPACK[ending](path.read_bytes()))
    assert left in ([ROWS[0], *ROWS[2:]], ROWS[2:])  # the closing of the first was overwritten by the second
    assert "after its last whole record" in caplog.text


async def test_items_gather_to_pieces_that_are_worth_compressing(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "out.jsonl.gz"
    async with await opened(path) as feeds:
        [feed] = feeds.all
        feed.add({"a": "x"})
        await feed.flush(InlineBlocking())
        assert gzip.decompress(path.read_bytes()) == b""
        feed.add({"a": "x" * PIECE_BYTES})
        await feed.flush(InlineBlocking())
        assert len(gzip.decompress(path.read_bytes()).splitlines()) == 2


async def test_a_file_that_gzip_itself_made_is_continued_where_its_lines_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "out.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a":1}\n{"a":2}\n'))
    await write_all(await opened(path), [{"a": "3"}])
    assert gzip.decompress(path.read_bytes()) == b'{"a":1}\n{"a":2}\n{"a":"3"}\n'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no gzip at all", "it is not compressed as gz"),
        (gzip.compress(b'{"a":1}\n{"a":', mtime=0), "in pieces that do not end where records end"),
    ],
    ids=["not packed", "half a record"],
)
async def test_a_file_that_can_not_be_continued_is_told_and_left_alone(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "out.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(FeedError, match=why):
        await opened(path)
    assert path.read_bytes() == content


@PACKED
@FORMATS
async def test_c7_killed_at_any_write_each_item_is_in_a_compressed_file_once(
    tmp_path: Path, autojump_clock: MockClock, name: str, ending: str
) -> None:
    for steps in range(1, 40, 4):
        job, path = FakeJob(), tmp_path / f"{steps}.{name}.{ending}"
        if await run_until_killed(job, path, {}, Mortal(steps, is_half=True)):
            break
        assert await run_until_killed(job.killed(), path, {}, InlineBlocking())
        assert READERS[name](UNPACK[ending](path.read_bytes())) == ROWS
    assert steps > 10


async def test_a_compressed_feed_is_a_feed(tmp_path: Path) -> None:
    async with await opened(tmp_path / "out.csv.zst") as feeds:
        assert isinstance(feeds.all[0].file, TextFile)


@PACKED
@FORMATS
async def test_a_compressed_feed_without_an_item_is_a_file_that_can_be_unpacked_and_continued(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, name: str, ending: str
) -> None:
    path = tmp_path / f"out.{name}.{ending}"
    for _ in range(2):
        async with await opened(path) as feeds:
            await feeds.start()
            assert path.read_bytes()  # also while nothing came yet
            await write_all(feeds, [])
        assert path.read_bytes()
        content = UNPACK[ending](path.read_bytes())
        assert not content.strip() if name in {"jsonl", "csv"} else READERS[name](content) == []
    await write_all(await opened(path), ROWS)
    assert READERS[name](UNPACK[ending](path.read_bytes())) == ROWS
    assert not caplog.text


async def test_an_empty_file_that_gzip_made_is_begun_with_its_header(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "out.csv.gz"
    path.write_bytes(gzip.compress(b"") + gzip.compress(b""))
    await write_all(await opened(path), ROWS)
    assert READERS["csv"](gzip.decompress(path.read_bytes())) == ROWS
