"""Who waits for a scope from which nothing will be let through any more is asked again whether it may go at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.scheduler.choose import Chooser
    from trawl.throttling.scope import Scope

__all__ = ["reconsider"]


def reconsider(chooser: Chooser, scope: Scope, now: float) -> None:
    """Have the best entry of every lane that waits for ``scope`` vetted at the next choice, before the scope is asked.

    Without it they would be refused when the scope opens, which a backoff may put off for minutes.
    """
    room = scope.waiting
    for lane in room.lanes() if room is not None else ():
        lane.head.is_vetted = False
        chooser.board.make_ready(lane, now)
