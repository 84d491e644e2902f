"""The waiter of one robots.txt: it has the file parsed while its place is held, and hands it to the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trawl.http import Outcome, Response
from trawl.robots import RobotsFile
from trawl.scheduler import Grant

__all__ = ["RobotsWaiter"]


class RobotsWaiter:
    """Waits for one robots.txt."""

    __slots__ = ("_heard", "_parse", "_read", "grant", "parent")

    def __init__(
        self, parse: Callable[[Response], Awaitable[RobotsFile]], heard: Callable[[Outcome, RobotsFile | None], None]
    ) -> None:
        self._parse = parse
        self._heard = heard
        self._read: tuple[Response, RobotsFile] | None = None
        self.grant: Grant | None = None
        self.parent: Grant | None = None

    async def read(self, response: Response | None) -> None:
        """Parse a file that has come; call it while its place is held. A checkpoint if the file is long.

        A site of many hosts could send files faster than they are parsed, so the places bound how many wait for it.
        """
        if response is not None:
            self._read = response, await self._parse(response)

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome."""
        read, self._read, self.grant = self._read, None, None
        # A middleware may have made another response.
        self._heard(outcome, read[1] if read is not None and read[0] is outcome.response else None)
