"""Digests of what two processes on one job must have in common: settings, the spider's code, its arguments.

They are compared by name, so that a process that is refused can say what differs. A value itself, which may be a
password, is told to nobody.

Only the run imports it, when a job is in a server.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trawl.settings.values import DEFAULT, Settings

__all__ = ["digests"]

OF_A_PROCESS = (
    *("CLOSESPIDER_", "COOKIES_DEBUG", "COOKIES_FILE", "DNS_", "DOWNLOAD_BIND_ADDRESS", "FEED", "HTTPCACHE_"),
    *("JOB_", "LOG", "MEMUSAGE_", "SHUTDOWN_TIMEOUT", "WARC_", "WATCHERS"),
)
"""How the names of settings begin that each process has for itself: they change nothing of what is sent when."""

CODE, ARGUMENT = "the spider's code", "-a "


def digests(settings: Settings, spider: type, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return digests by name: of settings that are not the default, of the spider's module, and of its arguments.

    Args:
        settings: Of the crawl.
        spider: The spider's class.
        arguments: Of its constructor.
    """
    found = {
        name: _short(_text(value).encode(errors="backslashreplace"))
        for name, value in settings.items()
        if not name.startswith(OF_A_PROCESS) and settings.source(name) != DEFAULT
    }
    file = getattr(sys.modules.get(spider.__module__), "__file__", None)
    try:
        found[CODE] = _short(Path(file).read_bytes()) if file else ""
    except OSError:  # out of an archive, say
        found[CODE] = ""
    found.update(
        {f"{ARGUMENT}{name}": _short(_text(value).encode(errors="replace")) for name, value in arguments.items()}
    )
    return found


def _short(value: bytes) -> str:
    return hashlib.blake2b(value, digest_size=6).hexdigest()


def _text(value: object) -> str:
    """Return a text of a value that is the same in every process."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(each)}' for key, each in value.items()))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if inspect.isclass(value) or inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    shown = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in shown else shown
