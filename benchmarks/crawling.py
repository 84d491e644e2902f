"""Runs trawl inside the benchmark's own process, and records each send."""

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
from trawl.scheduler import Attempt
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
    """A crawl and its duration.

    Attributes:
        result: Result of the crawl.
        seconds: Elapsed seconds.
        own: Seconds of processor time that this process used.
    """

    result: CrawlResult
    seconds: float
    own: float


class Sends:
    """A recorder of a crawl that stores the times at which each host's requests were sent."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        """Record a send."""
        if outcome is None:
            self.times[attempt.request.url.split("/", 3)[2]].append(now)

    def gaps(self) -> list[float]:
        """Return the seconds between consecutive sends to a host."""
        return [later - earlier for times in self.times.values() for earlier, later in pairwise(times)]


class LoopbackNames:
    """Resolves names below ``localhost`` to this machine (RFC 6761, 6.3), because some resolvers do not."""

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Return the loopback address for any name."""
        await trio.lowlevel.checkpoint()
        return [Address(socket.AF_INET, ("127.0.0.1", port))]


def loaded(**settings: object) -> Settings:
    """Return settings without limits, except for the given settings."""
    return load(Layer("benchmark", {**UNTHROTTLED, **settings}))


def timed(spider: type[trawl.Spider], settings: Settings, **more: Any) -> Timed:
    """Run a crawl. ``more`` are arguments of :func:`trawl._run.crawl_with`.

    The garbage collector is configured as in ``trawl crawl``. Otherwise, its full passes would take longer, because
    they would include the objects of the benchmark and of earlier rows. During a pass, nothing is sent.
    """
    began, began_own = time.perf_counter(), time.process_time()
    with short_collections():
        result = trio.run(partial(crawl_with, spider, settings, **more))
    return Timed(result, time.perf_counter() - began, time.process_time() - began_own)
