"""Responses to requests for robots.txt that a job stores for its next run.

A job stores responses instead of parsed rules, because the rules depend on the release and the settings. The size of
the cache is limited. Long files are not stored, and the oldest files are dropped. A file that is not in the cache is
fetched again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["RobotsCache", "RobotsEntry"]

MAX_BODY_BYTES = 100_000  # maximum size of a stored file
MAX_BYTES = 8_000_000  # maximum size of all stored files
_OVERHEAD = 200  # bytes that an entry takes in addition to its body


class RobotsEntry(msgspec.Struct, frozen=True, array_like=True):
    """One stored response.

    Attributes:
        status: Status code after redirects.
        body: The file; empty unless the status code is 2xx.
        expires_at: Time at which the file is fetched again, in seconds: event loop time in memory, time since the epoch
            in a job.
    """

    status: int
    body: bytes
    expires_at: float


class RobotsCache:
    """The responses of one crawl's origins. Mutable."""

    __slots__ = ("_by_origin", "_bytes")

    def __init__(self) -> None:
        self._by_origin: dict[str, RobotsEntry] = {}
        self._bytes = 0

    def store(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Store an origin's response, which replaces an earlier response of the origin."""
        self._drop(origin)
        body = body if 200 <= status < 300 else b""
        if len(body) > MAX_BODY_BYTES:
            return
        self._by_origin[origin] = RobotsEntry(status, body, expires_at)
        self._bytes += len(body) + _OVERHEAD
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._by_origin)))

    def get(self, origin: str, now: float) -> RobotsEntry | None:
        """Return an origin's response; None if there is none or it has expired."""
        answer = self._by_origin.get(origin)
        return answer if answer is not None and answer.expires_at > now else None

    def to_state(self, now: float, ahead: float) -> dict[str, RobotsEntry]:
        """Return the unexpired responses, for a job. ``ahead`` is added to event loop times to get epoch seconds."""
        return {
            origin: RobotsEntry(answer.status, answer.body, answer.expires_at + ahead)
            for origin, answer in self._by_origin.items()
            if answer.expires_at > now
        }

    def restore(self, state: dict[str, RobotsEntry], ahead: float, latest: float) -> None:
        """Load the responses of a job.

        If a response expires after ``latest``, the clock was set back, and the response expires at ``latest`` instead.
        """
        for origin, answer in state.items():
            self.store(origin, answer.status, answer.body, min(answer.expires_at - ahead, latest))

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the responses of origins for which ``is_gone`` returns true. Another process owns these origins now."""
        for origin in [origin for origin in self._by_origin if is_gone(origin)]:
            self._drop(origin)

    def _drop(self, origin: str) -> None:
        answer = self._by_origin.pop(origin, None)
        if answer is not None:
            self._bytes -= len(answer.body) + _OVERHEAD
