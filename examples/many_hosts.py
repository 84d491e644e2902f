"""Checks many hosts by requesting one page of each. The output has one line per host. The maximum duration is known.

::

    trawl crawl examples/many_hosts.py -a file=hosts.txt -o hosts.csv

For each host, the crawl waits for at most two timeouts, one for its robots.txt and one for its page. No request is sent
twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import trawl
from trawl.exceptions import DownloadError, HttpError


class ManyHosts(trawl.Spider[dict[str, object]]):
    """Requests the first page of each host."""

    name = "many_hosts"
    file = "hosts.txt"
    """``-a file=PATH``: the file with one host per line."""
    custom_settings = {
        "CONCURRENT_REQUESTS": 100,  # maximum number of hosts that are crawled at the same time
        "DOWNLOAD_TIMEOUT": 20.0,  # maximum seconds for a page or a robots.txt
        "RETRY_TIMES": 0,  # no page is requested twice
        "ROBOTSTXT_RETRY_TIMES": 0,  # no robots.txt is requested twice either
        "BACKOFF_MAX_DELAY": 60.0,  # maximum wait in seconds if robots.txt is refused with a Retry-After
        "REDIRECT_MAX_DELAY": 0.0,  # redirects do not wait for a Retry-After
        "JOB_KEEP_GIVEN_UP": False,  # a host that is down is a result, so the next run does not retry it
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
        """Return the result of a host that sent its page, possibly after redirects."""
        return {"host": host, "status": response.status, "why": ""}

    def failed(self, error: HttpError | DownloadError) -> dict[str, object]:
        """Return the result of a host that sent no page: the cause, and the status of its last response, if any."""
        status = error.response.status if error.response is not None else None
        why = error.cause if isinstance(error, DownloadError) else f"answered {status}"
        return {"host": error.request.cb_kwargs["host"], "status": status, "why": why}
