"""A redirect or a retry takes the place of its request, in one atomic step.

It is a value, not a nested fetch: it waits for its own turn in its own lane, holds nothing meanwhile, and is never
absent from the count of what is open.
"""

from __future__ import annotations

import logging

import trio

from trawl.engine.hits import Hits
from trawl.engine.intake import Intake, page_entry
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.state import State
from trawl.engine.turn import Turn
from trawl.errors import DownloadError
from trawl.frontier import Frontier, Record
from trawl.http import Outcome, Replace
from trawl.observe import Stats
from trawl.scheduler import Chooser, Entry

__all__ = ["Succession"]

logger: logging.Logger = logging.getLogger("trawl.engine")


class Succession:
    """Puts the next step of a chain in the place of the last one."""

    __slots__ = ("_chooser", "_frontier", "_gates", "_hits", "_intake", "_state", "_stats")

    def __init__(
        self,
        *,
        intake: Intake,
        frontier: Frontier,
        chooser: Chooser,
        gates: RobotsGates,
        stats: Stats,
        state: State,
        hits: Hits | None = None,
    ) -> None:
        self._intake = intake
        self._frontier = frontier
        self._chooser = chooser
        self._gates = gates
        self._stats = stats
        self._state = state
        self._hits = hits

    async def replace(self, turn: Turn, then: Replace) -> str | None:
        """Queue ``then.request`` in the place of the turn's, or say why it ends here: the statistic that counts it."""
        not_before = trio.current_time() + then.delay if then.delay else 0.0
        if turn.entry.waiter is not None:
            await self._replace_direct(turn, then, not_before)
            return None
        lease = turn.lease
        if then.is_new_target:
            successor = await self._intake.redirected(lease, then.request)
            if isinstance(successor, str):
                return successor
        else:
            successor = Record(
                then.request, lease.scopes, lease.origin, lease.fingerprint, share=lease.share, amounts=lease.amounts
            )
            then.request.depth = lease.request.depth
        successor.not_before = max(successor.not_before, not_before)
        if not self._intake.can_be_stored(successor):
            return "unstorable_requests"
        await self._frontier.replace(lease, successor)
        self._count(then)
        await self._push(page_entry(successor), not_before)
        return None

    async def _replace_direct(self, turn: Turn, then: Replace, not_before: float) -> None:
        """A direct fetch keeps its waiter."""
        waiter = turn.entry.waiter
        assert waiter is not None
        then.request.depth = turn.entry.request.depth
        request = then.request
        try:
            entry = await self._intake.direct_entry(request, waiter, passes_gate=turn.entry.passes_gate)
        except Exception as error:  # a user's manager
            logger.exception("%r: the throttling manager could not name its scopes", request)
            self._stats.inc("scope_errors")
            waiter.deliver(Outcome(request, error=DownloadError(f"no throttling scopes: {error!r}", url=request.url)))
            return
        waiter.entry, waiter.turn = entry, None
        self._count(then)
        await self._push(entry, not_before)

    async def _push(self, entry: Entry, not_before: float) -> None:
        if self._hits is not None and await self._hits.took(entry):
            return
        self._gates.ensure(entry)
        self._chooser.push(entry, trio.current_time(), not_before)
        self._state.pulse.beat()

    def _count(self, then: Replace) -> None:
        self._stats.inc(f"{then.reason}_count")
