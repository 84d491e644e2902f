"""The lock of a job, which ends with the process that holds it.

The lock's file contains the id of the owner, followed by the error that prevented the last owner from writing to the
job. The error is stored here because the disk may be full. The lock file has a block on the disk from the start, and a
message fits into that block.

The library filelock would replace only open, ``flock`` and close. The owner's id and the last error would need a second
descriptor. While a reader has a shared lock, filelock would refuse a crawl, and it would lock a pipe.
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
"""Name of the locked file in a job's directory. It is never removed."""

_PID_BYTES = 20
_ERROR_BYTES = 400
_TRIES = 1000
_AS_IT_IS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # neither follow a link nor block on a pipe


class JobLock:
    """The lock on a job's directory, held until :meth:`release` or the end of the process.

    It uses ``flock``. The kernel releases the lock when the last descriptor of the open file is closed, so nothing must
    be removed after a kill. A second attempt in the same process is refused too. Child programs do not inherit the
    descriptor. A forked process that starts no other program shares the lock with its parent.

    ``last_error`` is the result of :func:`read_last_error`. Raises JobError if another process is using the job.
    """

    __slots__ = ("_descriptor", "last_error")

    def __init__(self, directory: Path) -> None:
        self.last_error: str = ""
        path = directory / LOCK_NAME
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600)
        except OSError as error:
            check_file(directory, path)  # raises an error with the fix if the file is a link or a folder
            raise job_error(directory, error) from error
        try:
            check_file(directory, path)
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
        """Record for the next process why this process could not write to the job, if the disk allows it."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, f"{words}\n".encode()[:_ERROR_BYTES], _PID_BYTES)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        # Don't remove the file. Another process may have just opened it, and would then lock a file that no longer has
        # a name.
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
            # Pad the id to a fixed length, because the error of the last process follows it.
            os.pwrite(self._descriptor, f"{os.getpid():<{_PID_BYTES - 1}}\n".encode(), 0)
        except OSError as error:
            raise job_error(directory, error) from error


def _is_locked_by(descriptor: int) -> bool:
    """Lock the file, and return True; False if :func:`read_owner` in another process has it locked for a moment."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # This succeeds while readers hold their shared locks, and fails if a process is using the job.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.sched_yield()
        return False
    return True


def read_last_error(directory: Path) -> str:
    """Return why the last process could not write to the job; "" if it could, or could not record the reason."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | _AS_IT_IS)
    except OSError:
        return ""
    try:
        return _error_in(descriptor)
    except OSError:  # not a regular file
        return ""
    finally:
        os.close(descriptor)


def read_owner(directory: Path) -> int | None:
    """Return the id of the process that is using the job; 0 if the id is unknown; None if no process is using it."""
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
