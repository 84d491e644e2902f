"""Shared code of the feed tests: readers of the four formats, and targets that fail."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import trio

from trawl.blocking import InlineBlocking
from trawl.feeds import FeedMapping, FeedOptions, Feeds, FeedsSettings, open_feeds
from trawl.feeds.base import FeedState
from trawl.feeds.feed import Feed
from trawl.feeds.files import TextFile
from trawl.feeds.storages import FeedStorage, FileStorage

STARTED_UTC = datetime(2025, 1, 1, 12, 30, tzinfo=UTC)
Rows = list[dict[str, str]]


def read_jsonl(content: bytes) -> Rows:
    return [json.loads(line) for line in content.splitlines()]


def read_json(content: bytes) -> Rows:
    rows: Rows = json.loads(content)
    return rows


def read_csv(content: bytes) -> Rows:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def read_xml(content: bytes) -> Rows:
    return [{field.tag: field.text or "" for field in item} for item in ElementTree.fromstring(content)]


READERS: Mapping[str, Callable[[bytes], Rows]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "xml": read_xml,
}

# Values with newlines, quotes, brackets and commas, which must not be mistaken for the end of a record.
ROWS: Rows = [
    {"name": "Ünal, \"the\" 'first'", "note": "line 1\nline 2"},
    {"name": "]}\n]", "note": "</item>\n<b>&amp;"},
    {"name": 'a\\"', "note": ',"'},
    {"name": "", "note": '"\n","'},
]


class FullDisk(FileStorage):
    """A file on a disk with ``room`` free bytes."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__(path)
        self.room = room

    def write(self, position: int, content: memoryview) -> int:
        fitting = content[: max(self.room - position, 0)]
        if not fitting:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(position, fitting)


class Slow(FeedStorage):
    """A stream that accepts ``most`` bytes per write, and no bytes while ``is_stalled``."""

    def __init__(self, most: int = 7) -> None:
        self.most = most
        self.is_stalled = False
        self.is_closed = False
        self.content = b""
        self.error: OSError | None = None

    def write(self, position: int, content: memoryview) -> int:
        if self.error is not None:
            raise self.error
        taken = b"" if self.is_stalled else bytes(content[: self.most])
        self.content += taken
        return len(taken)

    def close(self) -> None:
        self.is_closed = True


async def opened(path: Path | str, states: Mapping[str, FeedState] | None = None, **mapping: object) -> Feeds:
    """Return the feeds of one FEEDS entry."""
    entry: FeedMapping = {**mapping}  # type: ignore[typeddict-item]  # a test's keyword arguments
    return await open_feeds(
        FeedsSettings(feeds={path: entry}),
        InlineBlocking(),
        spider_name="quotes",
        started_utc=STARTED_UTC,
        states=states,
    )


def states_of(feeds: Feeds) -> dict[str, FeedState]:
    """Return the state of the feeds that a job stores."""
    return {feed.destination: feed.state for feed in feeds.all}


async def write_all(feeds: Feeds, rows: Sequence[object]) -> None:
    """Write these rows, and finish the feeds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.write)
        for row in rows:
            await feeds.put(row)
        feeds.close()


def left_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def started(options: FeedOptions, target: FileStorage | Slow) -> Feed:
    """Return a feed on a target, opened as in a crawl."""
    feed = Feed(options, started_utc=STARTED_UTC, file=TextFile(options, target))
    feed.locate()
    feed.start()
    return feed
