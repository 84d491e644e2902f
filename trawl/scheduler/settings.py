"""What a user may set about which requests are taken in, and in which order they go."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["SchedulerSettings"]


class SchedulerSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Admission and order."""

    depth_limit: Annotated[
        int,
        Meta(
            ge=0,
            title="links",
            description="Requests found more than this many links from the start are dropped; 0 means no limit.",
        ),
    ] = 0
    urllength_limit: Annotated[
        int,
        Meta(ge=0, title="characters", description="Requests with a longer URL are dropped; 0 means no limit."),
    ] = 2083
    depth_first: Annotated[
        bool,
        Meta(description="Among requests of equal priority to one host the newest goes first, in place of the oldest."),
    ] = False
