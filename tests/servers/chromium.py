"""A headless Chromium for tests, driven by the DevTools protocol over its pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

__all__ = ["BINARY", "Tab", "open_tab"]

BINARY = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("google-chrome")

_FLAGS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--remote-debugging-pipe"),
)


class Tab:
    """One page of the browser.

    Attributes:
        logs: Entries of the page's log and its uncaught exceptions. A breach of the content security policy is one.
    """

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._session = ""
        self.logs: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._numbers)
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
        self._waiting[number] = send
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps(message).encode() + b"\0")
        with trio.fail_after(120.0):
            reply = await receive.receive()
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def listen(self) -> None:
        """Read what the browser says until cancelled."""
        assert self._process.stdout is not None
        buffer = b""
        async for some in self._process.stdout:
            *messages, buffer = (buffer + bytes(some)).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    self._waiting.pop(message["id"]).send_nowait(message)
                elif message["method"] in ("Log.entryAdded", "Runtime.exceptionThrown"):
                    entry = message["params"].get("entry", {})
                    # A response outside 2xx is an entry too, with the source "network".
                    self.logs += [json.dumps(message["params"])[:500]] if entry.get("source") != "network" else []

    async def open(self, url: str, *, width: int = 1400, height: int = 1150, is_dark: bool = False) -> None:
        """Go to a page."""
        if not self._session:
            target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
            attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
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

    async def until(self, expression: str, seconds: float = 120.0) -> Any:
        """Wait until an expression in the page is true, and return its value."""
        with trio.fail_after(seconds):
            while True:
                with suppress(RuntimeError):  # the page is not there yet
                    if found := await self.js(expression):
                        return found
                await trio.sleep(0.05)

    async def shoot(self, path: Path) -> None:
        """Write a picture of the page."""
        picture = (await self.call("Page.captureScreenshot", format="png"))["data"]
        await trio.Path(path).write_bytes(base64.b64decode(picture))


@asynccontextmanager
async def open_tab() -> AsyncGenerator[Tab, None]:
    """Start a browser. Leaving the block ends all its processes and removes its profile."""
    assert BINARY is not None
    profile = tempfile.mkdtemp(prefix="panel-")
    # The shell moves the pipe from 0 and 1, where a subprocess has it, to 3 and 4, where Chromium reads and writes it.
    shell = ["/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh"]
    process = await trio.lowlevel.open_process(
        [*shell, BINARY, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with trio.open_nursery() as nursery:
            tab = Tab(process)
            nursery.start_soon(tab.listen)
            yield tab
            nursery.cancel_scope.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
        shutil.rmtree(profile, ignore_errors=True)
