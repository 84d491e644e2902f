"""Stored responses, in one SQLite file per spider. All calls block and may raise ``sqlite3.Error``.

Bodies are in a separate table, so that a lookup does not read them. Several processes may use one file, but only one
process writes at a time. Each row has a digest. A row counts as damaged if it does not match its digest, or has values
that :class:`Store` never writes. A damaged row is treated as missing.
"""

from __future__ import annotations

import math
import re
import sqlite3
import threading
import zlib
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import attrs
import msgspec

from trawl.file_sync import check_journal
from trawl.http import Headers, Request, Response, normalize_url, without_fragment
from trawl.http.headers import field_bytes

__all__ = ["CacheEntry", "DamagedError", "Fields", "NewEntry", "Store", "make_entry", "make_response"]

Fields = tuple[tuple[str, str], ...]
"""Names and values of headers, in order."""


@attrs.frozen(kw_only=True)
class CacheEntry:
    """A stored response without its body.

    Attributes:
        id: Number of the response in the store; 0 before it is stored.
        sent: Headers of the request as sent, for ``Vary``.
        fields: Headers of the response.
        asked_at: Time of the request, in epoch seconds.
        came_at: Time of the response, in epoch seconds.
        body: The body if it was read with the response; None if :meth:`Store.body` must read it.
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
        """The response's headers by name. Their syntax is not checked, because servers may send invalid headers."""
        return Headers.from_wire((name.encode("latin-1"), field_bytes(value)) for name, value in self.fields)


def make_entry(request: Request, response: Response, *, asked_at: float, came_at: float) -> CacheEntry:
    """Return the entry for a response. ``request`` is the request that was sent. The times are epoch seconds."""
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
    """Return the response to ``request`` from the cache, with the flag ``cached``."""
    url = without_fragment(stored.url)  # earlier releases stored the fragment
    return Response(url, stored.status, stored.headers, body, request, flags=["cached"])


VERSION = 2

_UNCHECKED = 1  # version number of the previous format, which had no digests

_BUSY_SECONDS = 10.0  # maximum seconds that a write waits for another process

_SCHEMA = """
CREATE TABLE IF NOT EXISTS response (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, url TEXT NOT NULL, method TEXT NOT NULL, status INTEGER NOT NULL,
    asked_at REAL NOT NULL, came_at REAL NOT NULL, sent BLOB NOT NULL, fields BLOB NOT NULL, digest BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS response_key ON response (key);
CREATE INDEX IF NOT EXISTS response_url ON response (url);
CREATE TABLE IF NOT EXISTS body (
    id INTEGER PRIMARY KEY, is_compressed INTEGER NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL
);
"""

READ_ALONG_BYTES = 65_536
"""Maximum size on disk of a body that is read together with its response, because another call would take longer."""

_COLUMNS = "response.id, url, method, status, asked_at, came_at, sent, fields, response.digest"

_FIND = f"SELECT {_COLUMNS}, NULL, NULL, NULL FROM response WHERE key = ?"

_FIND_WITH_BODY = (
    f"SELECT {_COLUMNS}, is_compressed, content, body.digest FROM response LEFT JOIN body"
    f" ON body.id = response.id AND NOT is_compressed AND length(content) <= {READ_ALONG_BYTES} WHERE key = ?"
)

_METHOD = re.compile(r"[!-~]+")

NewEntry = tuple[bytes, CacheEntry, bytes, Callable[[CacheEntry], bool]]
"""A response to store: its key, the response, its body, and a function that selects the stored responses to replace."""


class DamagedError(sqlite3.DatabaseError):
    """A row was changed after it was written."""


class Store:
    """The responses of one file, which is created with its folder if missing."""

    def __init__(self, path: Path, *, compresses: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_journal(path)
        self._compresses = compresses
        self._lock = threading.Lock()  # many threads share the connection, but only one at a time may use it
        self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = bytes  # also works if text is damaged
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _UNCHECKED, VERSION):
            raise sqlite3.DatabaseError(f"it is of version {version}, and only {VERSION} is known")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # a power cut loses only the latest writes
        if version == _UNCHECKED:
            self._connection.executescript("DROP TABLE IF EXISTS response; DROP TABLE IF EXISTS body;")
        self._connection.executescript(_SCHEMA)
        if self._connection.execute("SELECT 1 FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchone():
            raise sqlite3.DatabaseError("it has a trigger or a view, which a cache never has")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def find(self, keys: Sequence[bytes]) -> tuple[list[list[CacheEntry]], int]:
        """Return the responses stored under each key, with small plain bodies, and the number of damaged rows."""
        with self._lock:
            found = [[_stored(key, row) for row in self._connection.execute(_FIND_WITH_BODY, (key,))] for key in keys]
        whole = [[each for each in rows if each is not None] for rows in found]
        return whole, sum(map(len, found)) - sum(map(len, whole))

    def body(self, stored: CacheEntry, max_bytes: int = 0) -> bytes | None:
        """Return the body of a response; None if it was removed.

        Raises DamagedError if the row is damaged, or the decompressed body is larger than ``max_bytes`` (0: no limit).
        """
        limit = max_bytes or _MAX_BYTES
        with self._lock:
            row = self._connection.execute(
                "SELECT is_compressed, CASE WHEN length(content) <= ? THEN content END, digest FROM body WHERE id = ?",
                (limit, stored.id),
            ).fetchone()
        return None if row is None else _body(stored.url, row, limit)

    def put_many(self, entries: Sequence[NewEntry]) -> None:
        """Store responses, and remove the responses that they replace, in one transaction."""
        contents = [zlib.compress(body) if self._compresses else body for _, _, body, _ in entries]
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for (key, stored, _, replaces), content in zip(entries, contents, strict=True):
                older = [(row[0], _stored(key, row)) for row in self._connection.execute(_FIND, (key,))]
                self._remove([id for id, each in older if each is None or replaces(each)])
                values = _values(key, stored)
                cursor = self._connection.execute(
                    "INSERT INTO response (key, url, method, status, asked_at, came_at, sent, fields, digest)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*values, _digest(*values)),
                )
                is_compressed = int(self._compresses)
                self._connection.execute(
                    "INSERT INTO body (id, is_compressed, content, digest) VALUES (?, ?, ?, ?)",
                    (cursor.lastrowid, is_compressed, content, _digest(stored.url, is_compressed, content)),
                )

    def refresh(self, key: bytes, stored: CacheEntry) -> None:
        """Update the headers and times of a response."""
        values = _values(key, stored)
        *_, asked_at, came_at, _, fields = values
        with self._lock:
            self._connection.execute(
                "UPDATE response SET asked_at = ?, came_at = ?, fields = ?, digest = ? WHERE id = ?",
                (asked_at, came_at, fields, _digest(*values), stored.id),
            )

    def discard(self, keys: Sequence[bytes]) -> None:
        """Remove the responses stored under each key."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for key in keys:
                self._remove([row[0] for row in self._connection.execute(_FIND, (key,))])

    def forget(self, url: str) -> int:
        """Remove the responses of a URL, and return the number of removed responses."""
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


_MAX_BYTES = 2**31 - 1  # SQLite can't store larger values

_decode_fields = msgspec.json.Decoder(Fields).decode


def _values(key: bytes, stored: CacheEntry) -> tuple[Any, ...]:
    """Return the columns of a response, without its id and its digest."""
    times = float(stored.asked_at), float(stored.came_at)
    fields = msgspec.json.encode(stored.sent), msgspec.json.encode(stored.fields)
    return key, stored.url, stored.method, stored.status, *times, *fields


def _digest(*values: bytes | str | float) -> bytes:
    digest = blake2b(digest_size=16)
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode()
        digest.update(b"%d " % len(part) + part)
    return digest.digest()


def _stored(key: bytes, row: Sequence[Any]) -> CacheEntry | None:
    """Return the response of a row; None if the row is damaged. If only the body is damaged, the body is left out."""
    id, url, method, status, asked_at, came_at, sent, fields, digest, is_compressed, content, body_digest = row
    try:
        url, method = url.decode(), method.decode()
        if digest != _digest(key, url, method, status, asked_at, came_at, sent, fields):
            return None
        stored = CacheEntry(
            id=id,
            url=url,
            method=method,
            status=status,
            asked_at=asked_at,
            came_at=came_at,
            sent=_decode_fields(sent),
            fields=_decode_fields(fields),
            body=content if body_digest == _digest(url, is_compressed, content) else None,
        )
        Headers(stored.sent), stored.headers, normalize_url(url)
        is_right = 100 <= status <= 999 and math.isfinite(asked_at) and math.isfinite(came_at)
    except (msgspec.MsgspecError, UnicodeError, ValueError, TypeError, AttributeError):  # a value has another type
        return None
    return stored if is_right and _METHOD.fullmatch(method) else None


def _body(url: str, row: Sequence[Any], max_bytes: int) -> bytes:
    is_compressed, content, digest = row
    if not isinstance(content, bytes) or digest != _digest(url, is_compressed, content):
        raise DamagedError("a stored body is damaged, or larger than DOWNLOAD_MAXSIZE")
    if not is_compressed:
        return content
    decoder = zlib.decompressobj()
    try:
        body = decoder.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise DamagedError(f"a stored body is damaged: {error}") from error
    if not decoder.eof or len(body) > max_bytes:
        raise DamagedError("a stored body has no end, or is larger than DOWNLOAD_MAXSIZE")
    return body
