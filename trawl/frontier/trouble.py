"""What SQLite and the file system say, as one sentence about the job: the seam at which their errors are mapped."""

from __future__ import annotations

import errno
import sqlite3

from trawl.errors import JobError

__all__ = ["job_error"]

_DAMAGED = (
    "it is damaged ({detail}). Nothing was overwritten: go on with a copy made before, or keep what can be read with"
    " `sqlite3 FILE .recover`"
)
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full. Nothing is lost: make room and start it again",
    sqlite3.SQLITE_READONLY: "it can't be written ({detail}): see to its permissions, or to the disk it is on",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened ({detail}): see to its permissions",
    sqlite3.SQLITE_PERM: "it can't be opened ({detail}): see to its permissions",
    sqlite3.SQLITE_BUSY: "another program holds its database locked: close it and start again",
    sqlite3.SQLITE_LOCKED: "another program holds its database locked: close it and start again",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def job_error(directory: object, error: sqlite3.Error | OSError) -> JobError:
    """The error that says what is the matter with the job in ``directory``, in one sentence."""
    return JobError(f"job {directory}: {_cause(error)}", str(directory))


def _cause(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return _CAUSES[sqlite3.SQLITE_FULL]
        detail = error.strerror or str(error)
        known = _CAUSES[sqlite3.SQLITE_READONLY] if error.errno in _DENIED else None
    else:
        detail = str(error)
        code = getattr(error, "sqlite_errorcode", None)  # there is none where Python itself refused
        if code is None and isinstance(error, sqlite3.DatabaseError):
            code = sqlite3.SQLITE_CORRUPT if "malformed" in detail or "not a database" in detail else None
        known = _CAUSES.get(code & 0xFF) if code is not None else None
    return (known or "it can't be read or written: {detail}").format(detail=detail)
