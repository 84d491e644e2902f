"""Moved spiders: how they are recognized, the defaults of their crawls, and Scrapy's names of settings.

Behavior that would be wrong for a native spider applies only to moved spiders. Most of this behavior is controlled by
ordinary settings. :data:`MOVED_DEFAULTS` has the defaults of these settings for moved crawls, and
:func:`trawl.settings.load` uses them below every other source. ``SCRAPY_COMPAT`` is one of these settings, so that
``settings["SCRAPY_COMPAT"]`` shows whether a crawl is moved.

Every crawl loads this module, so it does not import the tables of advice.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "DISABLED",
    "FACES",
    "MOVED_DEFAULTS",
    "MOVED_UNUSED",
    "RENAMED",
    "disabled_by",
    "is_disabled",
    "is_moved",
    "is_moved_file",
    "is_moved_text",
    "renamed",
]

FACES = frozenset({"item", "link", "linkextractors", "selector", "utils"})
"""Modules of trawl that only code written for Scrapy imports.

All code may import ``loader``, ``exporters`` and ``crawler``.
"""

_NAMES_FACE = re.compile(rf"trawl[\s\\]*\.[\s\\]*({'|'.join(sorted(FACES))})\b")
"""Matches each file that imports one of these modules, and few other files. Only matching files are parsed.

The pattern starts with a literal, which makes the search several times faster.
"""

_AS_SCRAPY = re.compile(r"^\s*import trawl as scrapy\b", re.MULTILINE)


def is_moved(spider_class: type) -> bool:
    """Return whether a spider's imports show that its file was written for Scrapy.

    Checks the files of the spider's class and of its base classes, except trawl's files. A spider is moved if one of
    these files contains ``import trawl as scrapy``, or imports from a module in :data:`FACES`. The result is not used
    if the setting ``SCRAPY_COMPAT`` is true or false.
    """
    names = dict.fromkeys(kind.__module__ for kind in spider_class.__mro__)
    modules = (sys.modules.get(name) for name in names if name.partition(".")[0] not in ("trawl", "builtins"))
    return any(_is_moved(module) for module in modules if module is not None)


def _is_moved(module: ModuleType) -> bool:
    if vars(module).get("scrapy") is sys.modules["trawl"]:
        return True
    with suppress(OSError, UnicodeDecodeError):
        return _imports_face(Path(getattr(module, "__file__", None) or "").read_text("utf-8"))
    return False


def is_moved_file(path: str) -> bool:
    """Return whether the imports of a file show that it was written for Scrapy, without running it."""
    with suppress(OSError, UnicodeDecodeError):
        return is_moved_text(Path(path).read_text("utf-8"))
    return False


def is_moved_text(text: str) -> bool:
    """Return whether the imports in the text of a file show that it was written for Scrapy."""
    return bool(_AS_SCRAPY.search(text)) or _imports_face(text)


def _imports_face(text: str) -> bool:
    """Return whether a file imports one of :data:`FACES`. The names in a loaded module do not show their origin."""
    try:
        nodes = list(ast.walk(ast.parse(text))) if _NAMES_FACE.search(text) else []
    except (SyntaxError, ValueError):
        return False
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imports = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return any(name and name.startswith("trawl.") and name.split(".")[1] in FACES for name in sources | imports)


_PART_LISTS = ("DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "SPIDER_MIDDLEWARES")

RENAMED: Mapping[str, str] = {
    "DOWNLOAD_SLOTS": "THROTTLING_SCOPES",
    "FEED_FORMAT": "FEEDS",
    "FEED_URI": "FEEDS",
    "JOBDIR": "JOB_DIR",
}
"""Scrapy's settings that have another name in trawl, with trawl's name."""

DISABLED: Mapping[str, Mapping[str, object]] = {
    # Seconds. Without this middleware, Scrapy's download handlers use this timeout.
    "downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware": {"DOWNLOAD_TIMEOUT": 10.0},
    "downloadermiddlewares.httpcompression.HttpCompressionMiddleware": {"COMPRESSION_ENABLED": False},
    "downloadermiddlewares.robotstxt.RobotsTxtMiddleware": {"ROBOTSTXT_OBEY": False},
    "extensions.closespider.CloseSpider": dict.fromkeys(
        (
            *("CLOSESPIDER_ERRORCOUNT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT", "CLOSESPIDER_TIMEOUT"),
            "CLOSESPIDER_TIMEOUT_NO_ITEM",
        ),
        0,
    ),
    "extensions.feedexport.FeedExporter": {"FEEDS": {}},
    "extensions.logstats.LogStats": {"LOGSTATS_INTERVAL": 0},
    "extensions.memusage.MemoryUsage": {"MEMUSAGE_LIMIT_MB": 0, "MEMUSAGE_WARNING_MB": 0},
    "extensions.throttle.AutoThrottle": {"AUTOTHROTTLE_ENABLED": False},
    "spidermiddlewares.depth.DepthMiddleware": {"DEPTH_LIMIT": 0},
    "spidermiddlewares.httperror.HttpErrorMiddleware": {"HTTPERROR_ALLOW_ALL": True},
    "spidermiddlewares.referer.RefererMiddleware": {"REFERER_ENABLED": False},
    "spidermiddlewares.urllength.UrlLengthMiddleware": {"URLLENGTH_LIMIT": 0},
}
"""Scrapy's components that are not middleware in trawl, with the settings that turn off the component in trawl.

The names are without ``scrapy.``.
"""

_EXPORTERS = {
    "json": "trawl.exporters.JsonItemExporter",
    "jsonlines": "trawl.exporters.JsonLinesItemExporter",
    "jsonl": "trawl.exporters.JsonLinesItemExporter",
    "jl": "trawl.exporters.JsonLinesItemExporter",
    "csv": "trawl.exporters.CsvItemExporter",
    "xml": "trawl.exporters.XmlItemExporter",
    "marshal": "trawl.exporters.MarshalItemExporter",
    "pickle": "trawl.exporters.PickleItemExporter",
}

MOVED_DEFAULTS: Mapping[str, object] = {
    "COOKIES_LIKE_SCRAPY": True,
    "FEED_EXPORTERS_BASE": _EXPORTERS,
    "FEED_EXPORT_ENCODING": None,
    "FILTER_START_URLS": False,
    "MEDIA_LIKE_SCRAPY": True,
    "SCRAPY_COMPAT": True,
}
"""Defaults of a moved crawl, by name of the setting."""

MOVED_UNUSED: Mapping[str, object] = {"BOT_NAME": "scrapybot", "CONCURRENT_ITEMS": 100}
"""Scrapy's settings without effect in trawl, with the defaults that a moved crawl reads."""


def is_disabled(path: str) -> bool:
    """Return whether a setting of trawl replaces None for the Scrapy component with this import path."""
    return path.removeprefix("scrapy.") in DISABLED


def renamed(values: Mapping[str, object], decode: Callable[[str], object]) -> Mapping[str, object]:
    """Return the values of one source under trawl's names. A value under trawl's name takes precedence.

    ``FEED_URI`` and ``FEED_FORMAT`` are left out, because two sources may set them. ``decode`` decodes a JSON string.
    """
    if not RENAMED.keys() & values.keys():
        return values
    own = {name: value for name, value in values.items() if name not in RENAMED}
    for name, ours in RENAMED.items():
        if ours != "FEEDS" and values.get(name) is not None:
            own.setdefault(ours, _scopes(values[name], decode) if name == "DOWNLOAD_SLOTS" else values[name])
    return own


def disabled_by(values: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    """Return the settings that change because a list of components has None for one of Scrapy's components.

    The result has a pair for each setting: the new value, and the name of the list with the None. As in Scrapy, None
    takes precedence over the setting. For example, ``ROBOTSTXT_OBEY`` is ignored if ``RobotsTxtMiddleware`` is None.
    """
    found: dict[str, tuple[object, str]] = {}
    for name in _PART_LISTS:
        entries = values.get(name)
        for entry, number in entries.items() if isinstance(entries, Mapping) else ():
            root, _, path = entry.partition(".") if isinstance(entry, str) else ("", "", "")
            if number is None and root in ("scrapy", "trawl"):
                found |= {setting: (off, name) for setting, off in DISABLED.get(path, {}).items()}
    return found


def _scopes(slots: Any, decode: Callable[[str], object]) -> Any:
    """Return ``DOWNLOAD_SLOTS`` as scopes. ``randomize_delay`` becomes the scope's jitter."""
    slots = decode(slots) if isinstance(slots, str) else slots
    if not isinstance(slots, Mapping) or not all(isinstance(slot, Mapping) for slot in slots.values()):
        return slots
    names = {"randomize_delay": "jitter"}
    return {host: {names.get(key, key): value for key, value in slot.items()} for host, slot in slots.items()}
