"""What a user may set about where pending requests are kept.

The frontier that ``FRONTIER`` names.
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
    """The frontier that a setting names: what its function gives for ``settings``. A checkpoint if that one is.

    Args:
        value: A function, its import path, or the name of an entry point.
        settings: Of the crawl, given to the function.

    Raises:
        SettingsError: There is no such function, or what it gives is no frontier.
    """
    is_name = isinstance(value, str) and "." not in value
    make: Any = load_plugin(PLUGINS, str(value)) if is_name else load_object(value, SETTING)
    if not callable(make):
        raise SettingsError(f"{SETTING} must be a function of the settings, not {value!r}", SETTING)
    made = make(settings)
    if inspect.isawaitable(made):
        made = await made
    if not hasattr(made, "push_many") or not hasattr(made, "acknowledge"):
        raise SettingsError(f"{SETTING}: {value!r} gave {made!r}, which is no frontier", SETTING)
    return cast("Frontier", made)


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
