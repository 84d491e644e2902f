"""The settings of jobs and frontiers, and the function that creates the frontier named by ``FRONTIER``.

Only the package imports this module. ``trawl.settings`` imports the settings of each package from its ``__init__``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.frontier.base import Frontier
from trawl.plugins import load_plugin
from trawl.throttling.configuration import load_object

__all__ = ["SCHEMES", "JobSettings", "named_frontier"]

SETTING = "FRONTIER"

SCHEMES = ("redis://", "rediss://", "redis+unix://")
"""Prefixes of the address of a job in a server."""

PLUGINS = "trawl.frontiers"
"""Group of entry points for frontiers."""


async def named_frontier(value: object, settings: Mapping[str, Any]) -> Frontier:
    """Return the frontier named by the setting ``FRONTIER``. A checkpoint if its function is async.

    Args:
        value: A function, its import path, or the name of an entry point.
        settings: The crawl's settings, passed to the function.

    Raises:
        SettingsError: If there is no such function, or it does not return a frontier.
    """
    is_name = isinstance(value, str) and "." not in value
    make: Any = load_plugin(PLUGINS, str(value)) if is_name else load_object(value, SETTING)
    if not callable(make):
        raise SettingsError(f"{SETTING} must be a function of the settings, not {value!r}", SETTING)
    made = make(settings)
    if inspect.isawaitable(made):
        made = await made
    if not hasattr(made, "push_many") or not hasattr(made, "acknowledge"):
        raise SettingsError(f"{SETTING}: {value!r} gave {made!r}, which is not a frontier", SETTING)
    return cast("Frontier", made)


class JobSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Jobs, which let a crawl outlive its process, and frontiers of other packages."""

    job_dir: Annotated[
        str,
        Meta(
            title="",
            description="Directory, created if missing, that keeps everything a crawl needs to continue in a later "
            "process: pending and seen requests, items on their way to the feeds, what was learned of hosts, "
            "statistics. Or the address of a Redis or Valkey server and a name, `redis://host/NAME`, that keep it. "
            "`--job` sets it. Empty: all of that is in memory and ends with the process.",
        ),
    ] = ""
    job_durability: Annotated[
        Literal["always", "replicated", "fast"],
        Meta(
            description="What the server of a job must be configured for, which is checked at the start: `always`: "
            "each step is on its disk before it counts (`appendfsync always`); `replicated`: each step is in a replica "
            "before it counts; `fast`: neither, so a power cut of the server repeats its last steps, and items may "
            "come twice. No effect on a job in a directory.",
        ),
    ] = "always"
    job_lease: Annotated[
        float,
        Meta(
            gt=1.0,
            description="Seconds for which a job in a server stays with a process that the server does not hear from. "
            "While the server is away the process sends nothing once they are over; after a kill the next process "
            "waits for their end. No effect on a job in a directory.",
        ),
    ] = 15.0
    job_keep_given_up: Annotated[
        bool,
        Meta(
            description="Keep the pending requests of a host that is given up in the job: the next run sends them "
            "again, also if their errbacks were called. `trawl job` lists them. False drops them: they end for good, "
            "like any other failed request.",
        ),
    ] = True
    frontier: Annotated[
        object,
        Meta(
            description="Frontier to use instead of the one in memory: a function of the crawl's settings that returns "
            "one (async or not), its import path, or the name of an installed plugin. Not with a job, which has its "
            "own.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.frontier and self.job_dir:
            raise SettingsError("FRONTIER and JOB_DIR exclude each other: a job has its own frontier", "FRONTIER")
        scheme, is_url, _ = self.job_dir.partition("://")
        if is_url and not self.job_dir.startswith(SCHEMES):  # the rest may contain a password
            raise SettingsError(
                f"JOB_DIR is a directory, or begins with {', '.join(SCHEMES)}; not {scheme}://", "JOB_DIR"
            )
