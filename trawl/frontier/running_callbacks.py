"""A file that records running callbacks, so that the next process can find a page whose callback killed this one.

A callback may end its process (a segmentation fault, ``os._exit()``, the kernel's OOM killer). The request is still in
the store and would be sent again first, so the job would never get past it. Therefore each process has a small file,
mapped into memory, with one slot per running callback. Taking and clearing a slot only write to memory, without a
system call. If the process is killed, the kernel still writes the mapped memory to the file. A process keeps its file
locked, so if a file can be locked, its process has died.

The file's blocks are written when it is created, because if the disk is full, a write to mapped memory without a block
ends the process with SIGBUS.

Imported only when a job is opened.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex

import attrs

from trawl.frontier.base import Record

__all__ = ["LeftFile", "RunningCallback", "RunningCallbacks", "key_of"]

KEY_BYTES = 16

MAX_SLOTS = 1024
"""Maximum number of callbacks that are recorded at the same time."""

_PREFIX = "callbacks."
_SLOT_BYTES = 512
_HEAD = struct.Struct(f"<BH{KEY_BYTES}s")  # 1 if the slot is used, length of the URL, key
_URL_BYTES = _SLOT_BYTES - _HEAD.size
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 10


def key_of(record: Record) -> bytes:
    """Return a key for a record that stays the same in later runs and after a retry."""
    if record.fingerprint is None:  # duplicates are wanted, so only their order in the job distinguishes them
        return record.order.to_bytes(KEY_BYTES, "big", signed=True)
    if len(record.fingerprint) == KEY_BYTES:
        return record.fingerprint
    return blake2b(record.fingerprint, digest_size=KEY_BYTES).digest()  # a dupefilter of the user may return any length


@attrs.frozen
class RunningCallback:
    """A callback that ran when its process died.

    Attributes:
        key: The key of its record, as :func:`key_of` returns it.
        url: The URL of its page, up to its first 493 bytes.
    """

    key: bytes
    url: str


class RunningCallbacks:
    """The file of this process. Creating it blocks.

    Args:
        folder: An existing folder that only this user may write to.
        slots: Number of callbacks that may run at the same time; at most :data:`MAX_SLOTS` are recorded.

    Raises:
        OSError: If the file can't be written or locked.
    """

    __slots__ = ("_descriptor", "_free", "_map", "_path")

    def __init__(self, folder: Path, slots: int) -> None:
        slots = min(slots, MAX_SLOTS)
        self._path, self._descriptor = _create(folder)
        try:
            _write_zeros(self._descriptor, slots * _SLOT_BYTES)
            self._map = mmap.mmap(self._descriptor, slots * _SLOT_BYTES)
        except BaseException:
            self.close()
            raise
        self._free = list(range(0, slots * _SLOT_BYTES, _SLOT_BYTES))

    def begin(self, key: bytes, url: str) -> int:
        """Record that a callback runs, and return its slot; -1 if all slots are used."""
        if not self._free:
            return -1
        slot = self._free.pop()
        text = url.encode("utf-8", "replace")[:_URL_BYTES]
        start = slot + _HEAD.size
        self._map[start : start + len(text)] = text
        # Set the flag last, so that a used slot is complete.
        _HEAD.pack_into(self._map, slot, 0, len(text), key)
        self._map[slot] = 1
        return slot

    def end(self, slot: int) -> None:
        """Clear the slot of a callback that has ended."""
        if slot >= 0:
            self._map[slot] = 0
            self._free.append(slot)

    def close(self) -> None:
        """Remove the file. Blocks. A second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(descriptor)


class LeftFile:
    """A file that a dead process has left. It stays locked until :meth:`remove` or :meth:`close`.

    Attributes:
        callbacks: The callbacks that ran when the process died.
    """

    __slots__ = ("_descriptor", "_path", "callbacks")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.callbacks: list[RunningCallback] = _callbacks_in(os.pread(descriptor, MAX_SLOTS * _SLOT_BYTES, 0))

    @classmethod
    def all_in(cls, folder: Path) -> list[LeftFile]:
        """Return the files of dead processes in a folder. Blocks.

        Links, and files of other users, are ignored.
        """
        found = []
        for path in sorted(folder.glob(f"{_PREFIX}*")):
            with suppress(OSError):
                descriptor = os.open(path, _FLAGS)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    status = os.fstat(descriptor)
                    # If it has no link any more, another process has just read and removed it.
                    is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
                    found += [cls(path, descriptor)] if is_ours else []
                    descriptor = -1 if is_ours else descriptor
                finally:
                    if descriptor >= 0:
                        os.close(descriptor)
        return found

    def remove(self) -> None:
        """Remove the file, because its content is stored now. Blocks."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Unlock the file, and leave it for the next process. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _create(folder: Path) -> tuple[Path, int]:
    """Create a locked file."""
    for _ in range(_TRIES):
        path = folder / f"{_PREFIX}{token_hex(8)}"
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        os.close(descriptor)  # another process locked it first, as the file of a dead process
    raise BlockingIOError(f"a new file in {folder} is locked already")


def _write_zeros(descriptor: int, size: int) -> None:
    written = 0
    while written < size:
        written += os.pwrite(descriptor, bytes(size - written), written)


def _callbacks_in(content: bytes) -> list[RunningCallback]:
    found = []
    for slot in range(0, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES):
        is_used, length, key = _HEAD.unpack_from(content, slot)
        if is_used == 1 and length <= _URL_BYTES:
            start = slot + _HEAD.size
            found.append(RunningCallback(key, content[start : start + length].decode("utf-8", "replace")))
    return found
