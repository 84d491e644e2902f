"""The lock of a job, which dies with its owner.

Its file names the owner, and after that the error that kept the last owner from writing to the job: on a full disk
there is no other place for it. The file has its block on the disk from the start, so a few more words need none.

filelock would replace some 15 of these lines, its open, ``flock`` and close; the owner's id, the last error and their
readers would need a second descriptor. It refuses a crawl that starts beside a reader's shared lock, where this one
tries again within microseconds, and it locks a pipe that stands in the file's place.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from trawl.errors import JobError
from trawl.frontier.errors import job_error
from trawl.frontier.own_files import check_file

__all__ = ["LOCK_NAME", "JobLock", "read_last_error", "read_owner"]

LOCK_NAME = "lock"
"""The locked file in a job's directory. It stays there, unlocked, when no process has the job."""

_PID_BYTES = 20
_ERROR_BYTES = 400
_TRIES = 1000
_AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a link would have another file written, a pipe block


class JobLock:
    """Holds the lock on a job's directory until :meth:`release`, or until the process ends in whatever way.

    It is ``flock``'s: the kernel drops it when the last descriptor of the open file is closed, so a kill leaves nothing
    to clean up, and a second attempt in the same process is refused too. The descriptor is not inherited by programs
    that are started; a process that is only forked keeps the lock with its parent.

    Args:
        directory: The job's directory, which is there.

    Attributes:
        last_error: Why the last process could not write to the job; "" where it could, or could not say so.

    Raises:
        JobError: Another process has the job, or the lock's file can't be written.
    """

    __slots__ = ("_descriptor", "last_error")

    def __init__(self, directory: Path) -> None:
        self.last_error: str = ""
        path = directory / LOCK_NAME
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600)
        except OSError as error:
            raise job_error(directory, error) from error
        try:
            check_file(directory, path, is_private=False)
            self._take(directory)
        except BaseException:
            self.release()
            raise

    def clear_error(self) -> None:
        """Forget the error of the last process, once the job can be written again."""
        if self._descriptor is not None and self.last_error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, _PID_BYTES)

    def write_error(self, words: str) -> None:
        """Tell the next process why this one could not write to the job, if the disk allows."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, f"{words}\n".encode()[:_ERROR_BYTES], _PID_BYTES)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        # The file stays: were it removed, a process that has just opened it would lock one that no other finds.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _take(self, directory: Path) -> None:
        assert self._descriptor is not None
        try:
            is_ours = any(_is_locked_by(self._descriptor) for _ in range(_TRIES))
        except BlockingIOError:
            is_ours = False
        except OSError as error:
            raise job_error(directory, error) from error
        if not is_ours:
            owner = _pid_in(self._descriptor)
            who = "another process" if owner is None else f"process {owner}"
            raise JobError(f"job {directory}: {who} is using it; a job is for one process at a time", str(directory))
        try:
            self.last_error = _error_in(self._descriptor)
            # Padded, as the error of the last process stands behind it.
            os.pwrite(self._descriptor, f"{os.getpid():<{_PID_BYTES - 1}}\n".encode(), 0)
        except OSError as error:
            raise job_error(directory, error) from error


def _is_locked_by(descriptor: int) -> bool:
    """Lock the file. Returns False if only a reader of :func:`read_owner` is in the way, for microseconds.

    Raises:
        BlockingIOError: Another process has the job.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # works beside readers, which do the same
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.sched_yield()
        return False
    return True


def read_last_error(directory: Path) -> str:
    """Return why the last process could not write to the job; "" if it could, or could not say so."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | _AS_IT_IS)
    except OSError:
        return ""
    try:
        return _error_in(descriptor)
    except OSError:  # it is not a file
        return ""
    finally:
        os.close(descriptor)


def read_owner(directory: Path) -> int | None:
    """Return the id of the process that has the job in ``directory``; 0 if unknown; None if there is none.

    Raises:
        JobError: The lock's file can't be read.
    """
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | _AS_IT_IS)
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
    written = os.pread(descriptor, _PID_BYTES, 0).strip()
    return int(written) if written.isdigit() else None


def _error_in(descriptor: int) -> str:
    return os.pread(descriptor, _ERROR_BYTES, _PID_BYTES).decode("utf-8", "replace").strip()
