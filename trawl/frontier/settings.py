"""What a user may set about where pending requests are kept."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["JobSettings"]


class JobSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Whether a crawl outlives its process."""

    job_dir: Annotated[
        str,
        Meta(
            title="",
            description="A directory, made if it is not there, that keeps everything a crawl needs to go on in a later "
            "process: pending requests, seen ones, items on their way to the feeds, what was learned of hosts, "
            "statistics. `--job` sets it. Empty: all of that stays in memory and ends with the process.",
        ),
    ] = ""
