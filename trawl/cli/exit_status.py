"""The command's exit statuses."""

from __future__ import annotations

__all__ = ["FAILED", "INTERRUPTED", "OK", "USAGE", "status_of"]

OK = 0
"""The crawl ended by itself."""

FAILED = 1
"""It ended on an error, or could not begin: start failed, a feed failed, the spider could not be loaded; or its memory
passed its limit, and whatever watches over it is to start it again."""

USAGE = 2
"""Wrong usage or wrong settings: nothing was started."""

INTERRUPTED = 130
"""Stopped by Ctrl-C: 128 and the number of SIGINT, as shells say it."""


def status_of(reason: str) -> int:
    """Return the exit status for the reason that a crawl ended for."""
    if reason in ("start_error", "feed_error", "memusage_exceeded"):
        return FAILED
    if reason in ("shutdown", "cancelled"):
        return INTERRUPTED
    return OK
