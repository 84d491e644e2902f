"""The settings of jobs and frontiers, and the function that makes the frontier ``FRONTIER`` names.

Only the package imports this module: ``trawl.settings`` takes the settings of each package from its face.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.frontier.base import Frontier
from trawl.plugins import load_plugin
from trawl.throttling.configuration import load_object

__all__ = ["JobSettings", "named_frontier"]

SETTING = "FRONTIER"

PLUGINS = "trawl.frontiers"
"""The group of entry points of frontiers."""


async def named_frontier(value: object, settings: Mapping[str, Any]) -> Frontier:
    """Make the frontier that the setting ``FRONTIER`` names. A checkpoint if its function is async.

    Args:
        value: A function, its import path, or the name of an entry point.
        settings: Of the crawl, given to the function.

    Raises:
        SettingsError: There is no such function, or it does not return a frontier.
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
            "statistics. `--job` sets it. Empty: all of that is in memory and ends with the process.",
        ),
    ] = ""
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
