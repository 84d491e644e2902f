"""The latest releases of some packages, from the feeds of the Python Package Index.

::

    trawl crawl examples/releases.py -O releases.jsonl
    trawl crawl examples/releases.py -a packages=trio,parsel -a feed_since=2024-01-01 -O releases.jsonl
"""

from __future__ import annotations

from typing import Any, TypedDict

import trawl


class Release(TypedDict):
    """One release of a package."""

    package: str
    version: str
    day: str


class Releases(trawl.FeedSpider[Release]):
    """Reads a feed for each package."""

    name = "releases"

    def __init__(self, *args: Any, packages: str = "trio", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.start_urls = [f"https://pypi.org/rss/project/{name}/releases.xml" for name in packages.split(",")]

    def parse_entry(self, response: trawl.Response, entry: trawl.FeedEntry) -> Release | None:
        """Return one release. Entries without a time are left out."""
        if entry.published_utc is None:
            return None
        package = response.url.split("/")[-2]
        return {"package": package, "version": entry.title, "day": entry.published_utc.date().isoformat()}
