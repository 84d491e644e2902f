"""The outputs of a callback: its requests in batches to the leases, its items to their writer.

An output is taken without waiting where that can be done. Requests are held until the callback has ended, and stored
with its acknowledgement; those of a callback that gives many are stored on the way.
"""

from __future__ import annotations

from typing import Protocol

import trio

from trawl.engine.callbacks import InvalidOutput
from trawl.engine.items import CallbackItems, ItemWriter
from trawl.engine.limits import Full
from trawl.errors import ItemLost
from trawl.events import Events, ItemScraped
from trawl.http import Request, Response
from trawl.items import is_item

__all__ = ["BATCH", "MAX_UNFILTERED", "CallbackOutputs"]

BATCH = 100
"""Requests of one callback that are held before they are stored (C4), and items that it gives before others may run:
a callback may yield a million, or never end."""

MAX_UNFILTERED = 10_000
"""Requests with ``dont_filter`` that one callback holds to its end, with a job: stored before, they would be stored
again when a kill has the callback run anew, for nothing tells that they were. Beyond it they are."""


class RequestStore(Protocol):
    """Stores requests that a callback has given before it has ended."""

    async def push(self, requests: list[Request], *, depth: int, source: Response | None = None) -> object:
        """Take in requests found at ``depth``, on ``source``."""
        ...


class CallbackOutputs:
    """The outputs of one callback.

    Args:
        outlet: Where items go.
        store: Where requests go that are too many to be held.
        depth: Of its requests, in links.
        source: The response that the callback was given.
        events: Told of its items.

    Attributes:
        requests: Those that are not stored yet; the end of the callback stores them with its acknowledgement.
        items: How many items it gave so far.
        failure: Why the request counts as failed; None: it does not.
        is_cut: It gave an item more than the crawl is to deliver, and was cut off there.
    """

    __slots__ = (
        "_depth",
        "_events",
        "_kept",
        "_lost",
        "_outlet",
        "_source",
        "_store",
        "failure",
        "is_cut",
        "items",
        "requests",
    )

    def __init__(
        self,
        outlet: ItemWriter | CallbackItems,
        store: RequestStore,
        depth: int,
        source: Response | None = None,
        events: Events | None = None,
    ) -> None:
        self._events = Events() if events is None else events
        self._outlet = outlet
        self._store = store
        self._depth = depth
        self._source = source
        self.requests: list[Request] = []
        self._kept = 0  # of these, the first so many have ``dont_filter`` and stay until the end
        self._lost = 0
        self.items: int = 0
        self.failure: str | None = None
        self.is_cut: bool = False

    @property
    def _page(self) -> str:
        return "" if self._source is None else self._source.url

    @property
    def source(self) -> Response | None:
        """The response that the callback was given."""
        return self._source

    def take_nowait(self, output: object) -> bool:
        """Take one output if that needs no waiting; False when it does.

        Raises:
            InvalidOutput: It is neither a request nor an item.
        """
        if isinstance(output, Request):
            if len(self.requests) - self._kept >= BATCH:
                return False
            self.requests.append(output)
            return True
        if output is None:
            return True
        if type(output) is not dict and not is_item(output):
            raise InvalidOutput(output)
        try:
            # Each hundredth takes the way that is a checkpoint: others run beside a callback without an end.
            if (self.items + self._lost) % BATCH == BATCH - 1 or not self._outlet.put_nowait(output, self._page):
                return False
        except ItemLost:
            self._lost += 1
            return True  # it is told and counted, and the callback goes on
        self.items += 1
        if ItemScraped in self._events.wanted:
            self._events.tell(ItemScraped(output, self._source))
        return True

    async def take(self, output: object) -> None:
        """Take one output, waiting for room. Always a checkpoint.

        Raises:
            Full: It is an item more than the crawl is to deliver.
        """
        await trio.lowlevel.checkpoint()
        if isinstance(output, Request):
            await self._store.push(self._full(), depth=self._depth, source=self._source)
            self.requests.append(output)
        else:
            try:
                finished = await self._outlet.put(output, self._page)
            except ItemLost:
                self._lost += 1
                return
            except Full:
                self.is_cut = True
                raise
            self.items += 1
            if finished is not None and ItemScraped in self._events.wanted:
                self._events.tell(ItemScraped(finished, self._source))

    def _full(self) -> list[Request]:
        """Take out the requests that are to be stored now.

        With a job those with ``dont_filter`` stay. They are not looked at again: a callback may give thousands.
        """
        if not self._outlet.is_lasting or len(self.requests) >= MAX_UNFILTERED:
            full, self.requests, self._kept = self.requests, [], 0
            return full
        full = self.requests[self._kept :]
        self.requests[self._kept :] = [request for request in full if request.dont_filter]
        self._kept = len(self.requests)
        return [request for request in full if not request.dont_filter]
