"""A tab of Chromium for tests of pages that this machine serves. Unlike the browser of a crawl, it has a network."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from tests.servers.rendering import PATH
from trawl.blocking import ThreadBlocking
from trawl.browser.devtools import Chromium, open_chromium
from trawl.browser.page import _KEYS

__all__ = ["Tab", "open_tab"]


class Tab:
    """One page of the browser.

    Attributes:
        logs: Entries of the page's log and its uncaught exceptions. A breach of the content security policy is one.
    """

    def __init__(self, chromium: Chromium, session: str) -> None:
        self._connection = chromium.connection
        self._session = session
        self.logs: list[str] = []
        self._connection.handle(session, self._hear)

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        # A response outside 2xx is an entry too, with the source "network".
        if method == "Runtime.exceptionThrown" or params.get("entry", {}).get("source", "network") != "network":
            self.logs.append(json.dumps(params)[:500])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        with trio.fail_after(120.0):
            return await self._connection.call(self._session, method, params)

    async def open(self, url: str, *, width: int = 1400, height: int = 1150, is_dark: bool = False) -> None:
        """Go to a page."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def until(self, expression: str, seconds: float = 300.0) -> Any:
        """Wait until an expression in the page is true, and return its value."""
        with trio.fail_after(seconds):
            while True:
                with suppress(RuntimeError):  # the page is not there yet
                    if found := await self.js(expression):
                        return found
                await trio.sleep(0.05)

    async def press(self, *keys: str) -> None:
        """Press keys, such as ``Enter``, ``Shift+Tab`` or ``a``, one after another."""
        for each in keys:
            code, text = _KEYS.get(key := each.removeprefix("Shift+"), (0, each))
            values = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 * (key != each)}
            await self.call("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
            await self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    async def shoot(self, path: Path) -> None:
        """Write a picture of the page."""
        picture = (await self.call("Page.captureScreenshot", format="png"))["data"]
        await trio.Path(path).write_bytes(base64.b64decode(picture))


@asynccontextmanager
async def open_tab() -> AsyncGenerator[Tab, None]:
    """Start a browser. Leaving the block ends all its processes and removes its profile."""
    async with open_chromium(PATH, [], has_sandbox=False, blocking=ThreadBlocking(), has_network=True) as chromium:
        target = await chromium.call("Target.createTarget", url="about:blank")
        attached = await chromium.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        yield Tab(chromium, attached["sessionId"])
