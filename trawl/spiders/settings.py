"""The settings of the kinds of spiders."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["SpidersSettings"]


class SpidersSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the kinds of spiders, under the names that users know."""

    crawlspider_follow_links: Annotated[
        bool, Meta(description="Whether the rules of a CrawlSpider follow links; off, only its start URLs are read.")
    ] = True
