"""The titles of a site's pages that have changed since a day, by its sitemaps.

::

    trawl crawl examples/changed.py -a site=https://www.example.com -a since=2024-05-01 -O changed.csv

robots.txt says where the sitemaps are; they say which pages there are and when each was changed. Nothing else is asked
for.
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
        """One page."""
        return {"url": response.url, "title": response.css("title::text").get("").strip()}
