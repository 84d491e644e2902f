"""Checks the files of a job's local server before the server reads them.

A server runs every command of its append-only file, so a file from another person could load native code or write to
other files. A server stores the effects of a script, so only the few commands that trawl's scripts use pass the check.
The parser is stricter than a server's, so a server reads a file that passes in the same way. A file is a sequence of
commands, each an array of strings::

    *3 CR LF  $4 CR LF  HDEL CR LF  $1 CR LF  a CR LF  $1 CR LF  b CR LF

It may start with a snapshot (RDB). Only the types of values that trawl stores pass, no functions or module data.
Servers check the inner format of values themselves (``sanitize-dump-payload``).
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Sequence
from hashlib import sha1
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from trawl.errors import JobError
from trawl.frontier.own_files import check_directory, check_file
from trawl.observe import printable

__all__ = ["COMMANDS", "check_contents", "check_files"]

COMMANDS = frozenset(b"DEL HDEL HINCRBY HSET RPUSH SADD SREM XADD XTRIM ZADD ZREM ZREMRANGEBYLEX".split())
"""Write commands of trawl's scripts."""

SERVERS_OWN = frozenset(b"EXEC HMSET MULTI SELECT UNLINK XSETID".split())
"""Commands that a server adds around :data:`COMMANDS`, or writes instead of these commands when it rewrites a file."""

_ALLOWED = COMMANDS | SERVERS_OWN
_FOLDER = "appendonlydir"
_NAME = "appendonly.aof"
_MANIFEST = f"{_NAME}.manifest"
_MANIFEST_BYTES = 1 << 20
_MANIFEST_LINE = re.compile(
    r"file appendonly\.aof(\.\d+\.(base\.(rdb|aof)|incr\.aof))? seq \d+ type [bhi]( (start|end)offset -?\d+)*"
)
_DO_NOT_OPEN = "somebody may have put it there to run code on this machine, so do not use this job"

_COUNT = re.compile(rb"\*([1-9][0-9]{0,6})\r\n")
_LENGTH = re.compile(rb"\$(0|[1-9][0-9]{0,8})\r\n")
_LINE_BYTES = 16
_LOOKED_AT = 3
_READ_AT_ONCE = 1 << 20

_SNAPSHOT = re.compile(rb"REDIS00(09|[1-9][0-9])|VALKEY[0-9]{3}")
_FACT, _SIZES, _DATABASE, _END = 0xFA, 0xFB, 0xFE, 0xFF
_FACTS = frozenset(
    b"aof-base aof-preamble ctime redis-bits redis-ver used-mem valkey-ver repl-id repl-offset repl-stream-db".split()
)
_PACKED = frozenset([10, 11, 12, 13, 16, 17, 20])  # a list, set, sorted set or hash in one string
_LIST, _SET, _HASH, _OLD_QUICKLIST, _SORTED_SET, _QUICKLIST = 1, 2, 4, 14, 5, 18
_COMPRESSED, _LONGEST_NAME = 3, 64
_OLD_STREAM, _STREAMS = 15, frozenset([15, 19, 21])


class _Refused(Exception):
    """The reason why a file is refused."""


def check_files(folder: Path) -> None:
    """Check the names, owners and permissions of a server's files, without opening them. Raises JobError."""
    job = folder.parent
    check_directory(job)
    if not check_file(job, folder, kind=stat.S_IFDIR):
        return
    check_file(job, folder / _FOLDER, kind=stat.S_IFDIR)
    check_file(job, folder / "socket", kind=stat.S_IFSOCK)
    # With umask 002, the log may be writable for the group. Opening the log corrects its permissions.
    check_file(job, folder / "log", is_private=False)
    known = {_FOLDER, "socket", "log"}
    for path in [path for path in folder.iterdir() if path.name not in known]:
        check_file(job, path)
    for path in (folder / _FOLDER).iterdir() if (folder / _FOLDER).exists() else ():
        check_file(job, path)


def check_contents(folder: Path) -> None:
    """Refuse files of a server with commands and values that trawl never stores. Raises JobError. Blocks."""
    job, manifest = folder.parent, folder / _FOLDER / _MANIFEST
    there = [path for place in (folder, manifest.parent) if place.is_dir() for path in place.iterdir()]
    # Ignore case, because some file systems ignore it.
    named = [path for path in there if path.name.lower().startswith(_NAME) and path != manifest]
    path = manifest
    try:
        if manifest.exists():
            _check_manifest(manifest)
        for path in sorted(named):
            with path.open("rb") as file:
                _check_log(file)
    except OSError as error:
        raise JobError(f"job {job}: {path.relative_to(job)} can't be read: {error.strerror}", str(job)) from error
    except _Refused as refused:
        raise JobError(f"job {job}: {path.relative_to(job)} {refused}", str(job)) from refused


def _check_manifest(path: Path) -> None:
    with path.open("rb") as file:
        text = file.read(_MANIFEST_BYTES).decode("latin-1")
    for line in text.removesuffix("\n").split("\n"):
        if not _MANIFEST_LINE.fullmatch(line):
            raise _Refused(
                f"has a line that no server writes, {printable(line[:60])!r}: it is damaged, or {_DO_NOT_OPEN}"
            )


def _check_log(file: BufferedReader) -> None:
    """Check a file of commands, with or without a snapshot before them."""
    if file.peek(9).startswith((b"REDIS", b"VALKEY")):
        try:
            _check_snapshot(file)
        except EOFError:
            raise _Refused("is damaged: its snapshot ends early") from None
    walk = _Commands()
    buffer, size = b"", _READ_AT_ONCE
    while more := file.read(size):
        buffer += more
        buffer = buffer[walk.check(buffer) :]
        size = max(_READ_AT_ONCE, len(buffer))  # read a long command in a few steps
    # The rest is a command that a killed server did not finish writing. The next server drops it.


class _Commands:
    """Checks commands. A large job has millions of values, so the loop over values calls few functions."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}  # cached by line, because there are few different lines and parsing is slow
        self._lengths: dict[bytes, int] = {}

    def check(self, buffer: bytes) -> int:
        """Check the complete commands in ``buffer``. Returns the position of the first incomplete command."""
        at = start = 0
        index, lengths = buffer.index, self._lengths
        try:
            while True:
                at = index(b"\n", start, start + _LINE_BYTES) + 1
                line = buffer[start:at]
                count = self._counts.get(line) or _number(line, _COUNT, self._counts)
                words: list[bytes] = []
                for left in range(count, 0, -1):
                    line_end = index(b"\n", at, at + _LINE_BYTES) + 1
                    line = buffer[at:line_end]
                    length = lengths.get(line)
                    if length is None:
                        length = _number(line, _LENGTH, lengths)
                    end = line_end + length
                    at = end + 2
                    if buffer[end:at] != b"\r\n":
                        if at > len(buffer):
                            return start
                        raise _Refused("is damaged: the length of a value is wrong")
                    if left > count - _LOOKED_AT:
                        words.append(buffer[line_end:end])
                if words[0] not in _ALLOWED:
                    _check_other(words, count)
                start = at
        except ValueError:  # the line has no end yet
            if max(at, start) + _LINE_BYTES <= len(buffer):
                raise _Refused("is damaged, or not a server's") from None
            return start


def _number(line: bytes, form: re.Pattern[bytes], numbers: dict[bytes, int]) -> int:
    match = form.fullmatch(line)
    if match is None:
        raise _Refused("is damaged, or not a server's")
    number = numbers[line] = int(match[1])
    return number


def _check_other(words: Sequence[bytes], count: int) -> None:
    """Check a command by its first words and its number of words."""
    name = words[0].upper()
    if name in _ALLOWED:
        return
    # Redis 6 also stores SCRIPT LOAD.
    if count == _LOOKED_AT and name == b"SCRIPT" and words[1].upper() == b"LOAD":
        from trawl.frontier.redis.layout import scripts  # noqa: PLC0415 - most crawls use no server

        digest = sha1(words[2], usedforsecurity=False).hexdigest()
        if any(digest == known for known, _ in scripts().values()):
            return
    shown = printable(name[:40].decode("latin-1"))
    raise _Refused(f"has the command {shown}, which trawl never writes: {_DO_NOT_OPEN}")


def _bytes(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _check_snapshot(file: BufferedReader) -> None:
    """Check a snapshot, and leave ``file`` after it. Raises EOFError if the snapshot ends early."""
    if not _SNAPSHOT.fullmatch(_bytes(file, 9)):
        raise _Refused("has a snapshot of an unknown form")
    while (kind := _bytes(file, 1)[0]) != _END:
        if kind == _FACT:
            name = _string(file)
            if name not in _FACTS:
                shown = printable(name.decode("latin-1"))
                raise _Refused(
                    f"has the field {shown!r} in its snapshot, which trawl's server never writes: {_DO_NOT_OPEN}"
                )
            _string(file)
        elif kind == _DATABASE:
            _length(file)
        elif kind == _SIZES:
            _times(2, _length, file)
        elif kind in _PACKED:
            _times(2, _string, file)
        elif kind in (_LIST, _SET, _HASH, _OLD_QUICKLIST, _SORTED_SET, _QUICKLIST):
            _string(file)
            _check_items(file, kind)
        elif kind in _STREAMS:
            _string(file)
            _check_stream(file, kind)
        else:
            raise _Refused(f"has a value of kind {kind} in its snapshot, which trawl never stores: {_DO_NOT_OPEN}")
    _bytes(file, 8)  # the checksum


def _check_items(file: BufferedReader, kind: int) -> None:
    for _ in range(_length(file)):
        if kind == _QUICKLIST:
            _length(file)
        _string(file)
        if kind == _HASH:
            _string(file)
        elif kind == _SORTED_SET:
            _bytes(file, 8)


def _check_stream(file: BufferedReader, kind: int) -> None:
    for _ in range(_length(file)):
        _times(2, _string, file)
    _times(3 if kind == _OLD_STREAM else 8, _length, file)
    if _length(file):
        raise _Refused(f"has a stream with consumers in its snapshot, which trawl never makes: {_DO_NOT_OPEN}")


def _times(count: int, read: Callable[[BufferedReader], object], file: BufferedReader) -> None:
    for _ in range(count):
        read(file)


def _length(file: BufferedReader) -> int:
    length, encoding = _length_or_encoding(file)
    if encoding is not None:
        raise _Refused("is damaged: its snapshot has an encoded length")
    return length


def _length_or_encoding(file: BufferedReader) -> tuple[int, int | None]:
    """Read a length, or the encoding of the next string."""
    first = _bytes(file, 1)[0]
    if first < 0x40:
        return first, None
    if first < 0x80:
        return (first & 0x3F) << 8 | _bytes(file, 1)[0], None
    if first in (0x80, 0x81):
        return int.from_bytes(_bytes(file, 4 if first == 0x80 else 8), "big"), None
    if first in (0xC0, 0xC1, 0xC2, 0xC3):
        return 0, first & 0x3F
    raise _Refused("is damaged: its snapshot has a length of an unknown form")


def _string(file: BufferedReader) -> bytes:
    """Read a string. Returns the string if it is short and stored without encoding, otherwise b""."""
    length, encoding = _length_or_encoding(file)
    if encoding is None and length < _LONGEST_NAME:
        return _bytes(file, length)
    if encoding == _COMPRESSED:
        length = _length(file)
        _length(file)
    elif encoding is not None:  # a number of 8, 16 or 32 bits
        length = 1 << encoding
    while length > 0:
        length -= len(_bytes(file, min(length, _READ_AT_ONCE)))
    return b""
