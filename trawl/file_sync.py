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
    """Check that the rollback journal of an SQLite database names no other file, because SQLite would delete that file.

    Only attached databases have such a journal, and trawl's databases are never attached.

    Raises:
        OSError: If the journal names another file.
    """
    journal = database.with_name(f"{database.name}-journal")
    if not journal.is_file():
        return
    with journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL_END)))
        if file.read() == _JOURNAL_END:
            raise OSError(f"{journal.name} names another file, which SQLite would delete: remove {journal.name}")


def sync_file(descriptor: int) -> None:
    """Wait until the content of an open file is on the disk.

    Raises:
        OSError: If the disk failed. Data written since the last call may be lost.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_content(path: Path) -> None:
    """Wait until the content of the file at ``path`` is on the disk, even if another process wrote it.

    Raises:
        OSError: If the file can't be opened, or the disk failed.
    """
    with path.open("rb+") as file:
        sync_file(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in ``folder`` are on the disk, after files were made, moved or removed.

    Raises:
        OSError: If the disk failed.
    """
    if sys.platform == "win32":  # Windows can't open a folder
        return
    with suppress(PermissionError):  # the folder may be writable but not readable
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and wait until their names are on the disk.

    Args:
        folder: The folder, which may exist already.
        mode: Permissions of the folder itself.

    Raises:
        OSError: If a folder can't be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def replace_file(new: Path, path: Path) -> None:
    """Move ``new``, whose content is on the disk, to ``path``, and wait until the name is on the disk.

    Raises:
        OSError: If the file can't be moved.
    """
    os.replace(new, path)
    sync_folder(path.parent)


def write_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write ``content`` to the disk at ``path``, completely or not at all. Replaces an existing file.

    Args:
        path: The file, in an existing folder.
        content: The complete content.
        mode: Permissions of the file, before the process's umask is applied.

    Raises:
        OSError: If the file can't be written. The previous file is kept.
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
