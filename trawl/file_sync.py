"""Files and folders that are there after a power cut: what was written is on the disk itself, and under its name.

A file that was written is in the system's memory; ``fsync`` of the file has its content on the disk, and ``fsync`` of
the folder that it is in has its name there. A folder's own name is in the folder above it. All functions block, and do
what the file system can: one that knows no ``fsync`` (some network disks) is taken as it is.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["check_journal", "make_folder", "replace_file", "sync_content", "sync_file", "sync_folder", "write_file"]


_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")  # of SQLite's journals, after a name (pager.c, readSuperJournal)


def check_journal(database: Path) -> None:
    """Check that the rollback journal beside an SQLite database names no other file: SQLite would delete that file.

    A database that is not attached to others, as all of ours, never has such a journal.

    Raises:
        OSError: It names one.
    """
    journal = database.with_name(f"{database.name}-journal")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL_END)))
        if file.read() == _JOURNAL_END:
            raise OSError(f"{journal.name} names another file, which SQLite would delete: remove it")


def sync_file(descriptor: int) -> None:
    """Return when what was written to an open file is on the disk.

    Raises:
        OSError: The disk failed: what was written since the last call may be lost.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_content(path: Path) -> None:
    """Return when what was written to the file at ``path`` is on the disk, whatever process wrote it.

    Raises:
        OSError: It can't be opened, or the disk failed.
    """
    with path.open("rb+") as file:
        sync_file(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the names in ``folder`` are on the disk: files made, moved and removed.

    Raises:
        OSError: The disk failed.
    """
    if sys.platform == "win32":  # where a folder can't be opened
        return
    with suppress(PermissionError):  # a folder that may be written to and not read
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those that lead to it, where they are not there; their names are on the disk then.

    Args:
        folder: May be there already.
        mode: Of the folder itself.

    Raises:
        OSError: It can't be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def replace_file(new: Path, path: Path) -> None:
    """Move ``new``, whose content is on the disk, to ``path``, and return when its name is, too.

    Raises:
        OSError: It can't be moved.
    """
    os.replace(new, path)
    sync_folder(path.parent)


def write_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file with ``content`` at ``path``, in the place of one that is there: whole or not at all, on the disk.

    Args:
        path: In a folder that is there.
        content: All of it.
        mode: Its permissions, before the process's umask takes some away.

    Raises:
        OSError: It can't be written; what was there before is there still.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):  # of a process with this number that was killed; with other permissions maybe
        new.unlink()
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
            file.flush()
            sync_file(file.fileno())
        replace_file(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
