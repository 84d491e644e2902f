"""What a middleware of the user's is given when it is made: the crawl, as far as a middleware may see it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from trawl.blocking import Blocking
from trawl.http import Request, Response
from trawl.observe import Stats

__all__ = ["Surroundings"]


class Surroundings(Protocol):
    """The argument of a middleware's ``from_crawler``: the crawl that it is made for.

    Time, chance and blocking work come from here, so that a middleware works on the virtual clock of a test as it does
    in a real crawl.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by their upper-case names, with Scrapy's accessors (``getbool`` and the like)."""
        ...

    @property
    def stats(self) -> Stats:
        """Where everything is counted."""
        ...

    @property
    def spider(self) -> Any:
        """The spider, whose attributes a middleware may read."""
        ...

    @property
    def blocking(self) -> Blocking:
        """How work that blocks is done: ``await crawl.blocking.run(function, argument)``."""
        ...

    def now_utc(self) -> datetime:
        """Wall time now."""
        ...

    def random(self, name: str) -> random.Random:
        """A source of chance of one's own; ``name`` tells it from others."""
        ...

    async def fetch(self, request: Request) -> Response:
        """Send a request of one's own, in its turn; not while a middleware holds one (see the how-to)."""
        ...
