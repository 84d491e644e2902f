"""Goes on when nothing is pending: asks those that are connected to Scrapy's signal ``spider_idle``, once a round.

Theory of operation. The dispatcher returns when the crawl is idle. If somebody hears the signal, a round begins: it
counts as one open request, as ``start()`` does, so the dispatcher goes on beside it and an ``async`` receiver may
fetch. What receivers give by ``crawler.engine.crawl(request)`` is stored when all have been asked, also when the crawl
ends meanwhile. Then:

===================================  =======================================================================
something is pending                 the round is over; the next one is when nothing is
nothing, and ``DontCloseSpider``     the round is over after :data:`PAUSE` seconds, as in Scrapy
nothing                              the crawl ends: as it likes, or with the reason of ``CloseSpider``
===================================  =======================================================================
"""

from __future__ import annotations

import trio

from trawl.engine.callbacks import Shields
from trawl.engine.job_items import BATCH
from trawl.engine.leases import Leases
from trawl.engine.state import State
from trawl.errors import CloseSpider, DontCloseSpider
from trawl.http import Request
from trawl.spiders import Spider
from trawl.spiders.signalling import IDLE

__all__ = ["PAUSE", "Idling", "is_asked_when_idle"]

PAUSE = 5.0
"""Seconds until they are asked again who want the crawl kept open and have nothing for it."""


class Idling:
    """Asks whoever hears ``spider_idle`` when nothing is pending.

    Args:
        spider: Whose crawler they are connected to.
        leases: Stores what they give.
        shields: Keep what is being stored from being given up.
        state: What is open.
    """

    __slots__ = ("_is_over", "_leases", "_scope", "_shields", "_spider", "_state")

    def __init__(self, spider: Spider, leases: Leases, shields: Shields, state: State) -> None:
        self._spider = spider
        self._leases = leases
        self._shields = shields
        self._state = state
        self._scope = trio.CancelScope()
        self._is_over = False

    @property
    def is_wanted(self) -> bool:
        """Whether the crawl may go on, and somebody is to be asked."""
        return not self._is_over and not self._state.is_ending and is_asked_when_idle(self._spider)

    def begin(self) -> None:
        """Begin a round: from now on it counts as open. :meth:`run` is to be started next."""
        self._scope = trio.CancelScope()
        self._state.opened(1)
        self._state.is_reading = True

    def stop(self) -> None:
        """Ask nobody any more; what was given is stored."""
        self._scope.cancel()

    async def run(self) -> None:
        """Ask each of them, store what they give, and see whether there is to be another round."""
        try:
            with self._scope:
                said = await self._ask()
                if self._state.is_idle:
                    await self._nothing_given(said)
        finally:
            self._state.is_reading = False
            self._state.ended()
            self._state.wakeup.set()

    async def _ask(self) -> Exception | None:
        await trio.lowlevel.checkpoint()  # nobody is asked if the crawl has been ended meanwhile
        crawler = self._spider.crawler
        with crawler.engine.taking() as given:
            try:
                return await crawler.signals.ask_idle(self._spider)
            finally:
                await self._store(given)  # noqa: ASYNC102 - shielded, until the crawl is cancelled

    async def _store(self, given: list[Request]) -> None:
        with self._shields.shielded():
            while given:
                await self._leases.push(given[:BATCH], depth=0, is_start=True)
                del given[:BATCH]
                await trio.lowlevel.checkpoint()

    async def _nothing_given(self, said: Exception | None) -> None:
        if isinstance(said, DontCloseSpider):
            await trio.sleep(PAUSE)
            return
        self._is_over = True
        if isinstance(said, CloseSpider):
            self._state.end(said.reason)


def is_asked_when_idle(spider: Spider) -> bool:
    """Whether something is connected to ``spider_idle`` of the spider's crawler."""
    crawler = getattr(spider, "crawler", None)
    return crawler is not None and crawler.signals.is_heard(IDLE)
