"""What a spider's file still imports of Scrapy's, which may be installed beside trawl and does nothing for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trawl.cli.checks.finding import Finding
from trawl.cli.checks.source import SpiderSource
from trawl.moving import changes

__all__ = ["check_imports", "imports_of"]


def check_imports(source: SpiderSource) -> Iterator[Finding]:
    """Say what each import of Scrapy's in a spider's own file is to be changed to."""
    yield from imports_of(source.home()[0])


def imports_of(path: str) -> Iterator[Finding]:
    """Say what each import of Scrapy's in a file is to be changed to; nothing of one that can't be read."""
    try:
        found = changes(Path(path).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):  # a class that no file has
        return
    yield from (Finding(path, change.line, str(change)) for change in found)
