"""The time limits of one exchange, kept by one cancel scope whose deadline moves.

Theory of operation: an exchange has one limit for the whole and one for each thing it waits for. A scope for each would
cost more than reading a small page; moving a deadline costs a third of a scope. So there is one scope, its deadline is
the earlier one of the two, and when it has passed the phase tells which limit it was.
"""

from __future__ import annotations

import trio

from trawl.errors import ConnectTimeout, DownloadError, DownloadTimeout, ReadTimeout
from trawl.transport.settings import TransportSettings

__all__ = ["Watch"]

CONNECTING, SENDING, READING = range(3)


class Watch:
    """Limits an exchange; hot: mutable.

    Attributes:
        scope: To be entered once, around the whole exchange.
    """

    __slots__ = ("_connect", "_ends_at", "_limit", "_phase", "_read", "scope")

    def __init__(self, now: float, limit: float, settings: TransportSettings) -> None:
        self._limit = limit
        self._connect = settings.download_connect_timeout
        self._read = settings.download_read_timeout
        self._ends_at = now + limit
        self._phase = SENDING
        self.scope: trio.CancelScope = trio.CancelScope(deadline=min(self._ends_at, now + self._read))

    def connecting(self, now: float) -> None:
        """From ``now`` on a connection is opened."""
        self._phase = CONNECTING
        self.scope.deadline = min(self._ends_at, now + self._connect)

    def sending(self, now: float) -> None:
        """From ``now`` on the server is to take something."""
        self._phase = SENDING
        self.scope.deadline = min(self._ends_at, now + self._read)

    def reading(self, now: float) -> None:
        """From ``now`` on the server is to send something."""
        self._phase = READING
        self.scope.deadline = min(self._ends_at, now + self._read)

    def still_reading(self) -> None:
        """Small things have just been sent: the deadline is right as it is, only the words are not."""
        self._phase = READING

    def error(self) -> DownloadError:
        """Which limit has passed."""
        if self.scope.deadline >= self._ends_at:
            return DownloadTimeout(f"not done within {self._limit:g} s")
        if self._phase == CONNECTING:
            return ConnectTimeout(f"no connection within {self._connect:g} s")
        if self._phase == SENDING:
            return ReadTimeout(f"the server took nothing for {self._read:g} s")
        return ReadTimeout(f"nothing came for {self._read:g} s")
