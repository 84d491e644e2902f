"""The titles of a site's pages that have changed since a date, found with its sitemaps.

::

    trawl crawl examples/changed.py -a site=https://www.example.com -a since=2024-05-01 -O changed.csv

robots.txt names the sitemaps. The sitemaps list the pages with the dates of their last changes. The spider requests
only robots.txt, the sitemaps, and the pages that have changed.
"""

from __future__ import annotations

from typing import Any, TypedDict

import trawl


class Title(TypedDict):
    """A page and its title."""

    url: str
    title: str


class Changed(trawl.SitemapSpider[Title]):
    """Reads the sitemaps that ``/robots.txt`` names, and the pages in them."""

    name = "changed"

    def __init__(self, *args: Any, site: str = "https://www.example.com", since: str = "", **kwargs: Any) -> None:
        self.sitemap_urls = [f"{site.rstrip('/')}/robots.txt"]
        self.sitemap_modified_since = since
        super().__init__(*args, **kwargs)

    def parse(self, response: trawl.Response) -> Title:
        """Return the title of one page."""
        return {"url": response.url, "title": response.css("title::text").get("").strip()}
