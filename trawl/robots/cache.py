"""Responses to requests for robots.txt that a job keeps for its next run.

A job stores responses, not parsed rules, which depend on release and settings. The cache is bounded: long files are not
stored, and the oldest are dropped. These are fetched again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["RobotsCache", "RobotsEntry"]

MAX_BODY_BYTES = 100_000  # the longest file that is stored
MAX_BYTES = 8_000_000  # the maximum of all stored files
_OVERHEAD = 200  # bytes that an answer takes besides its body


class RobotsEntry(msgspec.Struct, frozen=True, array_like=True):
    """One stored answer.

    Attributes:
        status: The status after redirects.
        body: The file; empty unless the status is 2xx.
        expires_at: The instant at which to fetch it again: on the run clock in memory, in epoch seconds in a job.
    """

    status: int
    body: bytes
    expires_at: float


class RobotsCache:
    """The answers of one crawl's origins. Mutable."""

    __slots__ = ("_by_origin", "_bytes")

    def __init__(self) -> None:
        self._by_origin: dict[str, RobotsEntry] = {}
        self._bytes = 0

    def store(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Store an origin's answer instead of an earlier one."""
        self._drop(origin)
        body = body if 200 <= status < 300 else b""
        if len(body) > MAX_BODY_BYTES:
            return
        self._by_origin[origin] = RobotsEntry(status, body, expires_at)
        self._bytes += len(body) + _OVERHEAD
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._by_origin)))

    def get(self, origin: str, now: float) -> RobotsEntry | None:
        """Return an origin's answer; None if there is none or it has expired."""
        answer = self._by_origin.get(origin)
        return answer if answer is not None and answer.expires_at > now else None

    def to_state(self, now: float, ahead: float) -> dict[str, RobotsEntry]:
        """Return the fresh answers for a job, with ``ahead`` seconds added to the run clock for epoch seconds."""
        return {
            origin: RobotsEntry(answer.status, answer.body, answer.expires_at + ahead)
            for origin, answer in self._by_origin.items()
            if answer.expires_at > now
        }

    def restore(self, state: dict[str, RobotsEntry], ahead: float, latest: float) -> None:
        """Load the answers of a job; a later expiry than ``latest`` (the clock was set back) is reduced to it."""
        for origin, answer in state.items():
            self.store(origin, answer.status, answer.body, min(answer.expires_at - ahead, latest))

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the answers of origins that are told: another process goes on with them."""
        for origin in [origin for origin in self._by_origin if is_gone(origin)]:
            self._drop(origin)

    def _drop(self, origin: str) -> None:
        answer = self._by_origin.pop(origin, None)
        if answer is not None:
            self._bytes -= len(answer.body) + _OVERHEAD
