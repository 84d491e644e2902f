"""Reads pages through rotating proxies. The limits of the site apply to all proxies together.

::

    export TRAWL_ROTATING_PROXY_LIST='["http://me:secret@one.example:3128", "socks5://two.example:1080"]'
    trawl crawl examples/proxies.py -O quotes.jsonl

If a proxy fails, it is not used for a while. The statistics at the end count the pages of each proxy. With more
proxies, the crawl is not faster, because the limits of the site do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import trawl


class Proxies(trawl.Spider):
    """Reads quotes, each page through the next working proxy."""

    name = "proxies"
    start_urls = ["https://quotes.toscrape.com/"]
    custom_settings = {
        "THROTTLING_SCOPES": {"quotes.toscrape.com": {"concurrency": 2, "delay": 0.5}},
        "ROTATING_PROXY_BACKOFF_BASE": 60.0,  # seconds; doubled after each further failure
        "ROTATING_PROXY_BACKOFF_CAP": 1800.0,
        "ROTATING_PROXY_BAN_CODES": [403],  # status codes with which this site bans a proxy
    }

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """Yield the quotes of a page, and the request for the next page."""
        proxy = urlsplit(response.meta.get("proxy", "")).hostname  # leaves out user name and password
        self.crawl.stats.inc(f"pages_through/{proxy}")
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.css("small.author::text").get(),
                "through": proxy,
            }
        yield from response.follow_all(css="li.next a")
