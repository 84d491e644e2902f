"""Maps errors of SQLite and of the file system to one sentence about the job.

A database may contain invalid values. SQLite accepts text in a column of integers, and a changed byte can make a name
invalid UTF-8. So the readers check each value, and :func:`malformed` returns the error that SQLite would raise for
damage.
"""

from __future__ import annotations

import errno
import sqlite3

from trawl.errors import JobError

__all__ = ["DATABASE_ERRORS", "damage_error", "job_error", "malformed"]

DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of reading a database. Its text, or the message of an SQLite error, may not be UTF-8."""

_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full. Nothing is lost: free some space and start it again",
    sqlite3.SQLITE_READONLY: "it can't be written ({detail}): check its permissions and the disk",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened ({detail}): check its permissions",
    sqlite3.SQLITE_PERM: "it can't be opened ({detail}): check its permissions",
    sqlite3.SQLITE_BUSY: "another program locks its database: close it and start again",
    sqlite3.SQLITE_LOCKED: "another program locks its database: close it and start again",
}
_SAID_OF_DAMAGE = ("malformed", "not a database", "Could not decode")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def damage_error(directory: object, detail: str) -> JobError:
    """Return the error for a damaged job in ``directory``, with the location of the damage and the fix."""
    return JobError(
        f"job {directory}: it is damaged ({detail}). Nothing was overwritten: continue with an earlier copy, or recover"
        f" what can be read with `sqlite3 {directory}/job.db .recover`",
        str(directory),
    )


def job_error(directory: object, error: sqlite3.Error | UnicodeDecodeError | OSError) -> JobError:
    """Return an error that describes the problem with the job in ``directory`` in one sentence."""
    if isinstance(error, UnicodeDecodeError):
        return damage_error(directory, f"it holds text that is not UTF-8: {error.object!r:.100}")
    code = _code_of(error)
    if code in _DAMAGED:
        return damage_error(directory, str(error))
    detail = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    known = _CAUSES.get(code or 0, "it can't be read or written: {detail}")
    return JobError(f"job {directory}: {known.format(detail=detail)}", str(directory))


def malformed(detail: str) -> sqlite3.DatabaseError:
    """Return the error that SQLite would raise for a database with invalid content."""
    error = sqlite3.DatabaseError(detail)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _code_of(error: sqlite3.Error | OSError) -> int | None:
    """Return the SQLite error code for an error; None if it has none."""
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return sqlite3.SQLITE_FULL
        return sqlite3.SQLITE_READONLY if error.errno in _DENIED else None
    code = getattr(error, "sqlite_errorcode", None)  # missing if Python itself raised the error
    if code is not None:
        return int(code) & 0xFF
    words = str(error)
    is_damaged = isinstance(error, sqlite3.DatabaseError) and any(said in words for said in _SAID_OF_DAMAGE)
    return sqlite3.SQLITE_CORRUPT if is_damaged else None
