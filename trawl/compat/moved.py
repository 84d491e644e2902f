"""Spiders that were written for Scrapy, told from native ones, and the defaults of settings that hold for their crawls.

What would be wrong for a native spider holds only for a moved one. Most of it is the default of an ordinary setting: a
row of :data:`MOVED_DEFAULTS`, which :func:`trawl.settings.load` puts below every other source. ``SCRAPY_COMPAT`` is one
of them, so that loaded settings answer for the crawl: ``settings["SCRAPY_COMPAT"]`` is true in a moved one.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trawl.tracebacks import is_user_file

if TYPE_CHECKING:
    from trawl.spiders import Spider

__all__ = ["FACES", "MOVED_DEFAULTS", "MOVED_UNUSED", "ignore_urls", "is_moved", "project_files"]

logger: logging.Logger = logging.getLogger("trawl.admission")

NO_DOMAIN = "none.invalid"
"""A domain that has no hosts (RFC 2606, 2)."""

FACES = frozenset({"item", "link", "linkextractors", "selector", "utils"})
"""Modules of trawl that only Scrapy's users import: not ``loader``, ``exporters``, ``crawler``, which all may use."""

_NAMES_FACE = re.compile(rf"\btrawl[\s\\]*\.[\s\\]*({'|'.join(sorted(FACES))})\b")
"""Found in the text of each file that imports one, and in few others: those alone are parsed."""

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
"""Name of a setting to its default for a moved crawl."""

MOVED_UNUSED: Mapping[str, object] = {"BOT_NAME": "scrapybot", "CONCURRENT_ITEMS": 100}
"""Settings of Scrapy's without effect here, with the defaults that a moved crawl reads."""


def is_moved(spider_class: type) -> bool:
    """Return whether a spider's imports are those of a file that was written for Scrapy.

    The files of its class and of all base classes count, except trawl's own: one says ``import trawl as scrapy``, or
    imports from a module in :data:`FACES`. The setting ``SCRAPY_COMPAT`` decides instead where it is true or false.

    Args:
        spider_class: The spider's class.
    """
    names = dict.fromkeys(kind.__module__ for kind in spider_class.__mro__)
    modules = (sys.modules.get(name) for name in names if name.partition(".")[0] not in ("trawl", "builtins"))
    return any(_is_moved(module) for module in modules if module is not None)


def _is_moved(module: ModuleType) -> bool:
    return vars(module).get("scrapy") is sys.modules["trawl"] or _imports_face(getattr(module, "__file__", None))


def _imports_face(file: str | None) -> bool:
    """Look for an import of one of :data:`FACES` in a file: the imported names do not tell where they come from."""
    try:
        text = Path(file or "").read_text("utf-8")
        nodes = list(ast.walk(ast.parse(text))) if _NAMES_FACE.search(text) else []
    except (OSError, SyntaxError, ValueError):  # compiled, in an archive, or typed at a prompt
        return False
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imports = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return any(name and name.startswith("trawl.") and name.split(".")[1] in FACES for name in sources | imports)


def project_files(spider_class: type, parts: Iterable[object] = ()) -> list[str]:
    """Return the files of a spider's project that are loaded: its own, and those in its folder and below.

    Installed packages do not count.

    Args:
        spider_class: The spider's class.
        parts: Classes and functions whose files count too.
    """
    classes = [spider_class, *parts]
    kinds = {kind for each in classes for kind in getattr(each, "__mro__", [each])}
    files = {_file_of(getattr(kind, "__module__", "")) for kind in kinds}
    first = _file_of(spider_class.__module__)
    if first:
        root = Path(first).parent
        while (root / "__init__.py").is_file() and root != root.parent:
            root = root.parent
        below = os.path.join(root, "")  # as text: a path of each module that is loaded takes long
        files |= {file for name in list(sys.modules) if (file := _file_of(name)).startswith(below)}
    return sorted(file for file in files if file and is_user_file(file))


def _file_of(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""


def ignore_urls(spider: Spider[Any]) -> None:
    """Warn of URLs and ports in a spider's ``allowed_domains``, and take them out: in Scrapy they match nothing."""
    given: Any = spider.allowed_domains
    if isinstance(given, str) or not isinstance(given, Iterable):
        return
    domains = list(given)
    wrong = [name for name in domains if isinstance(name, str) and (":" in name.rpartition("]")[2] or "/" in name)]
    if not wrong:
        return
    words = "%s: allowed_domains: %s: URLs and ports match nothing, as in Scrapy; write the domain alone"
    logger.warning(words, spider.name, ", ".join(map(repr, wrong)))
    kept = [name for name in domains if name not in wrong]
    spider.allowed_domains = kept or [NO_DOMAIN]  # none at all would allow every domain
