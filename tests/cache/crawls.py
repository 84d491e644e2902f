"""A spider and a web for tests of the cache."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

import trawl
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

HOST = "http://a.example"


def settings(folder: Path, **more: object) -> dict[str, object]:
    """Return settings with a cache in ``folder`` and without delays."""
    return {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(folder),
        "ROBOTSTXT_OBEY": False,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        **more,
    }


def web_of(fields: dict[str, str] | None = None, *, status: int = 200, body: str = "page") -> SimulatedWeb:
    """Return a web with one host, whose pages take a tenth of a second."""
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: SimulatedResponse(status=status, body=body, headers=fields or {}, latency=0.1),
    )
    return web


class Reader(trawl.Spider):
    """Requests some pages of one host, and yields each response and whether it came from the cache."""

    name = "reader"
    paths: Iterable[str] = ("/1", "/2", "/3")
    fragment = ""
    handle_httpstatus_all = True

    async def start(self) -> AsyncGenerator[Request, None]:
        for path in self.paths:
            yield Request(f"{HOST}{path}#{self.fragment}" if self.fragment else HOST + path)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url, "body": response.text, "flags": response.flags, "status": response.status}


def crawl(web: SimulatedWeb, values: dict[str, object], spider: type[trawl.Spider] = Reader) -> Simulation:
    """One crawl."""
    return simulate(spider, web, values)
