"""Checks whether pages still work, with trawl's HTTP/1.1 transport in a plain httpx client, without a spider.

::

    python examples/transport.py https://www.example.com/ https://www.example.com/about

The command prints a line for each page, with the status code, the size in bytes and the URL, or with the error. Delays
do not apply. At most ``AT_ONCE`` pages are requested at the same time, even from the same host.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import httpx
import trio

from trawl.transport import HTTP11Transport

AT_ONCE = 8


async def look(client: httpx.AsyncClient, url: str) -> str:
    """Fetch a page without storing its body. Returns the line to print."""
    size = 0
    try:
        async with client.stream("GET", url) as response:
            async for piece in response.aiter_bytes():
                size += len(piece)
    except httpx.HTTPError as error:
        return f"{type(error).__name__} {url}: {error}"
    return f"{response.status_code} {size} {url}"


async def check(urls: Sequence[str]) -> list[str]:
    """Return the lines for all pages, in the order of ``urls``."""
    lines = [""] * len(urls)
    room = trio.CapacityLimiter(AT_ONCE)
    transport = HTTP11Transport(retries=1, limits=httpx.Limits(max_keepalive_connections=AT_ONCE))

    async with httpx.AsyncClient(transport=transport, follow_redirects=True, timeout=30) as client:

        async def fill(number: int) -> None:
            async with room:
                lines[number] = await look(client, urls[number])

        async with trio.open_nursery() as nursery:
            for number in range(len(urls)):
                nursery.start_soon(fill, number)
    return lines


if __name__ == "__main__":
    print(*trio.run(check, sys.argv[1:]), sep="\n")
