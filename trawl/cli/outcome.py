"""The outcome of a crawl for the program that started it: ``--fail-on``, and the file of ``--stats``.

Only :mod:`trawl.cli.run` imports this: it is not part of running a crawl, which that module is about.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trawl.cli.load import STANDARD_OUTPUT
from trawl.errors import TrawlError, UsageError
from trawl.feeds import to_json
from trawl.file_sync import write_file
from trawl.observe import FAILINGS, failings

__all__ = ["StatsFile", "failed_in", "wanted_failings"]


def wanted_failings(typed: Sequence[str]) -> frozenset[str]:
    """Return the kinds of failure that ``--fail-on`` names, each option with one or several, set apart by commas.

    Raises:
        UsageError: There is no such kind.
    """
    names = frozenset(name.strip() for text in typed for name in text.split(","))
    for name in sorted(names - set(FAILINGS)):
        raise UsageError(f"--fail-on {name}: there is no such failure; use {', '.join(FAILINGS)}")
    return names


def failed_in(wanted: frozenset[str], stats: Mapping[str, object]) -> str:
    """Return in which of the wanted respects a crawl failed, in words; "" if in none.

    Args:
        wanted: Kinds of failure: those of :data:`trawl.observe.FAILINGS`.
        stats: The statistics of the crawl.
    """
    return "; ".join(f"{kind}: {words}" for kind, words in failings(stats).items() if kind in wanted)


class StatsFile:
    """The file that ``--stats`` names: one JSON object of all statistics, there whole or not at all.

    Args:
        path: Its path; ``-`` for standard output.

    Raises:
        UsageError: The file's folder does not exist or can't be written to, or the path is a folder.
    """

    def __init__(self, path: str) -> None:
        self._path = None if path == STANDARD_OUTPUT else Path(os.path.realpath(path))
        if self._path is None:
            return
        folder = self._path.parent
        if not folder.is_dir():
            raise UsageError(f"--stats {path}: there is no folder {folder}; make it first")
        if self._path.is_dir():
            raise UsageError(f"--stats {path}: that is a folder; name a file in it")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"--stats {path}: no file can be written in {folder}; change its permissions")

    def write(self, stats: Mapping[str, object]) -> None:
        """Write the statistics, dates as in ISO 8601; the file that was there before is replaced.

        Raises:
            TrawlError: The file can't be written.
        """
        text = msgspec.json.format(to_json(dict(stats))) + b"\n"
        try:
            if self._path is None:
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
            elif self._path.exists() and not self._path.is_file():  # a pipe, or a device
                self._path.write_bytes(text)
            else:
                write_file(self._path, text)
        except OSError as error:
            raise TrawlError(
                f"the statistics can't be written to {self._path or 'stdout'}: {error.strerror}"
            ) from error
