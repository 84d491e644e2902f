"""The parts of a job that several processes can share: which part a host is in, and how lanes are numbered.

A lane has a number of 64 bits, with a sign. In a server its top ten bits are the lane's part, and the others are of a
hash of its key, so that the lanes of a part stand together. In a directory all are of the hash.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tldextract import TLDExtract

    from trawl.frontier.base import LaneKey

__all__ = [
    "HELD",
    "PARTS",
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
