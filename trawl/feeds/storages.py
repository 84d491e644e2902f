"""Storages of feeds. A file can be truncated and continued, but a stream can't. All calls block.

The methods raise the system's errors (``OSError``). The feed adds its name to the message.

The objects of a store (S3, and all other stores that fsspec supports) can't be continued. During the crawl, such a feed
is a local file. When the feed or a batch has ended, the file is uploaded to the store. If the upload fails, the local
file stays, and the error names it.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import attrs
import trio

from trawl import file_sync
from trawl.blocking import is_interrupted
from trawl.errors import FeedError, SettingsError
from trawl.feeds.options import FeedOptions
from trawl.file_sync import sync_file, sync_folder
from trawl.observe import printable

__all__ = [
    "FeedStorage",
    "FileStorage",
    "PipeStorage",
    "RemoteFile",
    "StreamStorage",
    "TerminalStorage",
    "TextStorage",
    "make_folder",
    "open_standard_output",
    "open_storage",
    "open_store",
    "store_of",
]

logger: logging.Logger = logging.getLogger("trawl.feeds")

_EXTRAS = {"s3": "s3", "s3a": "s3"}


@attrs.frozen
class RemoteFile:
    """The local file of a feed for a store, the store as an fsspec file system, and the path in the store."""

    options: FeedOptions
    local: Path
    files: Any
    target: str

    def upload(self) -> None:
        """Upload the file to the store, and remove the local file, which stays if this fails. Blocks."""
        try:
            try:
                self.files.put_file(str(self.local), self.target)
            except FileNotFoundError:  # stores without folders may refuse to create a folder
                self.files.makedirs(self.target.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(self.local), self.target)
        except Exception as error:  # the store's library may raise any exception
            uri = self.options.uri
            raise FeedError(f"feed {uri}: it can't be uploaded, and is kept in {self.local}: {error}", uri) from error
        self.local.unlink(missing_ok=True)


def store_of(options: FeedOptions) -> tuple[Any, str]:
    """Return a feed's store as an fsspec file system, and the path in it. May block, but connects to no server."""
    uri = options.uri
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        files, target = url_to_fs(uri, **options.storage)
    except ImportError as error:
        extra = _EXTRAS.get(uri.partition("://")[0].lower(), "fsspec")
        why = f"feed {uri}: needs the extra {extra}: pip install 'trawl-crawler[{extra}]' ({error})"
        raise SettingsError(why, "FEEDS") from error
    except (ValueError, TypeError) as error:
        raise FeedError(f"feed {uri}: {error}", uri) from error
    return files, target


def open_store(options: FeedOptions) -> RemoteFile:
    """Open the store of a feed, and create the local file to write during the crawl. Blocks."""
    uri = options.uri
    files, target = store_of(options)
    try:
        is_there = not options.overwrite and files.exists(target)
    except Exception as error:  # the store's library may raise any exception
        raise FeedError(f"feed {uri}: the store can't be used: {error}", uri) from error
    if is_there:
        raise FeedError(f"feed {uri}: it exists, and a store's objects can't be continued; overwrite it", uri)
    try:
        handle, name = tempfile.mkstemp(prefix="trawl-", suffix=f".{options.format}", dir=options.folder)
    except OSError as error:
        raise FeedError(f"feed {uri}: FEED_TEMPDIR: {error}", uri) from error
    os.close(handle)
    local = Path(name)
    return RemoteFile(attrs.evolve(options, local=local, overwrite=True), local, files, target)


if sys.platform != "win32":
    import fcntl


PIPE_WAIT = 0.1
"""Maximum seconds for which a write waits for the reader of a pipe. It is short, so that a crawl can be cancelled."""


class FeedStorage:
    """The destination of a feed's bytes. This base class is the storage of a feed that is not open yet."""

    def write(self, position: int, content: memoryview) -> int:
        """Write ``content`` at ``position``, or only its start if it would take long. Returns the number of bytes."""
        raise ValueError("it is not open")

    def close(self) -> None:
        """Close the storage, if it is owned. A second call does nothing."""


class FileStorage(FeedStorage):
    """A regular file, locked by this crawl.

    If two crawls wrote to one file, they would overwrite each other's records. So the file is locked while it is open
    (an advisory lock with ``flock``; not on Windows).
    """

    def __init__(self, path: Path) -> None:
        """Open or create ``path`` for reading and writing, without changing its content."""
        self.path = path
        self.is_new: bool = not path.exists()
        # Whether the file's name is certainly on the disk. False until the first sync, even for an existing file,
        # because an earlier process may have created the file recently.
        self._is_named = False
        self._file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666), "r+")
        try:
            _lock(self._file.fileno())
        except OSError:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def reader(self) -> io.BufferedReader:
        """Return a reader. Call ``detach()`` on it at the end, because closing the reader would close the file."""
        return io.BufferedReader(self._file)

    def write(self, position: int, content: memoryview) -> int:
        """Write at ``position``, and return the number of bytes, which is less only if the disk is full."""
        self._file.seek(position)
        return self._file.write(content) or 0

    def cut(self, position: int) -> None:
        """Truncate the file at ``position``."""
        self._file.truncate(position)

    def sync(self) -> None:
        """Wait until all written bytes and the file's name are on the disk itself."""
        sync_file(self._file.fileno())
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def close(self) -> None:
        """Close the file, which also releases the lock."""
        self._file.close()

    def remove(self) -> None:
        """Close the file and delete it."""
        self.close()
        self.path.unlink(missing_ok=True)


class StreamStorage(FeedStorage):
    """A pipe, a terminal or a device, written through its descriptor without a buffer.

    A blocked thread can't be cancelled. So a write passes only as many bytes as the pipe has room for. If the pipe has
    no room, because its reader does not read, the write returns after ``PIPE_WAIT`` seconds.
    """

    def __init__(self, descriptor: int, *, is_owned: bool) -> None:
        """Write to ``descriptor``. If ``is_owned``, :meth:`close` closes it."""
        self._descriptor = descriptor
        self._is_owned = is_owned
        self._poll: select.poll | None = None
        if hasattr(select, "poll") and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)

    def write(self, position: int, content: memoryview) -> int:
        """Write as many bytes as the stream has room for, and return their number. The position is ignored."""
        if self._poll is None:
            return os.write(self._descriptor, content)
        done = 0
        while done < len(content) and self._poll.poll(PIPE_WAIT * 1000):
            try:  # for a pipe, POLLOUT means room for PIPE_BUF bytes, so more bytes could block
                done += os.write(self._descriptor, content[done : done + select.PIPE_BUF])
            except BlockingIOError:  # another process has set the pipe to non-blocking
                break
        return done

    def close(self) -> None:
        """Close the descriptor if this object owns the descriptor."""
        if self._is_owned:
            self._is_owned = False
            os.close(self._descriptor)


class PipeStorage(FeedStorage):
    """A named pipe. Opening it waits until the pipe has a reader, a signal comes or the caller is cancelled.

    Waiting in the system's ``open`` is not possible, because it would run in a thread, which a signal does not
    interrupt.
    """

    def __init__(self, path: Path) -> None:
        """Wait until ``path`` has a reader, and open it. After a signal, return; a later write opens it."""
        self._path = path
        self._stream: StreamStorage | None = None
        if self._has_reader():
            return
        logger.info("feed %s: it is a named pipe without a reader: waiting for one", path)
        while not self._has_reader() and not is_interrupted():
            with suppress(RuntimeError):  # raised in a simulation, where this is not a Trio thread
                trio.from_thread.check_cancelled()
            time.sleep(PIPE_WAIT)

    def write(self, position: int, content: memoryview) -> int:
        """Write as many bytes as the pipe has room for. Write nothing while it has no reader."""
        if self._stream is None and not self._has_reader():
            time.sleep(PIPE_WAIT)
            return 0
        assert self._stream is not None
        return self._stream.write(position, content)

    def close(self) -> None:
        """Close the storage. A second call does nothing."""
        if self._stream is not None:
            self._stream.close()

    def _has_reader(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        self._stream = StreamStorage(descriptor, is_owned=True)
        return True


class TerminalStorage(StreamStorage):
    """A terminal. Control characters from pages are escaped, because they could change what the user sees."""

    def __init__(self, descriptor: int) -> None:
        """Write to ``descriptor``, which stays open."""
        super().__init__(descriptor, is_owned=False)
        self._spelled = b""
        self._taken = 0

    def write(self, position: int, content: memoryview) -> int:
        """Write what the terminal has room for. Returns 0 until all bytes of ``content`` are written."""
        if not self._spelled:
            text = bytes(content).decode("utf-8", "backslashreplace").replace("\r\n", "\n")
            self._spelled, self._taken = printable(text, keeps_lines=True, is_content=True).encode(), len(content)
        done = super().write(position, memoryview(self._spelled))
        self._spelled = self._spelled[done:]
        return 0 if self._spelled else self._taken


class TextStorage(FeedStorage):
    """A standard output without a file descriptor, for example in a notebook, or if the output is captured."""

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``, which stays open."""
        self._stream = stream

    def write(self, position: int, content: memoryview) -> int:
        """Write all bytes."""
        binary = getattr(self._stream, "buffer", None)
        if binary is not None:
            binary.write(bytes(content))
        else:  # the bytes are whole records, so no character is split
            self._stream.write(bytes(content).decode("utf-8", "replace"))
        self._stream.flush()
        return len(content)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they are missing; NotADirectoryError if there is a file of this name."""
    try:
        file_sync.make_folder(folder)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def open_storage(path: Path) -> FileStorage | StreamStorage | PipeStorage:
    """Open the file at ``path``, and create missing folders. A device or a named pipe is opened as a stream."""
    make_folder(path.parent)
    if path.is_fifo():
        return PipeStorage(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        return StreamStorage(os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)), is_owned=True)
    return FileStorage(path)


def open_standard_output() -> StreamStorage | TextStorage:
    """Open the standard output of this process; FeedError if there is none or it is closed."""
    stream = sys.stdout
    # The command line replaces a closed standard output with os.devnull.
    if stream is None or stream.closed or getattr(stream, "name", "") == os.devnull:
        raise FeedError("feed -: there is no standard output", "-")
    stream.flush()  # earlier output must come before the items
    try:
        return TerminalStorage(stream.fileno()) if stream.isatty() else StreamStorage(stream.fileno(), is_owned=False)
    except (OSError, AttributeError):
        return TextStorage(stream)


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError("another crawl is writing to it") from None
    except OSError:
        return  # the file system has no locks
