"""Checks many hosts with one page each. The result has one line per host, and the maximum duration is known in advance.

::

    trawl crawl examples/many_hosts.py -a file=hosts.txt -o hosts.csv

A host takes at most two timeouts, one for its robots.txt and one for its page, and no request is sent twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import trawl
from trawl.exceptions import DownloadError, HttpError


class ManyHosts(trawl.Spider[dict[str, object]]):
    """Requests the first page of each host."""

    name = "many_hosts"
    file = "hosts.txt"
    """``-a file=PATH``: a host on each line."""
    custom_settings = {
        "CONCURRENT_REQUESTS": 100,  # maximum number of hosts at the same time
        "DOWNLOAD_TIMEOUT": 20.0,  # seconds for a page or a robots.txt
        "RETRY_TIMES": 0,  # nothing is sent twice
        "ROBOTSTXT_RETRY_TIMES": 0,  # robots.txt is not sent twice either
        "BACKOFF_MAX_DELAY": 60.0,  # maximum seconds to wait for the Retry-After of a robots.txt
        "REDIRECT_MAX_DELAY": 0.0,  # redirects do not wait for a Retry-After
        "JOB_KEEP_GIVEN_UP": False,  # a host that is down is a result
    }

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """Yield a request for the first page of each host."""
        for host in self.hosts():
            yield trawl.Request(f"http://{host}/", errback=self.failed, cb_kwargs={"host": host})

    def hosts(self) -> Iterator[str]:
        """Yield the hosts in the file."""
        with open(self.file, encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))

    def parse(self, response: trawl.Response, host: str) -> dict[str, object]:
        """Return the result of a host with a page, possibly after redirects."""
        return {"host": host, "status": response.status, "why": ""}

    def failed(self, error: HttpError | DownloadError) -> dict[str, object]:
        """Return the result of a host without a page: the status of its last response, if any, and the cause."""
        status = error.response.status if error.response is not None else None
        why = error.cause if isinstance(error, DownloadError) else f"answered {status}"
        return {"host": error.request.cb_kwargs["host"], "status": status, "why": why}
