"""A thread that renews a session's lease while a callback blocks the event loop.

Normally the event loop renews the lease. While a callback blocks the loop, the loop can't renew it. Other processes
would then take over the parts of this process, fetch its pages again, and be blocked by the same page. So a thread
checks whether the loop still runs. If the loop is blocked, the thread renews the lease on its own connection. A blocked
loop sends no requests, so no request is sent too early. After :data:`MOST_LEASES` leases the thread stops, and other
processes take over.

The thread calls ``share.lua``, and from the response it uses only whether the session still exists. Ignoring the other
values is safe, because the script supports lost responses (:mod:`trawl.frontier.redis.sessions`).
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from trawl.frontier.redis.client import Address, Connect, StoreConnectionError
from trawl.tracebacks import blocking_line

if TYPE_CHECKING:
    from trawl.frontier.redis.sessions import JobSession

__all__ = ["MOST_LEASES", "LeaseKeeper"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

MOST_LEASES = 20.0
"""Maximum time for which the lease of a blocked event loop is renewed, as a multiple of the lease. 300 s by default."""

_LOOKS = 8.0  # number of checks by the thread during one lease
_BLOCKED_AFTER = 1.0 / 3.0  # fraction of a lease; the loop itself renews the lease after a quarter
_RENEWAL = 1.0 / 4.0  # fraction of a lease that a renewal by the thread may take


class LeaseKeeper:
    """Keeps the lease of one session, whose length is ``lease`` in seconds."""

    def __init__(self, session: JobSession, address: Address, connect: Connect, lease: float) -> None:
        self._session = session
        self._address = address
        self._connect = connect
        self._lease = lease
        self._ident = threading.get_ident()
        self._beat = self._renewed_at = time.monotonic()
        self._is_lost = False
        self._is_over = threading.Event()
        self._line = ""

    @property
    def is_lost(self) -> bool:
        """Whether the lease has ended because the event loop was blocked. Correct right after the blocking call."""
        return self._is_lost or self._silence() > self._lease

    async def run(self) -> None:
        """Keep the lease until this task is cancelled."""
        async with trio.open_nursery() as nursery:
            # The nursery waits for the thread, which ends at once, or after a renewal that has a time limit.
            nursery.start_soon(partial(trio.to_thread.run_sync, self._watch, limiter=trio.CapacityLimiter(1)))
            try:
                while True:
                    self._is_lost = self.is_lost
                    if self._is_lost:
                        seconds = time.monotonic() - self._beat
                        self._session.away_because = f"{self._line or 'a callback'} blocked it for {seconds:.0f} s"
                    self._beat = time.monotonic()
                    await trio.sleep(self._lease / _LOOKS)
            finally:
                self._is_over.set()

    def _silence(self) -> float:
        """Return the seconds since the event loop ran or the thread renewed the lease, whichever was later."""
        return time.monotonic() - max(self._beat, self._renewed_at)

    # Methods that run in the thread.

    def _watch(self) -> None:
        """Check several times per lease whether the event loop runs, until the job ends."""
        said = ""
        while not self._is_over.wait(self._lease / _LOOKS):
            blocked = time.monotonic() - self._beat
            if blocked < _BLOCKED_AFTER * self._lease:
                self._line = said = ""
                continue
            line = blocking_line(self._ident)
            self._line = self._line if line is None else f"{Path(line.filename).name}:{line.lineno}: `{line.line}`"
            is_over = blocked > MOST_LEASES * self._lease
            words = self._renew(blocked) if not is_over else "the lease is not renewed any longer; others continue"
            if words and words != said:
                logger.warning("job %s: %s has blocked this process for %.0f s: %s",
                               self._address.shown, self._line or "a callback", blocked, words)  # fmt: skip
                said = words

    def _renew(self, blocked: float) -> str:
        """Renew the lease, and return a message to log; "" if there is none."""
        at = time.monotonic()
        try:
            is_ours = trio.run(self._call)
        except Exception as error:  # the next check tries again
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            return f"its lease can't be renewed: {error}"
        if not is_ours or self._beat > at:
            return ""
        self._renewed_at = at
        return f"its lease is renewed meanwhile, for at most {MOST_LEASES * self._lease:.0f} s"

    async def _call(self) -> bool:
        seconds = _RENEWAL * self._lease
        with trio.move_on_after(seconds):
            async with self._connect(self._address) as server:
                (answer,) = await server.run([self._session.renewal(self._lease)])
            return bool(answer[0] == b"ok")
        raise StoreConnectionError(f"no response within {seconds:g} s")
