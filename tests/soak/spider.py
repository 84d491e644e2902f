"""A spider with all kinds of callbacks, which fail, wait, fetch and yield wrong values like users' callbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import trio

import trawl
from tests.soak.world import SHARED, World
from trawl.exceptions import DownloadError, HostGivenUp, HttpError, IgnoreRequest
from trawl.http import Request, Response, host_of, host_scope

__all__ = ["CALLED", "ERRED", "GIVEN", "Soak"]

CALLED, ERRED, GIVEN = 1, 2, 4
"""Events of a page: its callback was called, its errback was called, its item was delivered."""


class Soak(trawl.Spider):
    """Requests all pages, and records the result of each.

    Args:
        world: The web.
    """

    name = "soak"

    def __init__(self, world: World, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.world = world
        self.ends = bytearray(world.most + 1000)
        self.duplicates = 0
        self.failures = 0
        self.unreadable = 0
        self.mail = 0
        self.direct = 0
        self.pages: Counter[str] = Counter()

    async def start(self) -> AsyncGenerator[Any, None]:
        while (page := self.page()) is not None:
            yield page

    def page(self) -> Request | None:
        """Return a request for a page that was not requested yet."""
        number = self.world.next_page()
        if number is None:
            return None
        draw, url = self.world.draw(number), self.world.url(number)
        meta: dict[str, Any] = {}
        if 180 <= draw < 190:
            meta["delay"] = float(draw - 175)
        if 190 <= draw < 195:
            meta["dont_throttle"] = True
        if 200 <= draw < 300:
            meta["throttling_scopes"] = {host_of(url), SHARED}
        return Request(url, self.callback_of(draw), errback=self.erred, meta=meta, priority=(draw % 7 == 0) * 5)

    def callback_of(self, draw: int) -> Any:
        """Return one of four kinds of callbacks."""
        return (self.generates, self.generates_asynchronously, self.returns, self.returns_asynchronously)[draw % 4]

    def generates(self, response: Response, **kwargs: Any) -> Any:
        number = self.called(response)
        yield from self.outputs(response, number)
        self.may_fail(number)

    async def generates_asynchronously(self, response: Response, **kwargs: Any) -> Any:
        number = self.called(response)
        await self.take_time(number)
        for output in self.outputs(response, number):
            with trio.move_on_after(0.01):  # a cancel scope of user code around a yield must not affect the engine
                yield output
        if 310 <= self.world.draw(number) < 320:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0.5)
                yield None
        self.may_fail(number)

    def returns(self, response: Response, **kwargs: Any) -> Any:
        return list(self.outputs(response, self.called(response)))

    async def returns_asynchronously(self, response: Response, **kwargs: Any) -> Any:
        number = self.called(response)
        await self.take_time(number)
        return list(self.outputs(response, number))

    def called(self, response: Response) -> int:
        """Record the call of a page's callback, which must happen once and with the right response."""
        number = self.number_of(response.request)
        self.came(response)
        if self.ends[number]:
            self.world.wrong(f"page {number} had an end, and its callback was called")
        if response.status != 200:
            self.world.wrong(f"page {number} gave {response.status} to its callback")
        self.ends[number] |= CALLED
        return number

    def came(self, response: Response) -> None:
        """Record a received page, for the budgets of its scopes."""
        request: Any = response.request
        if not request.meta_get("dont_throttle"):
            self.pages.update(request.meta_get("throttling_scopes") or {host_scope(request.url)})

    def number_of(self, request: Any) -> int:
        """Return the number of the page that a request or its redirect is for."""
        path, _, wanted = request.url.partition("?for=")
        return int(wanted or path.rsplit("/", 1)[1])

    def outputs(self, response: Response, number: int) -> Iterator[Any]:
        """Yield an item, new requests and duplicates."""
        yield {"number": number}
        draw = self.world.draw(number)
        for _ in range(5 if 330 <= draw < 340 else draw % 2):
            page = self.page()
            if page is not None:
                yield page
        if draw % 3 == 0:
            self.duplicates += 1
            yield Request(response.url)
        if 350 <= draw < 360:
            self.mail += 1
            yield Request("mailto:a@a.example")

    async def take_time(self, number: int) -> None:
        """Wait or fetch a page, as some callbacks do first."""
        draw = self.world.draw(number)
        if 160 <= draw < 180:
            await trio.sleep(draw - 155)
        if 130 <= draw < 160:
            self.direct += 1
            url = f"http://{host_of(self.world.url(number + 1))}/direct/{number}"
            try:
                with trio.move_on_after(120 if draw < 150 else 2):  # some give up early
                    self.came(await self.fetch(Request(url)))
            except (DownloadError, IgnoreRequest):
                return

    def may_fail(self, number: int) -> None:
        """Raise an error, as some callbacks do last."""
        if 100 <= self.world.draw(number) < 130:
            self.failures += 1
            raise LookupError(f"page {number} has no title")

    def erred(self, error: Any) -> Any:
        """Record that a page failed once, and continue with another page."""
        number = self.number_of(error.request)
        if isinstance(error, HttpError):
            self.came(error.response)
        # A page behind an unreadable robots.txt counts as forbidden too.
        self.unreadable += isinstance(error, HostGivenUp) and "robots.txt" in error.cause
        if self.ends[number]:
            self.world.wrong(f"page {number} had an end, and its errback was called")
        self.ends[number] |= ERRED
        return self.page()
