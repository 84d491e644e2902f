"""Which of these links are dead? A list of any length, one URL a line; stopped at any time, and gone on with.

::

    trawl crawl examples/dead_links.py -a file=urls.txt -o dead.jsonl --job dead-links
    trawl job dead-links

Stop it with Ctrl-C, or kill it: the same first command goes on where it was, and each dead link is in the feed once.
The second tells how far it is. A link of a site that was given up, because it was down for long, is dead, too. Sites
are asked side by side, each at its own pace. A new list needs a new job.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import trawl
from trawl.exceptions import DownloadError, HttpError

NO_HEAD = (405, 501)
"""How servers answer that know no HEAD (RFC 9110, 15.5.6 and 15.6.2)."""


@dataclass(frozen=True)
class DeadLink:
    """A link that leads nowhere.

    Attributes:
        url: As it is in the list.
        status: The last status of the server; None if there was no response.
        why: What went wrong.
    """

    url: str
    status: int | None
    why: str


class DeadLinks(trawl.Spider[DeadLink]):
    """Asks for the head of each page, and for the page only where a server gives no heads."""

    name = "dead_links"
    custom_settings = {"JOB_KEEP_GIVEN_UP": False}  # a site that is down for long is a result, not a page to try again
    file = "urls.txt"
    """``-a file=PATH``."""

    async def start(self) -> AsyncGenerator[trawl.Request | DeadLink, None]:
        """Each link of the list, or what is wrong with it."""
        for url in self.urls():
            try:
                yield self.asking("HEAD", url)
            except ValueError as error:
                yield DeadLink(url, None, str(error))

    def urls(self) -> Iterator[str]:
        """The list, read as there is room for more: it is never in memory whole."""
        with open(self.file, encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))

    def asking(self, method: str, url: str) -> trawl.Request:
        """A request for a link; what is in it survives a kill."""
        return trawl.Request(url, method=method, errback=self.failed, cb_kwargs={"url": url})

    def parse(self, response: trawl.Response, url: str) -> None:
        """A link that leads to a page, after redirects."""

    def failed(self, error: HttpError | DownloadError) -> DeadLink | trawl.Request:
        """A status of 400 or above, a host that is gone or was given up, a certificate that is wrong, a timeout."""
        url, status = error.request.cb_kwargs["url"], None
        if error.response is not None:
            status = error.response.status
        if status in NO_HEAD and error.request.method == "HEAD":
            return self.asking("GET", url)
        return DeadLink(url, status, error.cause if isinstance(error, DownloadError) else f"answered {status}")
