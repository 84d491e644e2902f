"""The settings of a crawl, combined from all packages, loaded from several layers, and checked. Each has a source."""

from trawl.settings.load import (
    Layer,
    ambient,
    assignments,
    file_of,
    is_moved_crawl,
    line_of,
    load,
    of_environment,
    of_project,
    of_spider,
)
from trawl.settings.values import (
    DEFAULT,
    MOVED_DEFAULT,
    SECTIONS,
    Section,
    SettingInfo,
    Settings,
    UnknownSetting,
    definitions,
    digests,
)

__all__ = [
    "DEFAULT",
    "MOVED_DEFAULT",
    "SECTIONS",
    "Layer",
    "Section",
    "SettingInfo",
    "Settings",
    "UnknownSetting",
    "ambient",
    "assignments",
    "definitions",
    "digests",
    "file_of",
    "is_moved_crawl",
    "line_of",
    "load",
    "of_environment",
    "of_project",
    "of_spider",
]
