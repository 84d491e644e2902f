"""Stored responses: one SQLite file for each spider. All calls block, and raise ``sqlite3.Error``.

Bodies are in a table of their own, so that a lookup reads none. Several processes may use one file; their writes wait
for each other.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from trawl.http import Headers, Request, Response, without_fragment

__all__ = ["CacheEntry", "Fields", "NewEntry", "Store", "make_entry", "make_response"]

Fields = tuple[tuple[str, str], ...]
"""Names and values, in order."""


@attrs.frozen(kw_only=True)
class CacheEntry:
    """A stored response without its body.

    Attributes:
        id: Its number in the store; 0 before it is stored.
        url: Its URL.
        method: Method of the request.
        sent: Fields of the request as it was sent, for ``Vary``.
        status: Its status.
        fields: Its fields.
        asked_at: Time of the request, in epoch seconds.
        came_at: Time of the response, in epoch seconds.
        body: Its body, where it was read along; None: :meth:`Store.body` reads it.
    """

    id: int = 0
    url: str
    method: str
    sent: Fields
    status: int
    fields: Fields
    asked_at: float
    came_at: float
    body: bytes | None = None

    @property
    def headers(self) -> Headers:
        """Its fields, for lookup by name."""
        return Headers(self.fields)


def make_entry(request: Request, response: Response, *, asked_at: float, came_at: float) -> CacheEntry:
    """Make the entry of a response; ``request`` is as it was sent, times are epoch seconds."""
    return CacheEntry(
        url=response.url,
        method=request.method,
        sent=tuple(request.headers.items_list()),
        status=response.status,
        fields=tuple(response.headers.items_list()),
        asked_at=asked_at,
        came_at=came_at,
    )


def make_response(stored: CacheEntry, body: bytes, request: Request) -> Response:
    """Make the response that answers ``request`` from the cache, with the flag ``cached``."""
    url = without_fragment(stored.url)  # earlier releases stored it with one
    return Response(url, stored.status, stored.headers, body, request, flags=["cached"])


VERSION = 1

_BUSY_SECONDS = 10.0  # a write waits as long for another process

_SCHEMA = """
CREATE TABLE IF NOT EXISTS response (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, url TEXT NOT NULL, method TEXT NOT NULL, status INTEGER NOT NULL,
    asked_at REAL NOT NULL, came_at REAL NOT NULL, sent BLOB NOT NULL, fields BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS response_key ON response (key);
CREATE INDEX IF NOT EXISTS response_url ON response (url);
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, is_compressed INTEGER NOT NULL, content BLOB NOT NULL);
"""

_COLUMNS = "id, url, method, status, asked_at, came_at, sent, fields"

READ_ALONG_BYTES = 65_536
"""A body that takes no more on disk is read with its response: another call would take longer."""

_FIND = f"SELECT {_COLUMNS}, NULL FROM response WHERE key = ?"

_FIND_WITH_BODY = (
    f"SELECT {_COLUMNS}, (SELECT content FROM body WHERE id = response.id AND NOT is_compressed"
    f" AND length(content) <= {READ_ALONG_BYTES}) FROM response WHERE key = ?"
)

NewEntry = tuple[bytes, CacheEntry, bytes, Callable[[CacheEntry], bool]]
"""The key of a response to store, the response, its body, and a function that says which it replaces."""


class Store:
    """The responses of one file.

    Args:
        path: The file, created with its folder if missing.
        compresses: Compress bodies.

    Raises:
        OSError: The folder can't be created.
        sqlite3.Error: The file can't be opened, or is not a cache.
    """

    def __init__(self, path: Path, *, compresses: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._compresses = compresses
        self._lock = threading.Lock()  # one connection, many threads, one at a time
        self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"it is of version {version}, and only {VERSION} is known")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the latest, never the file
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def find(self, keys: Sequence[bytes]) -> list[list[CacheEntry]]:
        """Return the responses stored under each key, with their bodies where these are small and not compressed."""
        with self._lock:
            return [[_stored(row) for row in self._connection.execute(_FIND_WITH_BODY, (key,))] for key in keys]

    def body(self, id: int) -> bytes | None:
        """Return the body of a response; None if it was removed."""
        with self._lock:
            row = self._connection.execute("SELECT is_compressed, content FROM body WHERE id = ?", (id,)).fetchone()
        if row is None:
            return None
        return zlib.decompress(row[1]) if row[0] else bytes(row[1])

    def put_many(self, entries: Sequence[NewEntry]) -> None:
        """Store responses and remove those they replace, in one transaction."""
        contents = [zlib.compress(body) if self._compresses else body for _, _, body, _ in entries]
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for (key, stored, _, replaces), content in zip(entries, contents, strict=True):
                older = [_stored(row) for row in self._connection.execute(_FIND, (key,))]
                self._remove([each.id for each in older if replaces(each)])
                values = (key, stored.url, stored.method, stored.status, stored.asked_at, stored.came_at)
                cursor = self._connection.execute(
                    "INSERT INTO response (key, url, method, status, asked_at, came_at, sent, fields)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*values, msgspec.json.encode(stored.sent), msgspec.json.encode(stored.fields)),
                )
                self._connection.execute(
                    "INSERT INTO body (id, is_compressed, content) VALUES (?, ?, ?)",
                    (cursor.lastrowid, int(self._compresses), content),
                )

    def refresh(self, stored: CacheEntry) -> None:
        """Update the fields and times of a response."""
        with self._lock:
            self._connection.execute(
                "UPDATE response SET asked_at = ?, came_at = ?, fields = ? WHERE id = ?",
                (stored.asked_at, stored.came_at, msgspec.json.encode(stored.fields), stored.id),
            )

    def forget(self, url: str) -> int:
        """Remove the responses of a URL. Returns how many there were."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            found = [row[0] for row in self._connection.execute("SELECT id FROM response WHERE url = ?", (url,))]
            self._remove(found)
        return len(found)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _remove(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        pairs = [(id,) for id in ids]
        self._connection.executemany("DELETE FROM response WHERE id = ?", pairs)
        self._connection.executemany("DELETE FROM body WHERE id = ?", pairs)


_decode_fields = msgspec.json.Decoder(Fields).decode


def _stored(row: Sequence[Any]) -> CacheEntry:
    id, url, method, status, asked_at, came_at, sent, fields, body = row
    return CacheEntry(
        id=id,
        url=url,
        method=method,
        status=status,
        asked_at=asked_at,
        came_at=came_at,
        sent=_decode_fields(sent),
        fields=_decode_fields(fields),
        body=body,
    )
