"""Frontiers: stores of pending requests. Contains the protocol, the frontier in memory, and the settings of jobs."""

from collections.abc import Callable, Mapping
from inspect import isawaitable, signature
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.frontier.base import (
    Amounts,
    Frontier,
    FrontierStatistics,
    LaneKey,
    OutboxItem,
    PushResult,
    Record,
    ScopeAmounts,
    SortKey,
    lane_key,
)
from trawl.frontier.memory import MemoryFrontier
from trawl.plugins import load_plugin
from trawl.throttling.configuration import load_object
from trawl.tracebacks import user_code

__all__ = [
    "Amounts",
    "Frontier",
    "FrontierStatistics",
    "JobSettings",
    "LaneKey",
    "MemoryFrontier",
    "OutboxItem",
    "Record",
    "SCHEMES",
    "PushResult",
    "ScopeAmounts",
    "SortKey",
    "frontier_function",
    "lane_key",
    "named_frontier",
]

SETTING = "FRONTIER"

SCHEMES = ("redis://", "rediss://", "redis+unix://")
"""Prefixes of the address of a job in a server."""

PLUGINS = "trawl.frontiers"
"""Group of entry points for frontiers."""


def frontier_function(value: object) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that ``FRONTIER`` names.

    Raises:
        SettingsError: If there is no such function, or it does not take the settings.
    """
    is_name = isinstance(value, str) and "." not in value
    make: Any = load_plugin(PLUGINS, str(value)) if is_name else load_object(value, SETTING)
    if not callable(make):
        raise SettingsError(f"{SETTING} must be a function of the settings, not {value!r}", SETTING)
    try:
        signature(make).bind(None)
    except TypeError as error:
        raise SettingsError(f"{SETTING}: {value!r} has to take the settings: {error}", SETTING) from error
    except ValueError:  # some callables have no signature
        pass
    return make  # type: ignore[no-any-return]


async def named_frontier(value: object, settings: Mapping[str, Any]) -> Frontier:
    """Return the frontier named by the setting ``FRONTIER``. A checkpoint if its function is async.

    Args:
        value: A function, its import path, or the name of an entry point.
        settings: The crawl's settings, passed to the function.

    Raises:
        SettingsError: If there is no such function, or it does not return a frontier.
    """
    make = frontier_function(value)
    with user_code(f"{SETTING}: {value!r} failed"):
        made = make(settings)
        if isawaitable(made):
            made = await made
    if not hasattr(made, "push_many") or not hasattr(made, "acknowledge"):
        raise SettingsError(f"{SETTING}: {value!r} returned {made!r}, which is not a frontier", SETTING)
    return cast("Frontier", made)


class JobSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Jobs, which let a crawl outlive its process, and frontiers of other packages.

    Attributes:
        job_dir: Directory for everything that a crawl needs to continue in a later process: pending and seen requests,
            items that the feeds have not written yet, the learned state of hosts, statistics. It is created if missing.
            Or the address of a Redis or Valkey server and a name, ``redis://host/NAME``. ``--job`` sets it. Empty: all
            of this is in memory and lost when the process ends.
        job_durability: Durability that the server of a job must be configured for. It is checked at the start.
            ``always``: each step is on its disk before it counts (``appendfsync always``); ``replicated``: each step is
            in a replica before it counts; ``fast``: neither, so the last steps are repeated after a power cut of the
            server, and items may be written twice. No effect on a job in a directory.
        job_lease: Lease of a process on a job in a server: the seconds that it may be out of contact with the server
            before others may replace it. If the server is away for longer, the process stops sending. After a kill, the
            next process waits until the lease ends. While a callback blocks its process, a thread renews the lease for
            at most 20 leases. No effect on a job in a directory.
        job_keep_given_up: Keep the pending requests of a host that is given up in the job. The next run sends them
            again, even if their errbacks were called. ``trawl job`` lists them. False ends them permanently, like any
            other failed request.
        frontier: Frontier to use instead of the one in memory: a function of the crawl's settings that returns a
            frontier (async or not), its import path, or the name of an installed plugin. Can't be used with a job,
            which has its own frontier.
    """

    job_dir: Annotated[str, Meta(title="")] = ""
    job_durability: Literal["always", "replicated", "fast"] = "always"
    job_lease: Annotated[float, Meta(gt=1.0)] = 15.0
    job_keep_given_up: bool = True
    frontier: object = ""

    def __post_init__(self) -> None:
        if self.frontier and self.job_dir:
            raise SettingsError("FRONTIER can't be used with JOB_DIR, because a job has its own frontier", "FRONTIER")
        scheme, is_url, _ = self.job_dir.partition("://")
        if is_url and not self.job_dir.startswith(SCHEMES):  # don't show the URL, because it may contain a password
            raise SettingsError(
                f"JOB_DIR must be a directory, or start with {', '.join(SCHEMES)}; not {scheme}://", "JOB_DIR"
            )
