"""The covers of the books of ``trawl demo``, each with two thumbnails, below ``covers/``.

::

    pip install "trawl-crawler[images]"
    trawl crawl examples/covers.py -O covers.jsonl
    trawl crawl examples/covers.py -O covers.jsonl -s IMAGES_STORE=s3://bucket/covers

The same limits apply to covers and pages. If you crawl again within 90 days (``IMAGES_EXPIRES``), the covers are not
downloaded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import trawl
from trawl.pipelines import ImagesPipeline


@dataclass
class Cover:
    """A book and its cover. The pipeline sets ``images``."""

    title: str
    image_urls: list[str]
    images: list[dict[str, Any]] = field(default_factory=list)


class Covers(ImagesPipeline):
    """Names a cover after its URL instead of its content."""

    def file_path(self, request: trawl.Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        """Return the path of a cover below the store."""
        return f"full/{PurePosixPath(request.url).stem}.jpg"

    def item_completed(self, results: Any, item: Cover, info: Any) -> Cover:
        """Return the item. Drop it if it has no cover."""
        item.images = [found for is_there, found in results if is_there]
        if not item.images:
            raise trawl.DropItem(f"{item.title} has no cover")
        return item


class CoversSpider(trawl.Spider[Cover]):
    """Reads the lists of books."""

    name = "covers"
    start_urls = ["http://127.0.0.1:8765/books/"]
    custom_settings = {
        "ITEM_PIPELINES": {Covers: 1},
        "IMAGES_STORE": "covers",
        "IMAGES_THUMBS": {"small": [60, 80], "large": [120, 160]},
        "IMAGES_MIN_WIDTH": 30,
        "IMAGES_MIN_HEIGHT": 30,
    }

    def parse(self, response: trawl.Response) -> Iterator[Cover | trawl.Request]:
        """Yield the books of a list, and a request for the next list."""
        for image in response.css("article.product_pod img"):
            yield Cover(image.attrib["alt"], [response.urljoin(image.attrib["src"])])
        yield from response.follow_all(css="li.next a")
