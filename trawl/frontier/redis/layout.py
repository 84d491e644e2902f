"""The format of a job in a server: names of keys, sort keys of requests, scripts.

======================  ======  ======================================================================================
key                     type    content
======================  ======  ======================================================================================
``{JOB}:job``           hash    the head: format, parts, number of sets of marks, digest of the public suffixes, time
                                of the job's start; number of the last session, the server's run id and its start
                                time, the latest time and its lead over a clock that was set back, number of owned
                                parts, of sessions without parts (guests) and of starving sessions, number of marks,
                                position of the last item and of the last item in the feeds, the session that reads
                                ``start()`` (or ``done``), the session that exports items; start time of the current
                                sessions, pages, requests in flight, items and errors since then; number of changes
                                of owners; orders to all sessions, and questions to them
``{JOB}:u``             zset    sessions by the end of their leases
``{JOB}:n``             hash    for each session: ``SESSION name``, ``works``, ``parts``, ``step``, ``takings``,
                                ``arrived``, ``says``, ``starves``, ``counts``, ``replies``
``{JOB}:own``           hash    the session that owns a part; ``!`` if it ended without releasing the part; a part
                                without an entry is free
``{JOB}:q``             zset    requests, ordered by their bytes: lane (8: part and hash), negated priority (8), negated
                                share (8), arrival order (8), record
``{JOB}:a``             zset    arrivals: ``SESSION:NUMBER:`` and the request
``{JOB}:s:K``           set     64-bit marks of fingerprints; each set is so small that Redis stores it as integers
``{JOB}:i``             stream  items that the feeds have not written yet, by position
``{JOB}:k``             hash    kept values, such as cookies and statistics
``{JOB}:v``             hash    kept values of each part: MessagePack of a map
``{JOB}:f``             zset    failed requests by time: key (32), length of the reason (4), reason, record
``{JOB}:p``             set     ``SESSION ORDER`` of requests with spilled items
``{JOB}:p:SESSION:N``   list    the items that a running callback of a session has spilled
``{JOB}:c``             ..      temporary: for trying commands when a session starts
``{JOB}:x:…``           ..      shared scopes: ``s`` hash of scopes, ``l`` zset of their lines, ``a`` hash of asks,
                                ``k`` zset of asks by session, ``m`` zset of sessions by their last contact, ``d``
                                zset of tokens by deadline, ``o`` zset of scopes by opening time, ``w`` hash of
                                numbers, ``nSESSION`` stream of news for a session
======================  ======  ======================================================================================

The braces are a hash tag. Because of it, a cluster would store all keys of a job in one slot, so that one script can
use all of them. Times are in microseconds of the server's clock.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b, sha1
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trawl.frontier.job import Place, Row

__all__ = [
    "FORMAT",
    "KEY_BYTES",
    "Keys",
    "end_of_lane",
    "failed_parts",
    "kept_of",
    "key_of",
    "mark_of",
    "place_of",
    "row_of",
    "scripts",
    "start_of_lane",
    "text_of",
    "texts_of",
]

FORMAT = 2
"""Version of this format."""

SUBSETS = 65536
"""Number of sets for the marks.

A 64-bit integer takes 10 bytes in a set of at most 512 integers (``set-max-intset-entries``), and 64 bytes in a larger
set. So up to 33 million marks take 10 bytes each.
"""

KEY_BYTES = 32
"""Bytes in a request's sort key."""

_MIDDLE = 1 << 63
_ALL = (1 << 64) - 1


class Keys:
    """Names of the keys of a job, whose name may have any characters. The module's docstring has their content."""

    __slots__ = (
        *("_tag", "arrivals", "deadlines", "failed", "head", "items", "kept", "kept_of", "owners", "queue", "sessions"),
        *("spilled", "tried"),
    )

    def __init__(self, job: str) -> None:
        # Quote the name, because a brace in it would end the hash tag.
        self._tag = f"{{{quote(job, safe='')}}}"
        self.head: str = f"{self._tag}:job"
        self.deadlines: str = f"{self._tag}:u"
        self.sessions: str = f"{self._tag}:n"
        self.owners: str = f"{self._tag}:own"
        self.queue: str = f"{self._tag}:q"
        self.arrivals: str = f"{self._tag}:a"
        self.items: str = f"{self._tag}:i"
        self.kept: str = f"{self._tag}:k"
        self.kept_of: str = f"{self._tag}:v"
        self.failed: str = f"{self._tag}:f"
        self.spilled: str = f"{self._tag}:p"
        self.tried: str = f"{self._tag}:c"

    @property
    def of_join(self) -> list[str]:
        """The keys of ``join.lua``."""
        return [self.head, self.deadlines, self.sessions]

    @property
    def of_share(self) -> list[str]:
        """The keys of ``share.lua``."""
        return [*self._members, self.queue, self.arrivals, self.kept_of]

    @property
    def of_apply(self) -> list[str]:
        """The first keys of ``apply.lua``. Keys for a step follow them."""
        stored = [self.queue, self.arrivals, self.items, self.kept, self.kept_of, self.failed, self.spilled]
        return [*self._members, *stored]

    @property
    def of_state(self) -> list[str]:
        """The keys of ``state.lua``."""
        return [self.head, self.deadlines, self.sessions, self.queue, self.items, self.kept, self.failed, self.spilled]

    @property
    def _members(self) -> list[str]:
        return [self.head, self.deadlines, self.sessions, self.owners]

    def seen(self, subset: int) -> str:
        """Return the key of a set of marks."""
        return f"{self._tag}:s:{subset}"

    def spilled_by(self, session: int | str, order: int | str) -> str:
        """Return the key of the items that a request of a session has spilled."""
        return f"{self.spilled}:{session}:{order}"


def mark_of(fingerprint: bytes) -> tuple[int, int]:
    """Return the number of a fingerprint's set, and its mark. 80 bits together, so 10^9 of them will not collide."""
    digest = blake2b(fingerprint, digest_size=10).digest()
    return int.from_bytes(digest[8:], "big") % SUBSETS, int.from_bytes(digest[:8], "big", signed=True)


def key_of(place: Place | Row) -> bytes:
    """Return the sort key of a request. Its bytes sort by lane, negated priority, negated share and arrival order."""
    order, lane, priority, share = place[:4]
    bits: int = struct.unpack(">Q", struct.pack(">d", share))[0]
    bits = bits ^ _ALL if bits & _MIDDLE else bits | _MIDDLE  # so that the integers sort like the floats (IEEE 754)
    return struct.pack(">QQQQ", lane + _MIDDLE, priority + _MIDDLE, bits, order + _MIDDLE)


def place_of(key: bytes) -> Place:
    """Return the place of a request from its sort key, or from a value that starts with the sort key."""
    if len(key) < KEY_BYTES:
        raise ValueError(f"a request of {len(key)} bytes")
    lane, priority, bits, order = struct.unpack(">QQQQ", key[:KEY_BYTES])
    bits = bits ^ _MIDDLE if bits & _MIDDLE else bits ^ _ALL
    share: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    return order - _MIDDLE, lane - _MIDDLE, priority - _MIDDLE, share


def failed_parts(member: bytes) -> tuple[bytes, bytes]:
    """Return the reason and the record of a failed request."""
    start = KEY_BYTES + 4
    end = start + int.from_bytes(member[KEY_BYTES:start], "big")
    return member[start:end], member[end:]


def row_of(member: bytes) -> Row:
    """Return the row of a request from its value in the queue."""
    return (*place_of(member), member[KEY_BYTES:])


def start_of_lane(lane: int) -> bytes:
    """Return a lower bound of all sort keys of a lane."""
    return struct.pack(">Q", lane + _MIDDLE)


def end_of_lane(lane: int) -> bytes:
    """Return an upper bound of all sort keys of a lane."""
    return struct.pack(">Q", lane + _MIDDLE) + b"\xff" * (KEY_BYTES - 7)


def kept_of(flat: Sequence[Any]) -> dict[str, bytes]:
    """Return the saved values of a hash by name, from the server's flat list."""
    return {text_of(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def texts_of(flat: Sequence[Any]) -> dict[str, str]:
    """Return the strings of a hash by name, from the server's flat list."""
    return {text_of(name): text_of(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def text_of(value: object) -> str:
    """Return a value from a server as a string."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@cache
def scripts() -> Mapping[str, tuple[str, str]]:
    """Return the SHA-1 and the text of each script, by name. The SHA-1 identifies a script in the server."""
    found = {}
    for path in sorted((Path(__file__).parent / "scripts").glob("*.lua")):
        text = path.read_text("utf-8")
        found[path.stem] = sha1(text.encode(), usedforsecurity=False).hexdigest(), text
    return found
