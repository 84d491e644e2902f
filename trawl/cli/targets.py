"""What ``-o``, ``-O`` and ``-a`` mean."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trawl.errors import UsageError
from trawl.settings import Layer

__all__ = ["STANDARD_OUTPUT", "feeds_layer", "spider_arguments"]

STANDARD_OUTPUT = "-"
_WITH_FORMAT = re.compile(r"(?P<path>.+):(?P<format>[A-Za-z][A-Za-z0-9]*)\Z", re.DOTALL)


def feeds_layer(appended: Iterable[str], overwritten: Iterable[str]) -> Layer:
    """The setting FEEDS that ``-o`` (append) and ``-O`` (overwrite) stand for; empty without any.

    Where no format is said with ``FEED:FORMAT``, the feed's ending says it; standard output is JSON lines then.

    Raises:
        UsageError: A feed is given twice, or has an empty name.
    """
    feeds: dict[str, dict[str, object]] = {}
    for option, texts, overwrite in (("-o", appended, False), ("-O", overwritten, True)):
        for text in texts:
            path, form = _parted(text)
            if not path:
                raise UsageError(f"{option} takes FEED or FEED:FORMAT, not {text!r}")
            if path in feeds:
                raise UsageError(f"the feed {path!r} is given twice")
            feeds[path] = {"overwrite": overwrite} | ({"format": form} if form else {})
    return Layer("-o/-O", {"FEEDS": feeds} if feeds else {})


def _parted(text: str) -> tuple[str, str]:
    match = _WITH_FORMAT.match(text)
    path, form = (match["path"], match["format"]) if match else (text, "")
    return path, form or ("jsonl" if path == STANDARD_OUTPUT else "")


def spider_arguments(texts: Iterable[str]) -> dict[str, str]:
    """The spider's arguments out of texts ``NAME=VALUE``, as ``-a`` takes them; the last of a name counts.

    Raises:
        UsageError: A text has no ``=``, or what is before it is no Python name.
    """
    arguments: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"-a takes NAME=VALUE, not {text!r}")
        arguments[name] = value
    return arguments
