"""The settings of the kinds of spiders."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = ["SpidersSettings"]


class SpidersSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the kinds of spiders, under the names that users know."""

    crawlspider_follow_links: Annotated[
        bool, Meta(description="Whether the rules of a CrawlSpider follow links; off, only its start URLs are read.")
    ] = True
    item_type: Annotated[
        Any,
        Meta(
            description="The type that items are held to: a dataclass, attrs class, pydantic model, msgspec Struct or "
            'TypedDict, a union of them, or the import path of one; "spider" is the type that the spider\'s class is '
            "generic in. null: items are not looked at."
        ),
    ] = None
    invalid_items: Annotated[
        Literal["drop", "keep"],
        Meta(
            description="What becomes of items that are not of ITEM_TYPE: they are dropped, or kept as InvalidItem, "
            "which goes to the feeds that name it in `item_classes`."
        ),
    ] = "drop"
