"""The spider of the histories. It follows all links, and names the shared scopes of each page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import trawl
from tests.histories.world import DELAY, LEASE, SCOPES, scopes_of
from trawl.http import Response


class Linked(trawl.Spider):
    """Crawls the site of :mod:`tests.histories.site`."""

    name = "linked"
    custom_settings = {
        "ALLOW_PRIVATE_ADDRESSES": True,
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": DELAY,
        "DOWNLOAD_DELAY_PER_SLOT": 0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "BACKOFF_MIN_DELAY": 0.3,
        "BACKOFF_MAX_DELAY": 0.6,
        "THROTTLING_SCOPES": {scope: {**limits, "shared": True} for scope, limits in SCOPES.items()},
        "JOB_LEASE": LEASE,
    }

    def __init__(self, start: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield the page as an item, and follow its links."""
        yield {"url": response.url}
        for request in response.follow_all(css="a"):
            url = urlsplit(request.url)
            scopes = scopes_of(url.path)
            if scopes:
                request.meta["throttling_scopes"] = {url.netloc: None, **dict.fromkeys(scopes)}
            yield request
