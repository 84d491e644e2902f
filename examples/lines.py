"""A crawl that gets URLs from another program, line by line, while it runs.

::

    python examples/lines.py < urls.txt
    tail -n +1 -f urls.txt | python examples/lines.py

Both commands read URLs from standard input and print each page's title as a line of JSON. The crawl continues until
standard input ends. A new URL is requested even while other requests are pending. If many requests are pending, the
program stops reading for a while, so that an endless list does not fill the memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterable, Iterator
from typing import Any

import trio

import trawl


class Lines(trawl.Spider):
    """Yields the title of each requested page."""

    name = "lines"
    start_urls: list[str] = []  # the program adds requests while the crawl runs

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any]]:
        """Yield the title of a page."""
        yield {"url": response.url, "title": response.css("title::text").get()}


async def show(crawl: trawl.OpenCrawl) -> None:
    """Print the items."""
    async for item in crawl:
        print(json.dumps(item, ensure_ascii=False), flush=True)


async def main(lines: AsyncIterable[str], **settings: Any) -> None:
    """Add a request for each line. After the last line, the crawl ends when no request is pending."""
    async with trawl.open_crawl(Lines, settings) as crawl, trio.open_nursery() as nursery:
        with crawl.stay_open():
            nursery.start_soon(show, crawl)
            async for line in lines:
                try:
                    request = trawl.Request(line.strip())
                except ValueError as error:
                    print(error, file=sys.stderr)
                else:
                    await crawl.add(request)


if __name__ == "__main__":
    trio.run(main, trio.wrap_file(sys.stdin))
