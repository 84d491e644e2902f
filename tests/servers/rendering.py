"""Crawls of simulated sites that a real Chromium renders: no server, no network, the real clock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.browser.devtools import NAMES, PROFILE
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation

PATH = next((found for name in NAMES if (found := shutil.which(name))), "")

HTML = {"Content-Type": "text/html; charset=utf-8"}
TEXT = {"Content-Type": "text/plain"}

SETTINGS = {
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_DELAY_PER_SLOT": 0,
    "RETRY_TIMES": 0,
}


def wanted() -> str:
    """Return the path of Chromium. Skips the test without one, and fails in CI."""
    if PATH:
        return PATH
    words = "no Chromium: apt-get install chromium-headless-shell"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


async def crawl(
    spider: type[trawl.Spider], web: SimulatedWeb, settings: Mapping[str, Any] | None = None, **arguments: Any
) -> Simulation:
    """Crawl a simulated web with a real Chromium, on the real clock."""
    wanted()
    return await web.crawl_in_browser(spider, {**SETTINGS, **(settings or {})}, errors="collect", **arguments)


def site(handler: Callable[[str, Request], Any], *hosts: str, robots: str | None = None) -> SimulatedWeb:
    """Return a web whose hosts answer by ``handler``, which gets the path and the request."""
    web = SimulatedWeb()

    def respond(request: Request) -> SimulatedResponse:
        path = "/" + request.url.split("://", 1)[1].partition("/")[2]
        found = handler(path, request)
        if isinstance(found, SimulatedResponse):
            return found
        return SimulatedResponse(200, found, HTML)

    for host in hosts or ("a.example",):
        web.add_host(host, latency=0.005, handler=respond, robots=robots)
    return web


def processes() -> list[int]:
    """Return the processes of Chromium that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{PROFILE}{os.getpid()}-".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def profiles() -> list[Path]:
    """Return the profiles that this process has left."""
    import tempfile

    return list(Path(tempfile.gettempdir()).glob(f"{PROFILE}{os.getpid()}-*"))
