"""The form in which a job is in a server: names of keys, sort keys of requests, scripts.

======================  ======  ======================================================================================
key                     type    content
======================  ======  ======================================================================================
``{JOB}:job``           hash    the head: format, parts, sets of marks, digest of the public suffixes, when it began;
                                the number of the last session, the server's run id and since when, the latest time
                                and how far it is ahead of a clock that was set back, parts owned, sessions that
                                take none (guests) and that starve, marks, the last item, the last one that the feeds
                                have, who reads ``start()`` (or ``done``), who exports the items; when the first of
                                those began that work now, pages, requests in flight, items and errors since then;
                                how often parts have changed hands
``{JOB}:u``             zset    sessions by the end of their leases
``{JOB}:n``             hash    of each session: ``SESSION name``, ``works``, ``parts``, ``step``, ``takings``,
                                ``arrived``, ``says``, ``starves``, ``counts``
``{JOB}:own``           hash    the session that owns a part; ``!``: one that did not give it back; none: it is free
``{JOB}:q``             zset    requests, ordered by their bytes: lane (8: part and hash), minus priority (8), minus
                                share (8), order (8), record
``{JOB}:a``             zset    arrivals: ``SESSION:NUMBER:`` and the request
``{JOB}:s:K``           set     64-bit marks of fingerprints, few enough in each for Redis to store them as integers
``{JOB}:i``             stream  items on their way to the feeds, by position
``{JOB}:k``             hash    what is kept: cookies, statistics
``{JOB}:v``             hash    what is kept of a part: MessagePack of a map
``{JOB}:f``             zset    failed requests by time: key (32), length of the reason (4), reason, record
``{JOB}:p``             set     ``SESSION ORDER`` of requests with spilled items
``{JOB}:p:SESSION:N``   list    the items that a running callback of a session has spilled
``{JOB}:c``             ..      for a moment: what is tried when a session begins
``{JOB}:x:…``           ..      shared scopes: ``s`` hash of scopes, ``l`` zset of their lines, ``a`` hash of asks,
                                ``k`` zset of asks by session, ``m`` zset of sessions by when they were heard, ``d``
                                zset of tokens by deadline, ``o`` zset of scopes by when they open, ``w`` hash of
                                numbers, ``nSESSION`` stream of what a session is to hear
======================  ======  ======================================================================================

The braces are a hash tag: all of a job is in one slot, and one script sees all of it. Instants are microseconds of the
server's clock.
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
"""The version of this form."""

SUBSETS = 65536
"""Sets that the marks are spread over. 64-bit integers in a set take 10 bytes each as long as the set has at most 512
of them (``set-max-intset-entries``), and 64 beyond: up to 33 million marks."""

KEY_BYTES = 32
"""Bytes of a request's sort key."""

_MIDDLE = 1 << 63
_ALL = (1 << 64) - 1


class Keys:
    """Names of the keys of a job.

    Args:
        job: The job's name, of any characters.

    Attributes:
        head: What it says of itself.
        deadlines: Sessions by the end of their leases.
        sessions: What is noted of each session.
        owners: Who has each part.
        queue: Requests.
        arrivals: Requests that are on their way to their sessions.
        items: Items.
        kept: What is kept.
        kept_of: What is kept of each part.
        failed: Failed requests.
        spilled: Requests with spilled items.
        tried: What is tried when a session begins.
    """

    __slots__ = (
        *("_tag", "arrivals", "deadlines", "failed", "head", "items", "kept", "kept_of", "owners", "queue", "sessions"),
        *("spilled", "tried"),
    )

    def __init__(self, job: str) -> None:
        self._tag = f"{{{quote(job, safe='')}}}"  # no brace of the name can end the hash tag
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
        """The keys that ``join.lua`` declares."""
        return [self.head, self.deadlines, self.sessions]

    @property
    def of_share(self) -> list[str]:
        """The keys that ``share.lua`` declares."""
        return [*self._members, self.queue, self.arrivals, self.kept_of]

    @property
    def of_apply(self) -> list[str]:
        """The keys that ``apply.lua`` declares first."""
        stored = [self.queue, self.arrivals, self.items, self.kept, self.kept_of, self.failed, self.spilled]
        return [*self._members, *stored]

    @property
    def of_state(self) -> list[str]:
        """The keys that ``state.lua`` declares."""
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
    """Return the set and the mark of a fingerprint: 80 bits, so that of 10^9 fingerprints none is taken for another."""
    digest = blake2b(fingerprint, digest_size=10).digest()
    return int.from_bytes(digest[8:], "big") % SUBSETS, int.from_bytes(digest[:8], "big", signed=True)


def key_of(place: Place | Row) -> bytes:
    """Return the sort key of a request: bytes that compare as its lane, minus priority, minus share and order do."""
    order, lane, priority, share = place[:4]
    bits: int = struct.unpack(">Q", struct.pack(">d", share))[0]
    bits = bits ^ _ALL if bits & _MIDDLE else bits | _MIDDLE  # as integers these compare as the numbers do (IEEE 754)
    return struct.pack(">QQQQ", lane + _MIDDLE, priority + _MIDDLE, bits, order + _MIDDLE)


def place_of(key: bytes) -> Place:
    """Return the place that a sort key, or what begins with one, stands for.

    Raises:
        ValueError: It is too short.
    """
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
    """Return the row of a request as it is in the queue.

    Raises:
        ValueError: It is too short.
    """
    return (*place_of(member), member[KEY_BYTES:])


def start_of_lane(lane: int) -> bytes:
    """Return what all keys of a lane are above."""
    return struct.pack(">Q", lane + _MIDDLE)


def end_of_lane(lane: int) -> bytes:
    """Return what all keys of a lane are below."""
    return struct.pack(">Q", lane + _MIDDLE) + b"\xff" * (KEY_BYTES - 7)


def kept_of(flat: Sequence[Any]) -> dict[str, bytes]:
    """Return saved values by name, of a hash as a server gives it."""
    return {text_of(name): bytes(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def texts_of(flat: Sequence[Any]) -> dict[str, str]:
    """Return texts by name, of a hash as a server gives it."""
    return {text_of(name): text_of(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def text_of(value: object) -> str:
    """Return what a server gives as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@cache
def scripts() -> Mapping[str, tuple[str, str]]:
    """Read the scripts: of each name its SHA-1, by which a server knows it, and its text."""
    found = {}
    for path in sorted((Path(__file__).parent / "scripts").glob("*.lua")):
        text = path.read_text("utf-8")
        found[path.stem] = sha1(text.encode(), usedforsecurity=False).hexdigest(), text
    return found
