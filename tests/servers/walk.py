"""Which pages a tree of HTML files holds, found without any part of trawl: a yardstick for crawls of it."""

from __future__ import annotations

import gzip
import re
from html import unescape
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

BASE = "http://walk.invalid/"


LINK = re.compile(r"""<a\s[^>]*?\bhref=["']([^"']*)["']""", re.IGNORECASE)
"""An ``a`` element and its target, as Sphinx writes them. ``html.parser`` finds the same, five times slower."""


def reachable(root: Path, start: str = "index.html") -> set[str]:
    """The paths (``/library/os.html``) of the ``.html`` files that links lead to from ``start``."""
    found: set[str] = set()
    missing: set[str] = set()
    todo = [f"/{start}"]
    while todo:
        path = todo.pop()
        if path in found or path in missing:
            continue
        text = read(root / path.lstrip("/"))
        if text is None:
            missing.add(path)
            continue
        found.add(path)
        for link in set(LINK.findall(text)):
            url = urlsplit(urldefrag(urljoin(urljoin(BASE, path), unescape(link))).url)
            if url.scheme == "http" and url.netloc == urlsplit(BASE).netloc and url.path.endswith(".html"):
                todo.append(url.path)
    return found


def read(file: Path) -> str | None:
    """The text of a page, which may be kept compressed beside its place; None if there is none."""
    packed = file.with_name(f"{file.name}.gz")
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return gzip.decompress(packed.read_bytes()).decode() if packed.is_file() else None
