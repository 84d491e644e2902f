"""What do many hosts say, one page each? One line for each of them, whatever happens, in a time that is known before.

::

    trawl crawl examples/many_hosts.py -a file=hosts.txt -o hosts.csv

A host costs two timeouts at most, one for its robots.txt and one for its page, and no request is sent twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import trawl
from trawl.exceptions import DownloadError, HttpError


class ManyHosts(trawl.Spider[dict[str, object]]):
    """Asks each host for its first page."""

    name = "many_hosts"
    file = "hosts.txt"
    """``-a file=PATH``: a host on each line."""
    custom_settings = {
        "CONCURRENT_REQUESTS": 100,  # hosts at once
        "DOWNLOAD_TIMEOUT": 20.0,  # seconds for a page or a robots.txt
        "RETRY_TIMES": 0,  # nothing is sent twice
        "ROBOTSTXT_RETRY_TIMES": 0,  # nor is robots.txt
        "BACKOFF_MAX_DELAY": 60.0,  # seconds to wait if a robots.txt is answered with a Retry-After
        "REDIRECT_MAX_DELAY": 0.0,  # nor does a redirect wait for a Retry-After
        "JOB_KEEP_GIVEN_UP": False,  # a host that is down is a result
    }

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """The first page of each host."""
        for host in self.hosts():
            yield trawl.Request(f"http://{host}/", errback=self.failed, cb_kwargs={"host": host})

    def hosts(self) -> Iterator[str]:
        """The hosts of the file."""
        with open(self.file, encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))

    def parse(self, response: trawl.Response, host: str) -> dict[str, object]:
        """A host with a page, after redirects."""
        return {"host": host, "status": response.status, "why": ""}

    def failed(self, error: HttpError | DownloadError) -> dict[str, object]:
        """A host without: the status of its last response, if there is one, and the cause."""
        status = error.response.status if error.response is not None else None
        why = error.cause if isinstance(error, DownloadError) else f"answered {status}"
        return {"host": error.request.cb_kwargs["host"], "status": status, "why": why}
