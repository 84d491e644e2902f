"""Checks from outside whether a history kept its promises, by the site's log, the store's keys and the records.

The checker shares no code with trawl. It reads values and counts them. The names of the keys follow the documented
form.
"""

from __future__ import annotations

import json
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from tests.histories.site import Hit
from tests.histories.world import DELAY, SCOPES, scopes_of

__all__ = ["Found", "check", "early", "over_quota", "read_keys", "read_records", "together"]

SLACK = 0.005
"""Seconds by which two requests may arrive closer together than they were sent."""


@attrs.frozen(kw_only=True)
class Found:
    """The findings of the checker.

    Attributes:
        pages: Pages of the site.
        fetched: Requests that the site received.
        seconds: Seconds from the first request to the last.
        lost: Pages without a record.
        twice: Superfluous records.
        unknown: Records of URLs that are not pages of the site.
        early: Requests to a host before its delay had passed.
        early_shared: Requests of a shared scope before its delay had passed.
        over: Requests of a shared scope beyond its quota.
        most: Maximum number of simultaneous requests to a host.
        left: Keys of the store that should be empty after the job has finished.
    """

    pages: int
    fetched: int
    seconds: float
    lost: int
    twice: int
    unknown: int
    early: int
    early_shared: int
    over: int
    most: int
    left: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether there are no violations."""
        wrong = self.lost or self.twice or self.unknown or self.early or self.early_shared or self.over or self.left
        return not wrong and self.most <= 1


def check(urls: set[str], hits: Sequence[Hit], records: Sequence[str], keys: Mapping[str, int]) -> Found:
    """Count the violations.

    Args:
        urls: All pages. Each must be in the records once.
        hits: The requests that the site received.
        records: The URLs of the exported records, in order.
        keys: The sizes of the store's keys, by the part of the key after the job's name.
    """
    counts = Counter(records)
    by_host: dict[str, list[float]] = defaultdict(list)
    by_scope: dict[str, list[float]] = {scope: [] for scope in SCOPES}
    for hit in hits:
        by_host[hit.host].append(hit.at)
        for scope in scopes_of(hit.path):
            by_scope[scope].append(hit.at)
    instants = [hit.at for hit in hits]
    return Found(
        pages=len(urls),
        fetched=len(hits),
        seconds=round(max(instants) - min(instants), 1),
        lost=len(urls - set(counts)),
        twice=sum(count - 1 for count in counts.values()),
        unknown=len(set(counts) - urls),
        early=sum(early(each, DELAY) for each in by_host.values()),
        early_shared=sum(early(by_scope[scope], limits.get("delay", 0.0)) for scope, limits in SCOPES.items()),
        over=sum(
            over_quota(by_scope[scope], int(limits["quota"]), limits["window"])
            for scope, limits in SCOPES.items()
            if "quota" in limits
        ),
        most=together(hits),
        left=sorted(key for key, count in keys.items() if count),
    )


def early(instants: Iterable[float], delay: float) -> int:
    """Count the times that follow another time by less than the delay."""
    return sum(later - sooner < delay - SLACK for sooner, later in pairwise(sorted(instants)))


def over_quota(instants: Iterable[float], quota: int, window: float) -> int:
    """Count the times beyond the quota. A span shorter than ``k`` windows touches at most ``k + 1`` windows."""
    times = sorted(instants)
    count = 0
    for last, at in enumerate(times):
        firsts = enumerate(range(last - 2 * quota, -1, -quota), start=1)
        count += any(at - times[first] < windows * window - SLACK for windows, first in firsts)
    return count


def together(hits: Iterable[Hit]) -> int:
    """Return the maximum number of requests that one host handled at once."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for hit in hits:
        changes[hit.host] += [(hit.at, 1), (hit.until, -1)]
    most = 0
    for each in changes.values():
        now = 0
        for _, change in sorted(each):
            now += change
            most = max(most, now)
    return most


def read_records(path: Path) -> list[str]:
    """Read the URLs of the records in a file of JSON lines."""
    return [json.loads(line)["url"] for line in path.read_text(encoding="utf-8").splitlines()]


def read_keys(port: int, job: str) -> dict[str, int]:
    """Return the sizes of the keys in a store that must be empty after a job has finished."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rwb") as wire:
        left = {name: _ask(wire, count, f"{{{job}}}:{name}") for name, count in _EMPTY.items()}
        left["start"] = int(_ask(wire, "HGET", f"{{{job}}}:job", "start") != b"done")
        return left


_EMPTY = {"q": "ZCARD", "a": "ZCARD", "u": "ZCARD", "n": "HLEN", "i": "XLEN", "f": "ZCARD", "p": "SCARD", "own": "HLEN"}


def _ask(wire: Any, *words: str) -> Any:
    """Send a command. Returns the reply, a number or bytes."""
    wire.write(b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words]))
    wire.flush()
    answer = wire.readline().rstrip()
    if answer[:1] == b":":
        return int(answer[1:])
    if answer[:1] == b"$":
        return wire.read(int(answer[1:]) + 2)[:-2] if answer != b"$-1" else b""
    raise ValueError(f"the store says {answer!r}")
