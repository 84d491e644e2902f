"""The bare loop: fetches a list of URLs with Trio streams, httptools and parsel. It shows the speed without a crawler.

``bare.py URL FEED [--pages N] [--concurrency N] [--authority FILE]`` requests ``N.html`` next to the URL, extracts the
title and the links of each page, and writes the items at the end. It does not handle errors, and has no limits, no
frontier and no seen set.
"""

from __future__ import annotations

import argparse
import json
import resource
import ssl
import time
from collections.abc import Iterator

import httptools
import msgspec
import trio
from parsel import Selector

FIELDS = "Accept: text/html,application/xhtml+xml\r\nAccept-Language: en\r\nUser-Agent: bare\r\n"


class Body:
    """The minimal protocol for httptools."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.is_done = False

    def on_body(self, part: bytes) -> None:
        """Store a part of the body."""
        self.parts.append(part)

    def on_message_complete(self) -> None:
        """Record that the response is complete."""
        self.is_done = True


async def opened(host: str, port: int, context: ssl.SSLContext | None) -> trio.abc.Stream:
    """Return an open connection."""
    stream = await trio.open_tcp_stream(host, port)
    if context is None:
        return stream
    return trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)


async def crawled(
    url: str, feed: str, *, pages: int, concurrency: int = 64, context: ssl.SSLContext | None = None
) -> dict[str, float]:
    """Fetch and parse ``pages`` pages. Returns the duration."""
    scheme, _, authority, *_, name = url.split("/")
    folder = url[: -len(name)]
    target = folder[len(f"{scheme}//{authority}") :]
    host, _, port = authority.partition(":")
    numbers = iter(range(pages))
    items: list[dict[str, str | None]] = []
    links = 0

    async def work(numbers: Iterator[int]) -> None:
        nonlocal links
        stream = await opened(host, int(port), context)
        body = Body()
        parser = httptools.HttpResponseParser(body)
        for number in numbers:
            message = f"GET {target}{number}.html HTTP/1.1\r\nHost: {authority}\r\n{FIELDS}\r\n"
            await stream.send_all(message.encode())
            while not body.is_done:
                parser.feed_data(await stream.receive_some(65_536))
            page = Selector(b"".join(body.parts).decode())
            body.parts.clear()
            body.is_done = False
            items.append({"url": f"{folder}{number}.html", "title": page.css("title::text").get()})
            links += len(page.css("a::attr(href)").getall())
        await trio.aclose_forcefully(stream)

    began, began_own = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(work, numbers)
    with open(feed, "wb") as file:  # noqa: ASYNC230 - nothing else runs now
        file.write(b"".join(msgspec.json.encode(item) + b"\n" for item in items))  # noqa: ASYNC232
    return {
        "pages": len(items),
        "links": links,
        "seconds": time.perf_counter() - began,
        "own": time.process_time() - began_own,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


async def main() -> None:
    """Fetch the pages and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("feed")
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--authority", help="the file of the authority to trust, for https")
    given = parser.parse_args()
    context = ssl.create_default_context(cafile=given.authority) if given.authority else None
    told = await crawled(given.url, given.feed, pages=given.pages, concurrency=given.concurrency, context=context)
    print(json.dumps(told))


if __name__ == "__main__":
    trio.run(main)
