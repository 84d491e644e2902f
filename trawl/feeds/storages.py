"""Storages of a feed: a file, which can be cut and continued, or a stream, which can't. All calls block.

Errors are the system's own (``OSError``); the feed names them.

The objects of a store (S3, and all that fsspec knows) can't be continued. Such a feed is a local file while the crawl
runs, and is put into the store when the feed, or a batch of it, has ended. If that fails, the file stays, and the error
names it.
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
from typing import Any, Protocol, TextIO

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
    "LazyStorage",
    "PipeStorage",
    "RemoteFile",
    "StreamStorage",
    "TerminalStorage",
    "TextStorage",
    "make_folder",
    "open_standard_output",
    "open_storage",
    "open_store",
]

logger: logging.Logger = logging.getLogger("trawl.feeds")

_EXTRAS = {"s3": "s3", "s3a": "s3"}


@attrs.frozen
class RemoteFile:
    """The local file of a feed for a store.

    Attributes:
        options: Those of the feed, with the file that is written.
        local: That file.
        files: The store: a file system of fsspec's.
        target: The path there.
    """

    options: FeedOptions
    local: Path
    files: Any
    target: str

    def upload(self) -> None:
        """Put the file into the store, and remove it here. Blocks.

        Raises:
            FeedError: It can't be put there; the file stays.
        """
        try:
            try:
                self.files.put_file(str(self.local), self.target)
            except FileNotFoundError:  # a store with folders; in one without, making some may not be allowed
                self.files.makedirs(self.target.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(self.local), self.target)
        except Exception as error:  # of the store's own library, whichever that is
            uri = self.options.uri
            raise FeedError(f"feed {uri}: it can't be stored, and is kept as {self.local}: {error}", uri) from error
        self.local.unlink(missing_ok=True)


def open_store(options: FeedOptions) -> RemoteFile:
    """Open the store of a feed, and a local file to write until it is complete. Blocks.

    Raises:
        FeedError: The store can't be used, or has such an object, and the feed does not overwrite.
        SettingsError: Its library is not installed.
    """
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
    try:
        is_there = not options.overwrite and files.exists(target)
    except Exception as error:  # of the store's own library, whichever that is
        raise FeedError(f"feed {uri}: the store can't be used: {error}", uri) from error
    if is_there:
        raise FeedError(f"feed {uri}: it is there already, and a store's objects can't be continued; overwrite it", uri)
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
"""Seconds that a write waits for a pipe's reader before it comes back, so that a crawl can be cancelled meanwhile."""


class FeedStorage(Protocol):
    """Destination of bytes."""

    @property
    def is_seekable(self) -> bool:
        """True for a file that can be read, cut and written at a position."""
        ...

    def write(self, position: int, content: memoryview) -> int:
        """Write at ``position`` as much of ``content`` as takes no long wait. Returns the number of bytes written."""
        ...

    def close(self) -> None:
        """Close it. A second call does nothing."""
        ...


class LazyStorage:
    """The storage of a feed that is not opened yet."""

    is_seekable = True

    def write(self, position: int, content: memoryview) -> int:
        """Raise ValueError: the feed must be opened first."""
        raise ValueError("it is not open")

    def close(self) -> None:
        """Do nothing."""


class FileStorage:
    """A regular file, held for this crawl alone.

    Two crawls that wrote to one file would overwrite each other's records, so the file is locked while it is open
    (advisory, ``flock``; not on Windows).
    """

    is_seekable = True

    def __init__(self, path: Path) -> None:
        """Open ``path``, or make it; nothing in it changes.

        Raises:
            OSError: It can't be opened for reading and writing.
        """
        self.path = path
        self.is_new: bool = not path.exists()
        self._is_named = False  # on the disk: an earlier process may have made it just before a cut
        self._file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666), "r+")
        try:
            _lock(self._file.fileno())
        except OSError:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Its size, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def reader(self) -> io.BufferedReader:
        """The file for reading; call ``detach()`` on it, which leaves the file open."""
        return io.BufferedReader(self._file)

    def write(self, position: int, content: memoryview) -> int:
        """Write at ``position``; fewer bytes than given only where the disk takes no more."""
        self._file.seek(position)
        return self._file.write(content) or 0

    def cut(self, position: int) -> None:
        """Cut away all from ``position`` on."""
        self._file.truncate(position)

    def sync(self) -> None:
        """Return when all that was written is on the disk itself, and the file's name with it."""
        sync_file(self._file.fileno())
        if not self._is_named:
            sync_folder(self.path.parent)
            self._is_named = True

    def close(self) -> None:
        """Close the file, which also gives the lock back."""
        self._file.close()

    def remove(self) -> None:
        """Close the file and delete it."""
        self.close()
        self.path.unlink(missing_ok=True)


class StreamStorage:
    """A pipe, a terminal, a device: by its descriptor, with no buffer between.

    A write to a pipe whose reader does not read would block for ever, and a blocked thread can't be cancelled. So a
    pipe is given only as much as it has room for, and a write without room comes back after ``PIPE_WAIT``.
    """

    is_seekable = False

    def __init__(self, descriptor: int, *, is_owned: bool) -> None:
        """Write to ``descriptor``; close it at the end if it ``is_owned``."""
        self._descriptor = descriptor
        self._is_owned = is_owned
        self._poll: select.poll | None = None
        if hasattr(select, "poll") and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)

    def write(self, position: int, content: memoryview) -> int:
        """Write what there is room for; the position is where the stream is anyway."""
        if self._poll is None:
            return os.write(self._descriptor, content)
        done = 0
        while done < len(content) and self._poll.poll(PIPE_WAIT * 1000):
            try:  # room for PIPE_BUF bytes is what POLLOUT means for a pipe; more could block
                done += os.write(self._descriptor, content[done : done + select.PIPE_BUF])
            except BlockingIOError:  # the pipe was set to non-blocking by its other owner
                break
        return done

    def close(self) -> None:
        """Close the descriptor, if it is ours."""
        if self._is_owned:
            self._is_owned = False
            os.close(self._descriptor)


class PipeStorage:
    """A named pipe. Opening it waits for its reader, until a signal or a cancel.

    The system's own open would wait in a thread, where no signal ends it.
    """

    is_seekable = False

    def __init__(self, path: Path) -> None:
        """Open ``path`` when it has a reader. After a signal it takes nothing until then.

        Raises:
            OSError: It can't be opened for writing.
            trio.Cancelled: The caller was cancelled.
        """
        self._path = path
        self._stream: StreamStorage | None = None
        if self._has_reader():
            return
        logger.info("feed %s: it is a named pipe without a reader: waiting for one", path)
        while not self._has_reader() and not is_interrupted():
            with suppress(RuntimeError):  # in a simulation this is not a thread of Trio's
                trio.from_thread.check_cancelled()
            time.sleep(PIPE_WAIT)

    def write(self, position: int, content: memoryview) -> int:
        """Write what there is room for; nothing while it has no reader."""
        if self._stream is None and not self._has_reader():
            time.sleep(PIPE_WAIT)
            return 0
        assert self._stream is not None
        return self._stream.write(position, content)

    def close(self) -> None:
        """Close it. A second call does nothing."""
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
    """A terminal, on which items are looked at: control characters that pages have put into them are spelled out."""

    def __init__(self, descriptor: int) -> None:
        """Write to ``descriptor``, which stays open."""
        super().__init__(descriptor, is_owned=False)
        self._spelled = b""
        self._taken = 0

    def write(self, position: int, content: memoryview) -> int:
        """Write as much as there is room for; nothing counts as written before all of it is."""
        if not self._spelled:
            text = bytes(content).decode("utf-8", "backslashreplace").replace("\r\n", "\n")
            self._spelled, self._taken = printable(text, keeps_lines=True, is_content=True).encode(), len(content)
        done = super().write(position, memoryview(self._spelled))
        self._spelled = self._spelled[done:]
        return 0 if self._spelled else self._taken


class TextStorage:
    """A standard output without a descriptor: a notebook's, or one that was replaced to catch what is printed."""

    is_seekable = False

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``, which stays open."""
        self._stream = stream

    def write(self, position: int, content: memoryview) -> int:
        """Write all of it."""
        binary = getattr(self._stream, "buffer", None)
        if binary is not None:
            binary.write(bytes(content))
        else:  # a batch holds whole records, so no character is torn
            self._stream.write(bytes(content).decode("utf-8", "replace"))
        self._stream.flush()
        return len(content)

    def close(self) -> None:
        """Nothing: the stream is not ours."""


def make_folder(folder: Path) -> None:
    """Make a folder, and those that lead to it, where they are not there.

    Raises:
        OSError: It can't be made; NotADirectoryError where a file is in its place.
    """
    try:
        file_sync.make_folder(folder)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def open_storage(path: Path) -> FileStorage | StreamStorage | PipeStorage:
    """Open the file at ``path``, creating its folders; a device or named pipe as a stream.

    Opening a named pipe waits for its reader, until a signal comes or the caller is cancelled.

    Raises:
        OSError: It can't be opened for writing.
    """
    make_folder(path.parent)
    if path.is_fifo():
        return PipeStorage(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        return StreamStorage(os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)), is_owned=True)
    return FileStorage(path)


def open_standard_output() -> StreamStorage | TextStorage:
    """Open the standard output of this process.

    Raises:
        FeedError: There is none, or it is closed.
    """
    stream = sys.stdout
    if stream is None or stream.closed or getattr(stream, "name", "") == os.devnull:  # opened in its place
        raise FeedError("feed -: there is no standard output", "-")
    stream.flush()  # what was printed before comes before
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
        return  # a file system without locks
