"""Checks a job's files before they are opened. Each file must belong to this user, and must not be a link.

If a job's file were a link, trawl, SQLite or a server would write to the target of the link.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from trawl.errors import JobError
from trawl.frontier.errors import job_error

__all__ = ["check_directory", "check_file", "close_to_others"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_file(job: Path, path: Path, *, is_private: bool = True, kind: int = stat.S_IFREG) -> bool:
    """Check a file or folder of a job without opening it, and return whether it exists.

    Raises JobError for a symbolic link, for several hard links, for another type than ``kind`` (``stat.S_IFMT``), and
    if ``is_private`` is true and another user owns the file or may write to it.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise job_error(job, error) from error
    wrong = _shared(status, kind) or (is_private and _open(status, job))
    if wrong:
        raise JobError(f"job {job}: {path.relative_to(job)} {wrong}", str(job))
    return True


def check_directory(job: Path) -> None:
    """Check that a job's directory belongs to this user, and that no other user may write to it."""
    try:
        status = os.stat(job)
    except OSError as error:
        raise job_error(job, error) from error
    if wrong := _open(status, job):
        raise JobError(f"job {job}: the directory {wrong}", str(job))


def close_to_others(directory: Path, *, is_empty: bool) -> None:
    """Remove other users' permissions on this user's directory if it is empty, otherwise warn about them."""
    with suppress(OSError):
        status = directory.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & _OTHERS:
            return
        if is_empty and status.st_uid == os.geteuid():
            directory.chmod(mode & ~_OTHERS)
        else:
            logger.warning(
                "job %s: other users of this machine can read it, including its cookies and passwords: "
                "`chmod 700 %s` prevents that",
                directory,
                directory,
            )


def _shared(status: os.stat_result, kind: int) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link: replace it by its target if that is yours"
    if stat.S_IFMT(status.st_mode) != kind:
        return "is not what trawl makes there (a file, folder or socket of another kind): remove it"
    if stat.S_ISREG(kind) and status.st_nlink > 1:
        return "is a hard link, so that another file would be changed: replace it by a copy"
    return ""


def _open(status: os.stat_result, job: Path) -> str:
    if status.st_uid not in (0, os.geteuid()):  # root may change any file anyway
        return f"belongs to another user (uid {status.st_uid}): run this as that user, or copy the job"
    if status.st_mode & _OTHERS_WRITE:
        return f"can be written by other users: if you trust its content, run `chmod -R go-w {job}`"
    return ""
