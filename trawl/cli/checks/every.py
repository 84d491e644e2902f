"""All checks of one spider."""

from __future__ import annotations

from trawl.cli.checks.annotations import check_annotations
from trawl.cli.checks.attributes import check_attributes
from trawl.cli.checks.callbacks import callbacks_of, check_callbacks
from trawl.cli.checks.finding import Finding
from trawl.cli.checks.habits import check_habits
from trawl.cli.checks.imports import check_imports
from trawl.cli.checks.outputs import check_outputs
from trawl.cli.checks.source import SpiderSource
from trawl.cli.checks.starts import check_starts
from trawl.spiders import Spider

__all__ = ["check_spider", "check_work"]


def check_spider(spider: type[Spider]) -> list[Finding]:
    """Everything wrong with a spider's class that can be seen without running it, in the order of its lines."""
    source = SpiderSource(spider)
    found = [
        *check_imports(source),
        *check_habits(source),
        *check_attributes(spider, source),
        *check_callbacks(spider, source),
        *check_annotations(spider, source, callbacks_of(spider, source)),
    ]
    return sorted({*found, *check_work(spider)})


def check_work(spider: type[Spider]) -> list[Finding]:
    """What keeps a spider from sending anything, or what it makes from reaching the crawl, by its lines."""
    source = SpiderSource(spider)
    found = [*check_starts(spider, source), *check_outputs(spider, source, callbacks_of(spider, source))]
    return sorted(set(found))
