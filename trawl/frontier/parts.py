"""The parts of a job that several processes share: which part a host is in, and what changes hands.

The hosts of a job in a server are in *parts*, by registrable domain. A *session* is one process's membership in the
job. Each part has one session at most that *owns* it: only the owner sends to its hosts, so the throttle of that
process is exact for them. A request that another session finds is stored at once, and is *received* here.

The store hands parts out; sessions come and go. Whoever runs the crawl reads one change after the other
(:meth:`JobSession.next_change <trawl.frontier.redis.sessions.JobSession.next_change>`)::

    parts received     parts are ours: their lanes are in the frontier's memory, with what was kept of them
    parts required     by another session: nothing more is sent to their hosts; when nothing of a part is under way any
                       more it is given back, with what is to be kept of it
    requests received  that other sessions have found: they are in the frontier's memory
    items received     that other sessions have given: they are in the outbox of the one that exports
    start received     this session is to read ``start()``
    job finished       nothing is pending in the job, nothing is under way and ``start()`` was read: the crawl ends

A lane has a number of 64 bits, with a sign. In a server its top ten bits are the lane's part, and the others are of a
hash of its key, so that the lanes of a part stand together. In a directory all are of the hash.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import attrs
import msgspec

if TYPE_CHECKING:
    from tldextract import TLDExtract

    from trawl.frontier.base import LaneKey

__all__ = [
    "HELD",
    "PARTS",
    "Change",
    "Counts",
    "ItemsReceived",
    "JobFinished",
    "PartsReceived",
    "PartsRequired",
    "RequestsReceived",
    "SessionState",
    "StartReceived",
    "domain_of",
    "is_held",
    "number_in",
    "part_in",
    "part_of",
    "part_of_lane",
    "suffixes_digest",
]

PARTS = 1024
"""Parts of a job in a server. Each registrable domain is in one."""

HELD = int.from_bytes(b"held", "big")
"""The number of the lane of held requests; in a server each part has one, whose other bits are these."""

_REST_BITS = 54
_REST = (1 << _REST_BITS) - 1
_MIDDLE = 1 << 63


def is_held(number: int) -> bool:
    """Return whether the lane of a number is one of held requests."""
    return number & _REST == HELD


def number_in(part: int, rest: int) -> int:
    """Return the number of a lane of a part."""
    return (part << _REST_BITS | rest & _REST) - _MIDDLE


def part_in(number: int) -> int:
    """Return the part of a lane's number."""
    return number + _MIDDLE >> _REST_BITS


@lru_cache(maxsize=1 << 16)
def part_of(origin: str) -> int:
    """Return the part in which the requests of an origin are: it is by the hash of its :func:`domain_of`."""
    domain = domain_of(_host_of(origin))
    return int.from_bytes(blake2b(domain.encode(errors="backslashreplace"), digest_size=2).digest(), "big") % PARTS


def part_of_lane(lane: LaneKey) -> int:
    """Return the part in which a lane is: that of its origin, or where it has none, of its first scope."""
    ids, origin = lane[0], lane[1]
    return part_of(origin if origin or not ids else f"//{ids[0]}")


def domain_of(host: str) -> str:
    """Return the registrable domain of a host's name, or an address as it is.

    ``www.shop.co.uk`` is of ``shop.co.uk``, by the list of public suffixes that tldextract brings along, without the
    private ones. Of a top level that is not listed the last two labels count (publicsuffix.org: the rule is ``*``).
    """
    host = host.lower().rstrip(".")
    try:
        ip_address(host)
    except ValueError:
        suffix = _suffix_list().extract_str(host).suffix or host.rpartition(".")[2]
        above = host.removesuffix(suffix).rstrip(".").rpartition(".")[2]
        return f"{above}.{suffix}" if above else host
    return host


@cache
def suffixes_digest() -> str:
    """Return a digest of the list of public suffixes: with another list, hosts would be in other parts."""
    return blake2b("\n".join(sorted(_suffix_list().tlds)).encode(), digest_size=8).hexdigest()


@cache
def _suffix_list() -> TLDExtract:
    from tldextract import TLDExtract  # noqa: PLC0415 - takes 0.1 s

    return TLDExtract(suffix_list_urls=(), cache_dir=None)


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or origin
    except ValueError:
        return origin


@attrs.frozen
class PartsReceived:
    """Parts that are this session's from now on.

    Attributes:
        parts: Which.
        lanes: Their lanes with something pending; the frontier has them.
        pending: How many requests are pending in them, held ones included.
        kept: Of each part that has any, the values that its last owner kept, by name.
        unclean: Those that no owner gave back: what was sent to their hosts last is not known, and may have been sent
            until now.
    """

    parts: Sequence[int]
    lanes: Sequence[LaneKey] = ()
    pending: int = 0
    kept: Mapping[int, Mapping[str, bytes]] = {}
    unclean: Collection[int] = ()


@attrs.frozen
class PartsRequired:
    """Parts that other sessions wait for: they are still ours, and are to be given back, each as soon as it is free.

    Attributes:
        parts: Which.
    """

    parts: Sequence[int]


@attrs.frozen
class RequestsReceived:
    """Requests that other sessions have stored in parts of ours; the frontier has them.

    Attributes:
        lanes: Where they are.
        pending: How many they are.
    """

    lanes: Sequence[LaneKey]
    pending: int


@attrs.frozen
class StartReceived:
    """``start()`` is this session's to read: no other does, or the one that did is gone."""


@attrs.frozen
class JobFinished:
    """Nothing is pending or under way in the whole job, and ``start()`` was read."""


@attrs.frozen
class ItemsReceived:
    """Items of other sessions are in the outbox; only where this session exports them.

    Attributes:
        end: The position of the last.
    """

    end: int


class Counts(NamedTuple):
    """The counts of all sessions since the first of those began that work on the job now.

    Attributes:
        pages: Pages, as ``CLOSESPIDER_PAGECOUNT`` counts them.
        in_flight: Requests on the wire.
        items: Items.
        errors: Callbacks that failed.
    """

    pages: int = 0
    in_flight: int = 0
    items: int = 0
    errors: int = 0


Change: TypeAlias = PartsReceived | PartsRequired | RequestsReceived | ItemsReceived | StartReceived | JobFinished


class SessionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one session, stored with its renewals (:meth:`JobSession.say`) for those who look at the job.

    Attributes:
        since: When it began, in seconds since 1970.
        at: Seconds since then.
        pages: Responses so far.
        items: Items so far.
        queued: Requests that wait for any reason.
        in_flight: Requests on the wire.
        errors: Errors so far.
        rate: Pages a second, of late.
        waiting: What most of its requests wait for: how many they are, and for what, in words.
    """

    since: float
    at: float = 0.0
    pages: int = 0
    items: int = 0
    queued: int = 0
    in_flight: int = 0
    errors: int = 0
    rate: float = 0.0
    waiting: list[tuple[int, str]] = []

    def encode(self) -> bytes:
        """Return it as it is stored."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, blob: bytes) -> SessionState | None:
        """Return what was stored; None where it can't be read."""
        try:
            return msgspec.msgpack.decode(blob, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
