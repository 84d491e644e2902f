"""The time limits of one exchange, kept by one cancel scope whose deadline moves.

Theory of operation: an exchange has one limit for the whole and one for each thing it waits for. A scope for each would
cost more than reading a small page; moving a deadline costs a third of a scope. So there is one scope, its deadline is
the earlier one of the two, and when it has passed the phase tells which limit it was. It is entered at the first wait:
an exchange whose answer is there without waiting needs no limit.

Scopes must be left in the reverse order in which they were entered, so :meth:`Watch.start` must not be called inside a
scope or nursery of the exchange's own.
"""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Self

import trio

from trawl.errors import ConnectTimeout, DownloadError, DownloadTimeout, ReadTimeout
from trawl.transport.settings import TransportSettings

__all__ = ["Watch"]

CONNECTING, SENDING, READING = range(3)


class Watch:
    """Limits an exchange; to be entered once, around the whole of it. Hot: mutable."""

    __slots__ = ("_connect", "_deadline", "_ends_at", "_limit", "_phase", "_read", "_scope")

    def __init__(self, now: float, limit: float, settings: TransportSettings) -> None:
        self._limit = limit
        self._connect = settings.download_connect_timeout
        self._read = settings.download_read_timeout
        self._ends_at = now + limit
        self._phase = SENDING
        self._deadline = now + self._read
        self._scope: trio.CancelScope | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(kind, error, trace))

    def start(self) -> None:
        """Keep the limits from now on: something is about to be waited for."""
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=min(self._ends_at, self._deadline))
            self._scope.__enter__()

    @property
    def has_ended_it(self) -> bool:
        """Whether a limit has passed and cut the exchange off; :meth:`error` says which."""
        return self._scope is not None and self._scope.cancelled_caught

    def connecting(self, now: float) -> None:
        """From ``now`` on a connection is opened."""
        self._phase = CONNECTING
        self._move(now + self._connect)

    def sending(self, now: float) -> None:
        """From ``now`` on the server is to take something."""
        self._phase = SENDING
        self._move(now + self._read)

    def reading(self, now: float) -> None:
        """From ``now`` on the server is to send something."""
        self._phase = READING
        self._move(now + self._read)

    def writing(self) -> None:
        """What has come is written down: that is not the server's time, so only the limit for the whole holds."""
        self._move(inf)

    def still_reading(self) -> None:
        """Small things have just been sent: the deadline is right as it is, only the words are not."""
        self._phase = READING

    def _move(self, deadline: float) -> None:
        self._deadline = deadline
        if self._scope is not None:
            self._scope.deadline = min(self._ends_at, deadline)

    def error(self) -> DownloadError:
        """Which limit has passed."""
        if self._deadline >= self._ends_at:
            return DownloadTimeout(f"not done within {self._limit:g} s")
        if self._phase == CONNECTING:
            return ConnectTimeout(f"no connection within {self._connect:g} s")
        if self._phase == SENDING:
            return ReadTimeout(f"the server took nothing for {self._read:g} s")
        return ReadTimeout(f"nothing came for {self._read:g} s")
