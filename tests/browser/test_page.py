"""A page over a carrier without a browser: the events that Chromium sends late or never."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.browser.test_connection import Wire
from trawl.browser import Answer, Asked, Opening
from trawl.browser.devtools import Chromium, Connection
from trawl.browser.page import open_page

REPLIES: dict[str, Any] = {
    "Target.createTarget": {"targetId": "tab"},
    "Target.attachToTarget": {"sessionId": "page"},
    "Runtime.evaluate": {"result": {"value": True}},
}


def paused(number: int) -> dict[str, Any]:
    """Return the event of a request of the page."""
    request = {"url": f"http://a.example/{number}", "method": "GET", "headers": {}}
    params = {"requestId": str(number), "resourceType": "Script", "request": request, "frameId": "tab"}
    return {"sessionId": "page", "method": "Fetch.requestPaused", "params": params}


@asynccontextmanager
async def browser() -> AsyncIterator[tuple[Chromium, Wire, list[str]]]:
    """Run a browser that replies to each command and sends no event. Yields the list of its commands, too."""
    wire, commands = Wire(), list[str]()
    connection = Connection(wire.send, wire.receive)

    async def reply() -> None:
        while True:
            command = await wire.command()
            commands.append(command["method"])
            await wire.say(id=command["id"], result=REPLIES.get(command["method"], {}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        nursery.start_soon(reply)
        yield Chromium("headless-shell", connection, 0, bytearray()), wire, commands
        nursery.cancel_scope.cancel()


async def test_a_page_is_loaded_without_any_event(autojump_clock: MockClock) -> None:
    """Row: ``loadEventFired`` does not arrive."""

    async def ask(wanted: Asked) -> Answer | None:
        return None

    async with browser() as (chromium, _, _), open_page(chromium, "context", Opening(ask=ask)) as page:
        await page.goto("http://a.example/")
        await page.settled()
        assert trio.current_time() == pytest.approx(0.5)


async def test_a_request_that_a_page_makes_while_it_closes_or_later_is_dropped(autojump_clock: MockClock) -> None:
    """Row: an event after the nursery has closed."""
    asked: list[str] = []

    async def ask(wanted: Asked) -> Answer | None:
        asked.append(wanted.url)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):  # the page stays open until this request has ended
                await wire.say(**paused(2))
                await trio.sleep(1.0)

    async with browser() as (chromium, wire, commands):
        async with open_page(chromium, "context", Opening(ask=ask)):
            await wire.say(**paused(1))
            await wait_all_tasks_blocked()
        assert trio.current_time() == 1.0
        await wire.say(**paused(3))
        await wait_all_tasks_blocked()
        assert asked == ["http://a.example/1"]
        assert chromium.connection._handlers == {}
        assert commands[-1] == "Target.closeTarget"
