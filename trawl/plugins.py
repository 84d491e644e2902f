"""What other packages bring, found by the entry points that they declare, and loaded when it is named.

========================  ==============================================================================
group                     what an entry of it is, and where its name is written
========================  ==============================================================================
``trawl.middleware``      a middleware, as ``DOWNLOADER_MIDDLEWARES`` takes it, written there by its name
``trawl.feeds``           a feed's format, by its name in ``FEEDS`` or as the ending of a file
``trawl.frontiers``       a function of the crawl's settings that gives a frontier, named by ``FRONTIER``
``trawl.watchers``        an async function of the running crawl, written in ``WATCHERS`` by its name
``trawl.commands``        a ``typer.Typer``: a word of the command
========================  ==============================================================================

Nothing is loaded that is not named: an installed package costs nothing (Python packaging user guide, "Entry points
specification").
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trawl.errors import SettingsError

__all__ = ["load_plugin", "plugin_names"]


def plugin_names(group: str) -> list[str]:
    """The names that installed packages declare in ``group``, in alphabetical order; nothing is loaded."""
    return sorted({entry.name for entry in entry_points(group=group)})


def load_plugin(group: str, name: str) -> Any:
    """What an installed package declares as ``name`` in ``group``.

    Raises:
        SettingsError: There is none of that name, two packages declare it, or it can't be imported; the sentence names
            the package.
    """
    found = {entry.value: entry for entry in entry_points(group=group, name=name)}
    if not found:
        known = ", ".join(plugin_names(group)) or "none at all"
        raise SettingsError(f"no installed package has a {group} named {name!r}: there is {known}", name)
    if len(found) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in found.values()))
        raise SettingsError(f"{packages} both have a {group} named {name!r}: give the import path in its place", name)
    (entry,) = found.values()
    try:
        return entry.load()
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise SettingsError(f"{name!r} of the package {_package(entry)} can't be loaded: {words}", name) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
