"""Answers to requests for robots.txt, kept so that a later run need not ask for them again before they expire.

What is kept is the answer itself, not the rules made of it: another release, or other settings, may read it otherwise.
It is bounded: a long file is not kept, and of many the oldest are dropped. What is not kept is asked for again.
"""

from __future__ import annotations

import msgspec

__all__ = ["Answers", "KeptAnswer"]

MOST_BODY_BYTES = 100_000
"""The longest file that is kept."""

MOST_BYTES = 8_000_000
"""What is kept of all files together."""

_OVERHEAD = 200  # bytes that an answer takes besides its body


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One whole answer.

    Attributes:
        status: After redirects.
        body: The file; empty for a status that makes no use of it.
        expires_at: When it is to be asked for again; epoch seconds where it is stored, the run clock in memory.
    """

    status: int
    body: bytes
    expires_at: float


class Answers:
    """The answers of one crawl's origins."""

    __slots__ = ("_by_origin", "_bytes")

    def __init__(self) -> None:
        self._by_origin: dict[str, KeptAnswer] = {}
        self._bytes = 0

    def keep(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Keep an origin's answer in place of an earlier one."""
        self._drop(origin)
        body = body if 200 <= status < 300 else b""
        if len(body) > MOST_BODY_BYTES:
            return
        self._by_origin[origin] = KeptAnswer(status, body, expires_at)
        self._bytes += len(body) + _OVERHEAD
        while self._bytes > MOST_BYTES:
            self._drop(next(iter(self._by_origin)))

    def fresh(self, origin: str, now: float) -> KeptAnswer | None:
        """An origin's answer, unless it has expired or there is none."""
        answer = self._by_origin.get(origin)
        return answer if answer is not None and answer.expires_at > now else None

    def state(self, now: float, ahead: float) -> dict[str, KeptAnswer]:
        """All that are fresh, to be stored; the run clock is ``ahead`` seconds behind the clock that is stored."""
        return {
            origin: KeptAnswer(answer.status, answer.body, answer.expires_at + ahead)
            for origin, answer in self._by_origin.items()
            if answer.expires_at > now
        }

    def take_up(self, state: dict[str, KeptAnswer], ahead: float, latest: float) -> None:
        """Go on from what was stored; an answer that expires after ``latest`` is of a clock that was set back."""
        for origin, answer in state.items():
            self.keep(origin, answer.status, answer.body, min(answer.expires_at - ahead, latest))

    def _drop(self, origin: str) -> None:
        answer = self._by_origin.pop(origin, None)
        if answer is not None:
            self._bytes -= len(answer.body) + _OVERHEAD
