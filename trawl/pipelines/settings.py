"""The settings of pipelines."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = ["PipelinesSettings"]


class PipelinesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Through what items pass before they are written."""

    item_pipelines: Annotated[
        dict[Any, float | None],
        Meta(
            title="",
            description="Classes, or their import paths, that each item passes, with a number that says in which order "
            "(low first); null takes one out.",
        ),
    ] = msgspec.field(default_factory=dict)
