"""A file that records running user code, so that the next process finds a page whose callback has killed this process.

The code of a page may kill its process (a segmentation fault, ``os._exit()``, the kernel's OOM killer). Its request is
still in the store. The next process would send it first and be killed too, so the job could never continue. Therefore
each process has a small file, mapped into memory, with one slot per page whose callback or middleware runs, and one for
``start()``. Using or clearing a slot only writes to memory, without a system call. If the process is killed, the kernel
still writes the mapped memory to the file. A process keeps its file locked, so if another process can lock the file,
the first process has died.

All blocks of the file are written when it is created. Otherwise, on a full disk, a write to mapped memory would kill
the process with SIGBUS. Functions that use files block.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex

import attrs

from trawl.frontier.base import Record
from trawl.frontier.own_files import check_directory

__all__ = ["KEY_BYTES", "LeftFile", "RunningCallback", "RunningCallbacks", "key_of", "state_folder"]

KEY_BYTES = 16
MAX_SLOTS = 1024  # pages whose code is recorded at the same time, together with `start()`
_PREFIX = "callbacks."
_SLOT_BYTES = 512
_FILE_BYTES = MAX_SLOTS * _SLOT_BYTES
_HEAD = struct.Struct(f"<BH{KEY_BYTES}s")  # the state of the slot, length of the URL, key
_FREE = 0
_IS_LOST = 0x80  # added to the state of a slot that was left
_PLACES = {1: "callback", 2: "middleware", 3: "start()"}
_STATES = {place: state for state, place in _PLACES.items()}
_URL_BYTES = _SLOT_BYTES - _HEAD.size
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 10


def key_of(record: Record) -> bytes:
    """Return a key for a record. The key stays the same in later runs and after a retry."""
    if record.fingerprint is None:  # if duplicates are wanted, only the arrival order distinguishes records
        return record.order.to_bytes(KEY_BYTES, "big", signed=True)
    if len(record.fingerprint) == KEY_BYTES:
        return record.fingerprint
    return blake2b(record.fingerprint, digest_size=KEY_BYTES).digest()  # a user's fingerprint may have any length


def state_folder(job: str) -> Path:
    """Return the folder of a job that has no directory, and create it if it is missing.

    It is below ``$XDG_STATE_HOME``, or in the temporary folder if that folder can't be written. For example, a
    container may have no home directory. Raises JobError if other users may write to it.
    """
    name = blake2b(job.encode(), digest_size=16).hexdigest()
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        folder = home / "trawl" / name
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # Path.home() raises RuntimeError if the user has no entry in the user database
        own = Path(tempfile.gettempdir()) / f"trawl-{os.geteuid()}"
        own.mkdir(0o700, exist_ok=True)
        check_directory(own)
        folder = own / name
        folder.mkdir(0o700, exist_ok=True)
    check_directory(folder)
    return folder


@attrs.frozen
class RunningCallback:
    """User code that ran when its process died or lost its lease.

    Attributes:
        key: The key of its record, as :func:`key_of` returns it.
        url: The URL of its page, at most the first 493 bytes.
        place: The code that ran: ``callback``, ``middleware``, or ``start()``, which has a number instead of a URL.
        is_lease_lost: Whether the code blocked its process for so long that it lost its lease on the job.
    """

    key: bytes
    url: str
    place: str = "callback"
    is_lease_lost: bool = False


class RunningCallbacks:
    """The file of this process. Creating an instance creates the file in a folder of this user."""

    __slots__ = ("_descriptor", "_free", "_is_left", "_map", "_path")

    def __init__(self, folder: Path) -> None:
        self._is_left = False
        self._map: mmap.mmap | None = None
        self._path, self._descriptor = _create(folder)
        try:
            written = 0
            while written < _FILE_BYTES:
                written += os.pwrite(self._descriptor, bytes(_FILE_BYTES - written), written)
            self._map = mmap.mmap(self._descriptor, _FILE_BYTES)
        except BaseException:
            self.close()
            raise
        self._free = list(range(0, _FILE_BYTES, _SLOT_BYTES))

    def begin(self, key: bytes, url: str, place: str = "callback") -> int:
        """Record that user code runs, and return its slot; -1 if all slots are used."""
        if not self._free or self._map is None:
            return -1
        slot = self._free.pop()
        text = url.encode("utf-8", "replace")[:_URL_BYTES]
        start = slot + _HEAD.size
        self._map[start : start + len(text)] = text
        # Set the state last, so that a slot in use is always complete.
        _HEAD.pack_into(self._map, slot, _FREE, len(text), key)
        self._map[slot] = _STATES[place]
        return slot

    def end(self, slot: int) -> None:
        """Clear the slot of code that has ended."""
        if slot >= 0 and self._map is not None:
            self._map[slot] = _FREE
            self._free.append(slot)

    def leave(self, slot: int) -> None:
        """Keep a slot for the next process, because this process has lost its lease while the code ran."""
        if slot >= 0 and self._map is not None:
            self._map[slot] |= _IS_LOST
            self._is_left = True

    def close(self) -> None:
        """Remove the file, unless :meth:`leave` has kept a slot. A second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            if not self._is_left:
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
            if self._map is not None:
                self._map.close()  # the map has its own descriptor, which would keep the lock
            os.close(descriptor)


class LeftFile:
    """The file of a dead process, with the callbacks that ran. Locked until :meth:`remove` or :meth:`close`."""

    __slots__ = ("_descriptor", "_path", "callbacks")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.callbacks: list[RunningCallback] = _callbacks_in(os.pread(descriptor, _FILE_BYTES, 0))

    @classmethod
    def all_in(cls, folder: Path) -> list[LeftFile]:
        """Return the files of dead processes in a folder. Links and other users' files are ignored."""
        found = []
        for path in sorted(folder.glob(f"{_PREFIX}*")):
            with suppress(OSError):
                descriptor = os.open(path, _FLAGS)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    status = os.fstat(descriptor)
                    # If the file has no name any more, another process has just read and removed it.
                    is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
                    found += [cls(path, descriptor)] if is_ours else []
                    descriptor = -1 if is_ours else descriptor
                finally:
                    if descriptor >= 0:
                        os.close(descriptor)
        return found

    def remove(self) -> None:
        """Remove the file, because its content is stored now."""
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
        os.close(descriptor)  # another process has locked the file, as if this process had died
    raise BlockingIOError(f"a new file in {folder} is locked already")


def _callbacks_in(content: bytes) -> list[RunningCallback]:
    found = []
    for slot in range(0, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES):
        state, length, key = _HEAD.unpack_from(content, slot)
        place = _PLACES.get(state & ~_IS_LOST)
        if place is not None and length <= _URL_BYTES:
            start = slot + _HEAD.size
            url = content[start : start + length].decode("utf-8", "replace")
            found.append(RunningCallback(key, url, place, bool(state & _IS_LOST)))
    return found
