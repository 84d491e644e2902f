"""The form in which a job is in a server: names of keys, sort keys of requests, scripts.

========================  ======  ====================================================================================
key                       type    content
========================  ======  ====================================================================================
``{JOB}:job``             hash    the head: the format, the number of partitions and of sets of marks
``{JOB.N}:m``             hash    partition N: w owner, e epoch, u lease until, t latest time, s last step, c marks,
                                  i position of the last item, d position up to which the feeds have them
``{JOB.N}:q``             zset    requests, ordered by their bytes: lane (8), minus priority (8), minus share (8), order
                                  (8), record
``{JOB.N}:s:K``           set     64-bit marks of fingerprints, few enough in each for Redis to store them as integers
``{JOB.N}:i``             stream  items on their way to the feeds, by position
``{JOB.N}:k``             hash    what is kept: the throttle's state, cookies, statistics
``{JOB.N}:f``             zset    failed requests by time: key (32), length of the reason (4), reason, record
``{JOB.N}:p``             set     orders of requests with spilled items
``{JOB.N}:p:ORDER``       list    the items that a running callback has spilled
========================  ======  ====================================================================================

The braces are a hash tag: all of a partition is in one slot. Instants are microseconds of the server's clock.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b, sha1
from pathlib import Path
from urllib.parse import quote

from trawl.frontier.base import SortKey
from trawl.frontier.job import Place, Row

__all__ = [
    "FORMAT",
    "KEY_BYTES",
    "Keys",
    "end_of_lane",
    "key_at",
    "key_of",
    "mark_of",
    "place_of",
    "scripts",
    "start_of_lane",
]

FORMAT = 1
"""The version of this form."""

SUBSETS = 4096
"""Sets that the marks of a partition are spread over. 64-bit integers in a set take 10 bytes each as long as the set
has at most 512 of them (``set-max-intset-entries``), and 64 beyond."""

KEY_BYTES = 32
"""Bytes of a request's sort key."""

_MIDDLE = 1 << 63
_ALL = (1 << 64) - 1


class Keys:
    """Names of the keys of one partition of a job.

    Args:
        job: The job's name, of any characters.
        partition: The partition's number.

    Attributes:
        head: The job's head, which is in another slot.
        partition: The partition itself.
        queue: Its requests.
        items: Its items.
        kept: What is kept.
        failed: Failed requests.
        spilled: Orders of requests with spilled items.
    """

    __slots__ = ("_tag", "failed", "head", "items", "kept", "partition", "queue", "spilled")

    def __init__(self, job: str, partition: int = 0) -> None:
        name = quote(job, safe="")  # no brace of it can end the hash tag
        self._tag = f"{{{name}.{partition}}}"
        self.head: str = f"{{{name}}}:job"
        self.partition: str = f"{self._tag}:m"
        self.queue: str = f"{self._tag}:q"
        self.items: str = f"{self._tag}:i"
        self.kept: str = f"{self._tag}:k"
        self.failed: str = f"{self._tag}:f"
        self.spilled: str = f"{self._tag}:p"

    @property
    def all(self) -> list[str]:
        """The six keys that steps declare first."""
        return [self.partition, self.queue, self.items, self.kept, self.failed, self.spilled]

    def seen(self, subset: int) -> str:
        """Return the key of a set of marks."""
        return f"{self._tag}:s:{subset}"

    def spilled_by(self, order: int) -> str:
        """Return the key of the items that a request has spilled."""
        return f"{self.spilled}:{order}"


def mark_of(fingerprint: bytes) -> tuple[int, int]:
    """Return the set and the mark of a fingerprint: 76 bits, so that of 10^9 fingerprints none is taken for another."""
    digest = blake2b(fingerprint, digest_size=10).digest()
    return int.from_bytes(digest[8:], "big") % SUBSETS, int.from_bytes(digest[:8], "big", signed=True)


def key_of(place: Place | Row) -> bytes:
    """Return the sort key of a request: bytes that compare as its lane, minus priority, minus share and order do."""
    return key_at(place[1], (place[2], place[3], place[0]))


def key_at(lane: int, key: SortKey) -> bytes:
    """Return the sort key of a request of a lane."""
    priority, share, order = key
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


def start_of_lane(lane: int) -> bytes:
    """Return what all keys of a lane are above."""
    return struct.pack(">Q", lane + _MIDDLE)


def end_of_lane(lane: int) -> bytes:
    """Return what all keys of a lane are below."""
    return struct.pack(">Q", lane + _MIDDLE) + b"\xff" * (KEY_BYTES - 7)


@cache
def scripts() -> Mapping[str, tuple[str, str]]:
    """Read the scripts: of each name its SHA-1, by which a server knows it, and its text."""
    found = {}
    for path in sorted((Path(__file__).parent / "scripts").glob("*.lua")):
        text = path.read_text("utf-8")
        found[path.stem] = sha1(text.encode(), usedforsecurity=False).hexdigest(), text
    return found
