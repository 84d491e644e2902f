"""Pages through proxies that take turns; one that fails rests. The site's limits hold for all of them together.

::

    export TRAWL_ROTATING_PROXY_LIST='["http://me:secret@one.example:3128", "socks5://two.example:1080"]'
    trawl crawl examples/proxies.py -O quotes.jsonl

What each proxy gave is in the statistics at the end: more proxies spread the load, they do not make it more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import trawl


class Proxies(trawl.Spider):
    """Reads quotes, each page through the next proxy that is well."""

    name = "proxies"
    start_urls = ["https://quotes.toscrape.com/"]
    custom_settings = {
        "THROTTLING_SCOPES": {"quotes.toscrape.com": {"concurrency": 2, "delay": 0.5}},
        "ROTATING_PROXY_BACKOFF_BASE": 60.0,  # seconds; twice as long each further time
        "ROTATING_PROXY_BACKOFF_CAP": 1800.0,
        "ROTATING_PROXY_BAN_CODES": [403],  # what this site answers to a proxy that it does not like
    }

    def parse(self, response: trawl.Response) -> Iterator[dict[str, Any] | trawl.Request]:
        """The quotes of a page, and the next page."""
        proxy = urlsplit(response.meta.get("proxy", "")).hostname  # without its name and password
        self.crawl.stats.inc(f"pages_through/{proxy}")
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.css("small.author::text").get(),
                "through": proxy,
            }
        yield from response.follow_all(css="li.next a")
