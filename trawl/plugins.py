"""Plugins: components of other packages, found by their entry points and loaded when they are named.

========================  ==============================================================================
group                     an entry, and where its name is used
========================  ==============================================================================
``trawl.middleware``      a middleware, named in ``DOWNLOADER_MIDDLEWARES``
``trawl.feeds``           a feed format, named in ``FEEDS`` or by a file extension
``trawl.frontiers``       a function of the crawl's settings that returns a frontier, named by ``FRONTIER``
``trawl.watchers``        an async function of the running crawl, named in ``WATCHERS``
``trawl.commands``        a ``typer.Typer``, a command of ``trawl``
========================  ==============================================================================

An installed package costs nothing until one of its entries is named (Python packaging user guide, "Entry points
specification").
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from trawl.errors import SettingsError

if TYPE_CHECKING:  # importing and using importlib.metadata takes as long as the rest of `trawl --help`
    from importlib.metadata import EntryPoint

__all__ = ["load_plugin", "plugin_names"]


def plugin_names(group: str) -> list[str]:
    """Return the names that installed packages declare in ``group``, sorted, without loading anything."""
    if not _may_declare(group):
        return []
    from importlib.metadata import entry_points  # noqa: PLC0415

    return sorted({entry.name for entry in entry_points(group=group)})


def _may_declare(group: str) -> bool:
    """Return False if no package in the folders of ``sys.path`` declares entries of ``group``.

    Each package lists its groups in ``entry_points.txt`` next to its metadata (Python packaging user guide, "Entry
    points specification"). Also return True if a part of ``sys.path`` can't be read in this way, such as an archive.
    """
    head = f"[{group}]".encode()
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info", ".egg"))]
        except FileNotFoundError:
            continue
        except OSError:
            return True
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if head in file.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                if name.endswith(".egg"):
                    return True
            except OSError:
                return True
    return False


def load_plugin(group: str, name: str) -> Any:
    """Load the entry ``name`` of ``group``.

    Raises:
        SettingsError: If there is no such entry, two packages declare it, or it can't be imported. The message names
            the package.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = {entry.value: entry for entry in entry_points(group=group, name=name)}
    if not found:
        known = ", ".join(plugin_names(group)) or "none at all"
        raise SettingsError(f"no installed package has a {group} named {name!r}: there is {known}", name)
    if len(found) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in found.values()))
        raise SettingsError(f"{packages} both have a {group} named {name!r}; give the import path instead", name)
    (entry,) = found.values()
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}"
        raise SettingsError(f"{name!r} of the package {_package(entry)} can't be loaded: {words}", name) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
