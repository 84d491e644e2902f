"""Pages that another program asks for, line by line, while the crawl runs.

::

    python examples/lines.py < urls.txt
    tail -n +1 -f urls.txt | python examples/lines.py

reads URLs from standard input and prints each page's title as a line of JSON. The crawl goes on as long as more lines
may come, and sends what has come at once, whatever else is pending. When much is pending it reads no further, so a list
without end does not fill the memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterable, Iterator
from typing import Any

import trio

import trawl


class Lines(trawl.Spider):
    """The title of each page that is asked for."""

    name = "lines"
    start_urls: list[str] = []  # they come while it runs

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any]]:
        """The title of a page."""
        yield {"url": response.url, "title": response.css("title::text").get()}


async def show(crawl: trawl.OpenCrawl) -> None:
    """Print what comes of the pages."""
    async for item in crawl:
        print(json.dumps(item, ensure_ascii=False), flush=True)


async def main(lines: AsyncIterable[str], **settings: Any) -> None:
    """Put each line into the crawl; when there are no more, the crawl ends with what is pending."""
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
