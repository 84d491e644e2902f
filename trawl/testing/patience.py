"""How long the simulated client waits and how much it reads: what the real transport's settings say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from trawl.errors import DownloadError, DownloadTimeout, ReadTimeout
from trawl.http import Request

if TYPE_CHECKING:
    from trawl.transport import TransportSettings

__all__ = ["Patience"]


@attrs.frozen(kw_only=True)
class Patience:
    """The limits that the client sets itself.

    Attributes:
        connect: Seconds for a new connection.
        read: Seconds until something comes.
        whole: Seconds for the whole exchange.
        keep_alive: Seconds that an idle connection is kept.
        most_bytes: The largest body.
        truncates: Whether a larger one is cut there, and is no error.
    """

    connect: float = math.inf
    read: float = math.inf
    whole: float = 180.0
    keep_alive: float = math.inf
    most_bytes: float = math.inf
    truncates: bool = False

    @classmethod
    def of(cls, settings: TransportSettings | None) -> Patience:
        """What the settings say; the defaults without any."""
        if settings is None:
            return cls()
        return cls(
            connect=settings.download_connect_timeout,
            read=settings.download_read_timeout,
            whole=settings.download_timeout,
            keep_alive=settings.download_keepalive_timeout,
            most_bytes=settings.download_maxsize or math.inf,
        )

    def for_request(self, request: Request) -> Patience:
        """These limits with what the request's meta changes (``download_timeout``, ``download_maxsize``)."""
        timeout = request.meta_get("download_timeout")
        most_bytes = request.meta_get("download_maxsize")
        if timeout is None and most_bytes is None:
            return self
        return attrs.evolve(
            self,
            whole=self.whole if timeout is None else float(timeout) or math.inf,
            most_bytes=self.most_bytes if most_bytes is None else float(most_bytes) or math.inf,
            truncates=bool(request.meta_get("download_truncate")),
        )

    def cut(self, started_at: float, now: float) -> tuple[type[DownloadError], str, float]:
        """The error, its cause and its instant, of an exchange that is cut off at ``now``."""
        if now < started_at + self.whole:
            return ReadTimeout, f"nothing came for {self.read:g} s", now
        return DownloadTimeout, f"not done within {self.whole:g} s", now
