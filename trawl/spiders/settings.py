"""The settings of the kinds of spiders."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = ["SpidersSettings"]


class SpidersSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the kinds of spiders, under the names that users know."""

    crawlspider_follow_links: Annotated[
        bool, Meta(description="Follow the links of a CrawlSpider's rules. If false, fetch only its start URLs.")
    ] = True
    item_type: Annotated[
        Any,
        Meta(
            description="Type to validate items against: a dataclass, attrs class, pydantic model, msgspec Struct or "
            'TypedDict, a union of them, or an import path; "spider" is the type argument of the spider\'s class. '
            "null: no validation."
        ),
    ] = None
    invalid_items: Annotated[
        Literal["drop", "keep"],
        Meta(
            description='Items that fail ITEM_TYPE: "drop" them, or "keep" each as an InvalidItem, which goes to feeds '
            "that name it in `item_classes`."
        ),
    ] = "drop"
