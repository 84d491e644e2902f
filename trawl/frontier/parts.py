"""The parts of a job that several processes share.

Maps hosts to parts, and defines the changes that a session receives.

The hosts of a job in a server are divided into *parts*, by registrable domain. A *session* is one process's membership
in the job. At most one session *owns* a part. Only the owner sends to the hosts of the part, so the owner's throttle
counts every request to them. If another session finds a request for these hosts, it stores the request immediately, and
the owner *receives* it.

The store assigns parts to sessions when sessions join and leave. The engine reads one :data:`Change` after another
(:meth:`JobSession.next_change <trawl.frontier.redis.sessions.JobSession.next_change>`).

A lane has a signed 64-bit number. In a directory, all bits come from a hash of the lane's key. In a server, the top ten
bits are the number of the lane's part and the other bits come from the hash, so that the lanes of a part are stored
next to each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import attrs

if TYPE_CHECKING:
    from tldextract import TLDExtract

    from trawl.frontier.base import LaneKey

__all__ = [
    "HELD",
    "PARTS",
    "Change",
    "ItemsReceived",
    "JobFinished",
    "PartsReceived",
    "PartsRequired",
    "RequestsReceived",
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
"""Number of parts of a job in a server. Each registrable domain is in one part."""

HELD = int.from_bytes(b"held", "big")
"""Number of the lane of held requests. In a server, each part has one, and these are the low bits of its number."""

_REST_BITS = 54
_REST = (1 << _REST_BITS) - 1
_MIDDLE = 1 << 63


def is_held(number: int) -> bool:
    """Return whether the lane with this number is a lane of held requests."""
    return number & _REST == HELD


def number_in(part: int, rest: int) -> int:
    """Return the number of a lane. ``part`` gives its top ten bits, and ``rest`` the other bits."""
    return (part << _REST_BITS | rest & _REST) - _MIDDLE


def part_in(number: int) -> int:
    """Return the part of the lane with this number."""
    return number + _MIDDLE >> _REST_BITS


@lru_cache(maxsize=1 << 16)
def part_of(origin: str) -> int:
    """Return the part of an origin's requests. It is a hash of the origin's registrable domain."""
    domain = domain_of(_host_of(origin))
    return int.from_bytes(blake2b(domain.encode(errors="backslashreplace"), digest_size=2).digest(), "big") % PARTS


def part_of_lane(lane: LaneKey) -> int:
    """Return the part of a lane's origin, or of its first scope if it has no origin."""
    ids, origin = lane[0], lane[1]
    return part_of(origin if origin or not ids else f"//{ids[0]}")


def domain_of(host: str) -> str:
    """Return the registrable domain of a host name. An IP address is returned unchanged.

    For example, ``shop.co.uk`` is the registrable domain of ``www.shop.co.uk``. The rules are the list of public
    suffixes that tldextract contains, without the private suffixes. If a top-level domain is not listed, the
    registrable domain is the last two labels (publicsuffix.org: the default rule is ``*``).
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
    """Return a digest of the list of public suffixes. With a different list, a host may be in a different part."""
    return blake2b("\n".join(sorted(_suffix_list().tlds)).encode(), digest_size=8).hexdigest()


@cache
def _suffix_list() -> TLDExtract:
    from tldextract import TLDExtract  # noqa: PLC0415 - importing takes 0.1 s

    return TLDExtract(suffix_list_urls=(), cache_dir=None)


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or origin
    except ValueError:
        return origin


@attrs.frozen
class PartsReceived:
    """This session owns more parts from now on.

    Attributes:
        lanes: Lanes of these parts that have pending requests. The frontier has added them.
        pending: Number of pending requests in these parts, including held requests.
        kept: For each part with kept values, the values of its last owner, by name.
        unclean: Parts that their last owner did not release. It may have sent requests to their hosts until just now.
    """

    parts: Sequence[int]
    lanes: Sequence[LaneKey] = ()
    pending: int = 0
    kept: Mapping[int, Mapping[str, bytes]] = {}
    unclean: Collection[int] = ()


@attrs.frozen
class PartsRequired:
    """Other sessions wait for parts of this session.

    Send nothing more to their hosts, and release each part with its kept values when none of its requests is leased.
    """

    parts: Sequence[int]


@attrs.frozen
class RequestsReceived:
    """Other sessions have stored ``pending`` requests in parts of this session, and the frontier has added them."""

    lanes: Sequence[LaneKey]
    pending: int


@attrs.frozen
class StartReceived:
    """This session must read ``start()``, because no other session does or the session that did has ended."""


@attrs.frozen
class JobFinished:
    """No request is pending or in flight in the whole job, and ``start()`` was read."""


@attrs.frozen
class ItemsReceived:
    """Items of other sessions are in the outbox, up to position ``end``. Only a session that exports receives this."""

    end: int


Change: TypeAlias = PartsReceived | PartsRequired | RequestsReceived | ItemsReceived | StartReceived | JobFinished
