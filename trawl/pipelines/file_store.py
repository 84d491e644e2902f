"""Stores of downloaded files (a folder or a file system of fsspec), and partial files. The methods of stores block.

A store also contains a record for each URL, with the file, the time, and the validators that the server sent.

Theory of operation of :class:`IncompleteFile`. Two tasks use the file. One task reads the body from the connection and
writes it to the file. The pipeline's task waits for the response, moves the file into the store and closes it. The
pipeline's task may be cancelled at any time, and then it closes the file too. So all operations hold one lock, and no
operation starts after the file is closed. Otherwise, a write could create a temporary file after its removal. Digests
are computed in the thread that writes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec
import trio

from trawl.blocking import Blocking
from trawl.errors import BodyNotWritten, SettingsError
from trawl.file_sync import make_folder, replace_file, sync_content, sync_file, sync_folder
from trawl.http import FileResponse, Response

__all__ = [
    "DISCARD_GRACE",
    "FileRecord",
    "FileStore",
    "IncompleteFile",
    "LocalFileStore",
    "RemoteFileStore",
    "digest_of",
    "open_file_store",
]


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of a URL's file."""

    url: str
    path: str  # relative to the store
    checksum: str  # MD5 of the downloaded body, in hexadecimal
    fetched_at: float  # time of the last request to the server, in seconds since the epoch (UTC)
    etag: str = ""  # of the response (RFC 9110, section 8.8.3), or ""
    last_modified: str = ""  # of the response (RFC 9110, section 8.8.2), or ""


class FileStore(ABC):
    """Stores files by path, and records of their URLs."""

    def find(self, url: str) -> FileRecord | None:
        """Return the record of a URL if its file exists and is not empty; else None."""
        try:
            known = _decoded(self._read(_note(url)), url)
            return None if known is None or self._size(known.path) == 0 else known
        except OSError:
            return None

    def remember(self, known: FileRecord) -> None:
        """Save the record of a URL."""
        self.put(_note(known.url), msgspec.json.encode(known))

    def stat_file(self, path: str, info: object = None, since: float = 0.0) -> dict[str, Any]:
        """Return ``last_modified`` (epoch seconds) and ``checksum`` (MD5); {} if the file is older than ``since``."""
        new_md5 = partial(hashlib.md5, usedforsecurity=False)
        try:
            changed_at, file = self.open(path)
            with file:  # read the file in parts, because it may be larger than memory
                md5 = hashlib.file_digest(file, new_md5).hexdigest() if changed_at >= since else ""
        except OSError:
            return {}
        return {} if md5 in ("", new_md5().hexdigest()) else {"last_modified": changed_at, "checksum": md5}

    def persist_file(
        self, path: str, buf: BytesIO, info: object = None, meta: object = None, headers: object = None
    ) -> None:
        """Store a file, for pipelines written for Scrapy. ``info``, ``meta`` and ``headers`` are ignored."""
        self.put(path, buf.getvalue())

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Store a file, whole or not at all and safe from a power cut; ValueError for a path out of the store."""

    @abstractmethod
    def open(self, path: str) -> tuple[float, BufferedReader]:
        """Return the time of a file's last change, in seconds since the epoch, and the open file."""

    @abstractmethod
    def open_temporary(self) -> tuple[BinaryIO, Path]:
        """Create a temporary file on this machine. The caller must pass it to :meth:`put_file` or remove it."""

    @abstractmethod
    def put_file(self, path: str, temporary: Path) -> Path:
        """Store a file from :meth:`open_temporary` completely or not at all. Returns a path at which it can be read.

        If this fails, the temporary file is not removed. ValueError for a path that leads out of the store.
        """

    @abstractmethod
    def _read(self, path: str) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def _size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if the store does not know it."""


class LocalFileStore(FileStore):
    """Files in a folder."""

    def __init__(self, folder: Path) -> None:
        """Store files in ``folder``, which is created with the first file."""
        self._folder = folder

    def remember(self, known: FileRecord) -> None:
        """Save the record of a URL. If a power cut loses the record, the file is fetched again."""
        self._write(_note(known.url), BytesIO(msgspec.json.encode(known)), is_synced=False)

    def put(self, path: str, content: bytes) -> None:
        """Write a temporary file, move it to its path, and sync it to the disk."""
        self._write(path, BytesIO(content))

    def open(self, path: str) -> tuple[float, BufferedReader]:
        """Return the time of a file's last change, and the open file."""
        place = self._folder / check_path(path)
        return place.stat().st_mtime, place.open("rb")

    def open_temporary(self) -> tuple[BinaryIO, Path]:
        """Create a temporary file in the folder itself, so that moving it copies nothing."""
        make_folder(self._folder)
        return _temporary(self._folder)

    def put_file(self, path: str, temporary: Path) -> Path:
        """Move the file to its path, and sync it to the disk."""
        place = self._folder / check_path(path)
        make_folder(place.parent)
        os.chmod(temporary, 0o644)  # needed because only the owner may read a temporary file
        sync_content(temporary)
        try:
            replace_file(temporary, place)
        except OSError as error:
            # EXDEV means that the path's folder is on another disk, which is mounted or linked in the store.
            if error.errno != errno.EXDEV:
                raise
            with temporary.open("rb") as content:
                self._write(path, content)
            temporary.unlink()
        return place

    def _write(self, path: str, content: BinaryIO, *, is_synced: bool = True) -> None:
        place = self._folder / check_path(path)
        make_folder(place.parent)
        file, beside = _temporary(place.parent)
        try:
            with file:
                shutil.copyfileobj(content, file)
                file.flush()
                if is_synced:
                    sync_file(file.fileno())
            os.chmod(beside, 0o644)
            os.replace(beside, place)
        except BaseException:
            beside.unlink()
            raise
        if is_synced:
            sync_folder(place.parent)

    def _read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def _size(self, path: str) -> int | None:
        status = (self._folder / check_path(path)).stat()
        return status.st_size if stat.S_ISREG(status.st_mode) else 0


class RemoteFileStore(FileStore):
    """Files in a store of fsspec."""

    def __init__(self, files: Any, root: str) -> None:
        """Store files below ``root`` in a file system of fsspec."""
        self._files = files
        self._root = root.rstrip("/")

    def put(self, path: str, content: bytes) -> None:
        """Store an object."""
        self._files.pipe_file(self._place(path), content)

    def open(self, path: str) -> tuple[float, BufferedReader]:
        """Return the time of an object's last change, and the object, opened for reading in chunks."""
        place = self._place(path)
        try:
            changed_at: float = self._files.modified(place).timestamp()
        except NotImplementedError:
            raise FileNotFoundError(path) from None  # treat the file as missing, so that it is fetched
        return changed_at, self._files.open(place, "rb")

    def open_temporary(self) -> tuple[BinaryIO, Path]:
        """Create a temporary file in the system's folder."""
        return _temporary(None)

    def put_file(self, path: str, temporary: Path) -> Path:
        """Upload the file as an object, in chunks. The temporary file is kept."""
        self._files.put_file(str(temporary), self._place(path))
        return temporary

    def _read(self, path: str) -> bytes:
        content: bytes = self._files.cat_file(self._place(path))
        return content

    def _size(self, path: str) -> int | None:
        size: int | None = self._files.size(self._place(path))
        return size

    def _place(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"


def open_file_store(uri: str, options: dict[str, Any], setting: str) -> FileStore:
    """Open the store (a folder, ``file://...``, or a URL) that ``setting`` names; SettingsError if it can't be used."""
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return LocalFileStore(_folder(Path(uri), setting))
    if scheme.lower() == "file":
        return LocalFileStore(_folder(Path(rest), setting))
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        return RemoteFileStore(*url_to_fs(uri, **options))
    except ImportError as error:
        extra = "s3" if scheme.lower() == "s3" else "fsspec"
        raise SettingsError(
            f"{setting}: {uri} needs the extra {extra}: pip install 'trawl-crawler[{extra}]'", setting
        ) from error
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{setting}: {uri}: {error}", setting) from error


def _folder(path: Path, setting: str) -> Path:
    """Check that the folder ``path`` is writable or can be created, and return ``path``."""
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise SettingsError(f"{setting}: {str(nearest)!r} is not a folder", setting)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SettingsError(f"{setting}: {str(nearest)!r} may not be written to", setting)
    return path


def check_path(path: str) -> str:
    """Return the normalized form of a path below a store; raise ValueError if the path leads out of the store."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in path:
        raise ValueError(f"{path!r} is not a path below the store")
    return "/".join(parts)


def _temporary(folder: Path | None) -> tuple[BinaryIO, Path]:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    return open(handle, "wb"), Path(name)


def _note(url: str) -> str:
    return f".urls/{hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()}.json"


def _decoded(content: bytes, url: str) -> FileRecord | None:
    try:
        known = msgspec.json.decode(content, type=FileRecord)
        check_path(known.path)
    except (msgspec.DecodeError, ValueError):
        return None
    return known if known.url == url else None


DISCARD_GRACE = 5.0  # maximum seconds to wait for the disk when a temporary file is removed


class IncompleteFile:
    """Sink for one response body, which is written to a temporary file and later moved into the store."""

    def __init__(self, store: FileStore, blocking: Blocking) -> None:
        """Create the sink without a file. The first write creates the file."""
        self._store = store
        self._blocking = blocking
        self._lock = trio.Lock()
        self._file: BinaryIO | None = None
        self._temporary: Path | None = None
        self._readable: Path | None = None
        self._is_new = True
        self._is_closed = False
        self._size_bytes = 0
        self._digests: dict[str, Any] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes written since the start of the body."""
        return self._size_bytes

    def digest(self, name: str) -> str:
        """Return the ``sha1`` or ``md5`` of the written bytes, in hexadecimal."""
        return str(self._digests[name].hexdigest())

    def begin(self) -> None:
        """Start a new body. The next write contains its first bytes."""
        self._is_new = True

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write the next chunks in a thread, which cancelling waits for; BodyNotWritten if that fails. A checkpoint."""
        async with self._lock:
            if self._is_closed:
                raise BodyNotWritten("its response was given up")
            try:
                await self._blocking.run(self._write, pieces)
            except OSError as error:
                raise BodyNotWritten(f"its body can't be written: {error}") from error

    async def discard(self) -> None:
        """Remove the written data. Always a checkpoint."""
        async with self._lock:
            await self._blocking.run(self._remove)

    async def keep(self, path: str) -> None:
        """Move the file into the store. It can be read until this object is closed. Always a checkpoint."""
        async with self._lock:
            await self._blocking.run(self._keep, path)

    def open(self) -> BinaryIO:
        """Open the file for reading; raise ValueError if it no longer exists. Blocks."""
        if self._readable is not None:
            with suppress(FileNotFoundError):
                return self._readable.open("rb")
        raise ValueError("the body no longer exists: its file was moved or removed")

    async def aclose(self) -> None:
        """Remove the file unless it was kept, and refuse later writes. A shielded checkpoint if there is a file."""
        self._is_closed = True
        if self._temporary is not None or self._file is not None or self._lock.locked():
            with trio.move_on_after(DISCARD_GRACE, shield=True):
                await self.discard()
        self._readable = None

    # The following methods run in threads, under the lock.

    def _write(self, pieces: Sequence[bytes]) -> None:
        if self._is_new:
            self._remove()
            self._file, self._temporary = self._store.open_temporary()
            self._readable = self._temporary
            self._digests = {name: hashlib.new(name, usedforsecurity=False) for name in ("sha1", "md5")}
            self._is_new = False
        assert self._file is not None
        content = b"".join(pieces)
        for digest in self._digests.values():
            digest.update(content)
        self._file.write(content)
        self._file.flush()
        self._size_bytes += len(content)

    def _keep(self, path: str) -> None:
        if self._temporary is None or self._file is None:
            raise ValueError("the body no longer exists: its file was moved or removed")
        self._file.close()
        self._file = None
        self._readable = self._store.put_file(path, self._temporary)
        if self._readable != self._temporary:
            self._temporary = None

    def _remove(self) -> None:
        file, self._file = self._file, None
        temporary, self._temporary = self._temporary, None
        self._readable, self._size_bytes = None, 0
        if file is not None:
            with suppress(OSError):  # close() may raise an error, because it tries again to write buffered data
                file.close()
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def digest_of(response: Response, name: str) -> str:
    """Return the ``sha1`` or ``md5`` of a body, in hexadecimal. A body in a file is not read again."""
    sink = response.sink if isinstance(response, FileResponse) else None
    if isinstance(sink, IncompleteFile):
        return sink.digest(name)
    return hashlib.new(name, response.body, usedforsecurity=False).hexdigest()
