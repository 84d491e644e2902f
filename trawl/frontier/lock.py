"""One process a job: a lock that dies with its owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trawl.errors import JobError
from trawl.frontier.trouble import job_error

__all__ = ["LOCK_NAME", "JobLock", "owner_of"]

LOCK_NAME = "lock"
"""The file in a job's directory that is locked. It stays there, unlocked, when nobody has the job."""


class JobLock:
    """Holds the lock on a job's directory until :meth:`release`, or until the process ends in whatever way.

    It is ``flock``'s: the kernel drops it when the last descriptor of the open file is closed, so a kill leaves nothing
    to clean up, and a second attempt in the same process is refused too. The descriptor is not inherited by programs
    that are started; a process that is only forked keeps the lock with its parent.

    Args:
        directory: The job's directory, which is there.

    Raises:
        JobError: Another process has the job, or the lock's file can't be written.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_NAME
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise job_error(directory, error) from error
        try:
            self._take(directory)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the job free; once is enough."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _take(self, directory: Path) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _pid_in(self._descriptor)
            who = "another process" if owner is None else f"process {owner}"
            raise JobError(f"job {directory}: {who} is at work on it: one process a job", str(directory)) from error
        except OSError as error:
            raise job_error(directory, error) from error
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise job_error(directory, error) from error


def owner_of(directory: Path) -> int | None:
    """The id of the process that has the job in ``directory`` now; 0 where it is not told; None: nobody has it.

    Raises:
        JobError: The lock's file can't be read.
    """
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise job_error(directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(descriptor) or 0
    finally:
        os.close(descriptor)
    return None


def _pid_in(descriptor: int) -> int | None:
    written = os.pread(descriptor, 20, 0).strip()
    return int(written) if written.isdigit() else None
