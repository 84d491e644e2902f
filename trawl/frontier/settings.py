"""What a user may set about where pending requests are kept."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from trawl.errors import SettingsError

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
    frontier: Annotated[
        object,
        Meta(
            description="Makes the frontier that keeps pending requests, in place of the one in memory: a function of "
            "the crawl's settings that gives one (async or not), its import path, or the name that an installed "
            "package gives it. A job has its own.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.frontier and self.job_dir:
            raise SettingsError("FRONTIER and JOB_DIR exclude each other: a job has its own frontier", "FRONTIER")
