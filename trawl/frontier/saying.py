"""The state of a session of a shared job, which it stores with its renewals for those who look at the job."""

from __future__ import annotations

import msgspec

__all__ = ["Saying"]


class Saying(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one session.

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
    def decode(cls, blob: bytes) -> Saying | None:
        """Return what was stored; None where it can't be read."""
        try:
            return msgspec.msgpack.decode(blob, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
