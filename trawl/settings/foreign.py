"""Scrapy's settings that mean nothing here, and why: they are passed over with a warning instead of refused.

A spider that moves here from Scrapy keeps its ``custom_settings``. Only what changes nothing about the pages that are
fetched is listed; a setting that would (a middleware, a proxy, a storage) is refused as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FOREIGN", "why_ignored"]

FOREIGN: Mapping[str, str] = {
    "ADDONS": "there are no add-ons",
    "ASYNCIO_EVENT_LOOP": "trawl runs on Trio",
    "BOT_NAME": "there are no projects; USER_AGENT says who crawls",
    "NEWSPIDER_MODULE": "there are no projects",
    "REACTOR_THREADPOOL_MAXSIZE": "trawl runs on Trio",
    "REQUEST_FINGERPRINTER_IMPLEMENTATION": "there is one fingerprint",
    "SPIDER_MODULES": "there are no projects",
    "STATS_DUMP": "the command always ends with a summary",
    "TELNETCONSOLE_ENABLED": "there is no telnet console",
    "TELNETCONSOLE_HOST": "there is no telnet console",
    "TELNETCONSOLE_PASSWORD": "there is no telnet console",
    "TELNETCONSOLE_PORT": "there is no telnet console",
    "TELNETCONSOLE_USERNAME": "there is no telnet console",
    "TWISTED_REACTOR": "trawl runs on Trio",
    "TWISTED_REACTOR_ENABLED": "trawl runs on Trio",
}
"""Name to reason."""


def why_ignored(name: str) -> str:
    """Why the setting ``name`` is passed over; "" if it is not one of those."""
    return FOREIGN.get(name, "")
