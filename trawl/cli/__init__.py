"""The command ``trawl``.

Its parts are imported inside :func:`main`, so that a Ctrl-C that comes meanwhile ends the command as any other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trawl.cli.exit_status import INTERRUPTED

if TYPE_CHECKING:
    from trawl.cli.view import CrawlWith

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command; the exit status.

    Args:
        arguments: What was typed after ``trawl``; the process's own if None.
        crawl_with: Runs the crawl in place of the real engine, in tests.
    """
    try:
        from trawl.cli.app import main as run  # noqa: PLC0415

        return run(arguments, crawl_with=crawl_with)
    except KeyboardInterrupt:
        return INTERRUPTED
