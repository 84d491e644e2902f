"""Crawls of ours inside the benchmark's own process, watched send by send."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import trio

import trawl
from trawl._run import CrawlResult, crawl_with
from trawl.cli.crawl import short_collections
from trawl.http import Outcome
from trawl.scheduler import Grant
from trawl.settings import Layer, Settings, load
from trawl.transport.resolver import Address

__all__ = ["UNTHROTTLED", "LoopbackNames", "Sends", "Timed", "loaded", "timed"]

UNTHROTTLED: dict[str, object] = {
    "ALLOW_PRIVATE_ADDRESSES": True,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
}


@attrs.frozen
class Timed:
    """A crawl and what it took.

    Attributes:
        result: How it ended.
        seconds: By the clock.
        own: Of our process's own time.
    """

    result: CrawlResult
    seconds: float
    own: float


class Sends:
    """When each host's requests went to the wire; the crawl's recorder."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)

    def record(self, grant: Grant, outcome: Outcome | None, now: float) -> None:
        """Note a send."""
        if outcome is None:
            self.times[grant.request.url.split("/", 3)[2]].append(now)

    def gaps(self) -> list[float]:
        """Seconds between one send of a host and its next."""
        return [later - earlier for times in self.times.values() for earlier, later in pairwise(times)]


class LoopbackNames:
    """Names below ``localhost`` are this machine (RFC 6761, 6.3); not every system's resolver knows."""

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Loopback, whatever the name."""
        await trio.lowlevel.checkpoint()
        return [Address(socket.AF_INET, ("127.0.0.1", port))]


def loaded(**settings: object) -> Settings:
    """Unthrottled, but for these."""
    return load(Layer("benchmark", {**UNTHROTTLED, **settings}))


def timed(spider: type[trawl.Spider], settings: Settings, **more: Any) -> Timed:
    """Crawl; ``more`` is what :func:`trawl._run.crawl_with` takes.

    The garbage collector is as in ``trawl crawl``: else each of its full passes, in which nothing is sent, counts what
    the benchmark itself has imported, and what the rows before this one have kept.
    """
    began, began_own = time.perf_counter(), time.process_time()
    with short_collections():
        result = trio.run(partial(crawl_with, spider, settings, **more))
    return Timed(result, time.perf_counter() - began, time.process_time() - began_own)
