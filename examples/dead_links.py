"""Finds dead links in a list of any length, one URL per line. The crawl can be stopped and resumed at any time.

::

    trawl crawl examples/dead_links.py -a file=urls.txt -o dead.jsonl --job dead-links
    trawl job dead-links

Stop it with Ctrl-C, or kill it. The first command continues where the crawl stopped, and each dead link is in the feed
once. The second command shows the progress. If a site is
down for so long that it is given up, its links count as dead too. Sites are crawled at the same time, each at its own
pace. A new list needs a new job.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import trawl
from trawl.exceptions import DownloadError, HttpError

NO_HEAD = (405, 501)
"""Status codes of servers that do not support HEAD (RFC 9110, sections 15.5.6 and 15.6.2)."""


@dataclass(frozen=True)
class DeadLink:
    """A dead link.

    Attributes:
        url: URL as written in the list.
        status: Last status code of the server; None if there was no response.
        why: The reason.
    """

    url: str
    status: int | None
    why: str


class DeadLinks(trawl.Spider[DeadLink]):
    """Sends a HEAD request for each page, and a GET request only if the server does not support HEAD."""

    name = "dead_links"
    custom_settings = {"JOB_KEEP_GIVEN_UP": False}  # a site that is down is a result, so the next run does not retry it
    file = "urls.txt"
    """``-a file=PATH``."""

    async def start(self) -> AsyncGenerator[trawl.Request | DeadLink, None]:
        """Yield a request for each link of the list, or an item if the URL is not valid."""
        for url in self.urls():
            try:
                yield self.asking("HEAD", url)
            except ValueError as error:
                yield DeadLink(url, None, str(error))

    def urls(self) -> Iterator[str]:
        """Yield the URLs of the list. The file is read line by line, so it is never completely in memory."""
        with open(self.file, encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))

    def asking(self, method: str, url: str) -> trawl.Request:
        """Return a request for a link. A job stores it with its arguments."""
        return trawl.Request(url, method=method, errback=self.failed, cb_kwargs={"url": url})

    def parse(self, response: trawl.Response, url: str) -> None:
        """Do nothing, because the link works, possibly after redirects."""

    def failed(self, error: HttpError | DownloadError) -> DeadLink | trawl.Request:
        """Return an item for a status code of 400 or above, a dead host, a wrong certificate or a timeout."""
        url, status = error.request.cb_kwargs["url"], None
        if error.response is not None:
            status = error.response.status
        if status in NO_HEAD and error.request.method == "HEAD":
            return self.asking("GET", url)
        return DeadLink(url, status, error.cause if isinstance(error, DownloadError) else f"answered {status}")
