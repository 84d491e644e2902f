"""Files and folders that survive a power cut: the content and the name are both on the disk.

The system keeps written data in memory. ``fsync`` of a file writes the file's content to the disk, and ``fsync`` of the
folder writes the file's name. A folder's own name is stored in the parent folder. All functions of this module block.
On a file system without ``fsync`` (some network disks), they skip this call.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["check_journal", "make_folder", "replace_file", "sync_content", "sync_file", "sync_folder", "write_file"]


_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")  # follows the name of another file in an SQLite journal (pager.c)


def check_journal(database: Path) -> None:
    """Raise OSError if the rollback journal of an SQLite database names another file, which SQLite would delete.

    Only attached databases have such a journal, and trawl's databases are never attached.
    """
    journal = database.with_name(f"{database.name}-journal")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL_END)))
        if file.read() == _JOURNAL_END:
            raise OSError(f"{journal.name} names another file, which SQLite would delete: remove {journal.name}")


def sync_file(descriptor: int) -> None:
    """Wait until an open file is on the disk. After an OSError, data written since the last call may be lost."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_content(path: Path) -> None:
    """Wait until the file at ``path`` is on the disk, even if another process wrote it. Raises OSError."""
    with path.open("rb+") as file:
        sync_file(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in ``folder`` are on the disk, after files were made, moved or removed. Raises OSError."""
    if sys.platform == "win32":  # Windows can't open a folder
        return
    with suppress(PermissionError):  # the folder may be writable but not readable
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with the permissions ``mode`` and its missing parents, and sync their names. Raises OSError."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def replace_file(new: Path, path: Path) -> None:
    """Move ``new``, whose content is on the disk, to ``path``, and sync the name. Raises OSError."""
    os.replace(new, path)
    sync_folder(path.parent)


def write_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write ``content`` to the disk at ``path``, completely or not at all. Replaces an existing file.

    ``mode`` is applied before the process's umask. After an OSError, the previous file is kept.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):  # a killed process with the same id may have left the file
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
