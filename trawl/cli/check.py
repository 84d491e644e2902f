"""The command ``trawl check``: what can be known to be wrong before a crawl."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from trawl.cli.checks import check_spider
from trawl.cli.exits import FAILED, OK
from trawl.cli.load import load_spiders
from trawl.errors import SpiderLoadError
from trawl.observe import printable

__all__ = ["check_command"]


def check_command(targets: Sequence[str]) -> int:
    """Check the spiders that ``targets`` name; the exit status.

    What is wrong is printed a line each, as ``FILE:LINE: what``; what can't be loaded too.
    """
    spiders = 0
    wrong: list[str] = []
    for target in targets:
        try:
            found = load_spiders(target)
        except SpiderLoadError as error:
            wrong.append(str(error))
            continue
        spiders += len(found)
        wrong += [str(finding) for spider in found for finding in check_spider(spider)]
    for line in dict.fromkeys(wrong):  # what several spiders share is said once
        typer.echo(printable(line))
    if not wrong:
        typer.echo(f"{spiders} spider{'' if spiders == 1 else 's'}: nothing wrong")
    return FAILED if wrong else OK
