"""What a user may set about robots.txt."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["RobotsSettings"]


class RobotsSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Whether and how robots.txt is obeyed."""

    robotstxt_obey: Annotated[
        bool, Meta(description="Read each origin's robots.txt first and send nothing that it disallows.")
    ] = True
    robotstxt_user_agent: Annotated[
        str | None,
        Meta(description="The name whose group in robots.txt is ours; None: the product that USER_AGENT names."),
    ] = None
    robotstxt_max_age: Annotated[
        float,
        Meta(gt=0, le=86_400, title="s", description="How long a robots.txt is believed before it is read again."),
    ] = 86_400.0
    robotstxt_retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="times",
            description="How often robots.txt is asked for again where no connection can be made, before the origin's"
            " requests end as unreachable. A robots.txt that answers 5xx or is cut off is asked for again until"
            " `BACKOFF_GIVE_UP_AFTER`. 0 means it is asked for once, whatever it answers.",
        ),
    ] = 2
    robotstxt_retry_delay: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="How long an origin is disallowed before its robots.txt is asked for again; twice as long "
            "each time.",
        ),
    ] = 10.0
