r"""A simulated web described in a TOML file (``trawl simulate SPIDER --web FILE.toml``), or recorded in WARC files.

::

    latency = 0.1                                  # the default for all hosts

    [hosts."a.example"]
    latency = [0.05, 0.4]                          # random for each request
    connect = 0.03
    limit = { rate = 5, burst = 5, retry_after = 2 }
    outages = [{ start = 60, end = 90, status = 503 }]
    site = { pages = 200, links = 10 }             # /, /1, /2 ... linked as a tree

    [hosts."b.example"]
    address = "192.0.2.7"                          # by default, each host has its own
    robots = "User-agent: *\nCrawl-delay: 2"
    [hosts."b.example".pages]
    "/" = { links = ["/one", "/two"] }
    "/two" = { redirect = "/one" }
    "/big" = { file = "big.html", latency = 3 }    # next to the TOML file

All entries are checked. The error for an unknown key suggests the nearest known key.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from trawl.errors import SettingsError, UsageError
from trawl.http import join_url
from trawl.settings.check import checked
from trawl.testing.hosts import EMPTY_PAGE, Latency, Outage, Uniform, failure_named
from trawl.testing.limits import RateLimit
from trawl.testing.warc import reading_errors, warc_files
from trawl.testing.web import SimulatedWeb

__all__ = ["load_web"]

Time = Annotated[float, Meta(ge=0)]
Seconds = Time | Annotated[list[Time], Meta(min_length=2, max_length=2)]
"""A number of seconds, or the minimum and maximum to draw from for each request."""

Status = Annotated[int, Meta(ge=200, le=599)]


class LimitTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A rate limit; see :class:`trawl.testing.RateLimit`."""

    rate: Time
    burst: Annotated[float, Meta(ge=1)] = 1.0
    status: Status = 429
    retry_after: float | str | bool | None = None
    headers: str | dict[str, str] | None = None
    latency: Time | None = None
    body: str = ""
    changes: list[Annotated[list[Time], Meta(min_length=2, max_length=2)]] = []


class OutageTable(Struct, frozen=True, forbid_unknown_fields=True):
    """An outage; see :class:`trawl.testing.Outage`."""

    start: Time
    end: Time
    status: Status = 503
    error: str | None = None
    retry_after: float | str | None = None
    latency: Time | None = None


class SiteTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Linked pages; see :meth:`trawl.testing.SimulatedWeb.add_site`."""

    pages: Annotated[int, Meta(ge=1)]
    links: Annotated[int, Meta(ge=1)] = 10


class PageTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A page; see :meth:`trawl.testing.SimulatedWeb.add_page`. ``file`` names a file with the body."""

    links: list[str] = []
    title: str = ""
    body: str | None = None
    file: str | None = None
    redirect: str | None = None
    status: Status | None = None
    headers: dict[str, str] = {}
    latency: Time = 0.0
    first_byte: Time | None = None
    error: str | None = None


class HostTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A host; see :meth:`trawl.testing.SimulatedWeb.add_host`."""

    latency: Seconds | UnsetType = UNSET
    connect: Seconds | UnsetType = UNSET
    keep_alive: Time = 75.0
    limit: LimitTable | None = None
    limits: list[LimitTable] = []
    robots: str | None = None
    status: Status = 200
    body: str | None = None
    headers: dict[str, str] = {}
    connect_error: str | None = None
    outages: list[OutageTable] = []
    site: SiteTable | None = None
    pages: dict[str, PageTable] = {}
    address: str = ""


class WebTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    hosts: dict[str, HostTable]
    latency: Seconds = 0.0
    connect: Seconds = 0.0


def load_web(path: str | Path) -> SimulatedWeb:
    """Load the web that a TOML file describes, or that WARC files contain.

    Args:
        path: The TOML file, or a file that ends in .warc or .warc.gz. The value of ``WARC_FILE`` (``crawl.warc.gz``)
            stands for all its numbered files.

    Raises:
        UsageError: If the file can't be read, or an entry is unknown, of the wrong type or out of range. The message is
            one line that names the file and the entry.
    """
    path = Path(path)
    if path.name.endswith((".warc", ".warc.gz")):
        return _of_warcs(path)
    try:
        table = checked(tomllib.loads(path.read_text("utf-8")), WebTable, "the web")
        return _web_of(table, path.parent)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    except SettingsError as error:
        raise UsageError(f"{path}: {_told(error)}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _of_warcs(path: Path) -> SimulatedWeb:
    with reading_errors(path):
        web = SimulatedWeb.from_warc(*warc_files(path))
    if web.recording is None or not web.recording.hosts:
        raise UsageError(f"{path}: no request was found in it")
    return web


def _told(error: SettingsError) -> str:
    """Return the message of an error, with its place in TOML notation and the name of a missing key."""
    words = re.sub(r"the web\['(\w+)'\]", r"\1", str(error))
    cause = str(error.__cause__ or "")
    missing = re.search(r"missing required field `(\w+)`", cause)
    return words if missing is None else f"{words.partition(' must be ')[0]} has no {missing[1]!r}"


def _web_of(table: WebTable, folder: Path) -> SimulatedWeb:
    web = SimulatedWeb()
    for name, host in table.hosts.items():
        options = {key: value for key, value in asdict(host).items() if key not in {"limits", "site", "pages"}} | {
            "latency": _law(table.latency if host.latency is UNSET else host.latency),
            "connect": _law(table.connect if host.connect is UNSET else host.connect),
            "limit": [RateLimit(**asdict(each)) for each in (*([host.limit] if host.limit else []), *host.limits)],
            "body": EMPTY_PAGE if host.body is None else host.body,
            "connect_error": failure_named(host.connect_error),
            "outages": [Outage(**asdict(each) | {"error": failure_named(each.error)}) for each in host.outages],
        }
        if host.site is None:
            web.add_host(name, **options)
        else:
            web.add_site(name, host.site.pages, links=host.site.links, **options)
        for address, page in host.pages.items():
            _add_page(web, join_url(f"http://{name}/", address), page, folder)
    return web


def _add_page(web: SimulatedWeb, url: str, page: PageTable, folder: Path) -> None:
    if sum(part is not None for part in (page.body, page.file, page.redirect)) > 1:
        raise ValueError(f"{url} has more than one of body, file and redirect")
    if page.redirect is not None:
        web.add_redirect(url, page.redirect, status=page.status or 302, headers=page.headers)
        return
    options = {key: value for key, value in asdict(page).items() if key not in {"file", "redirect"}} | {
        "body": page.body if page.file is None else (folder / page.file).read_bytes(),
        "status": page.status or 200,
        "error": failure_named(page.error),
    }
    web.add_page(url, **options)


def _law(value: float | list[float]) -> Latency:
    return Uniform(*value) if isinstance(value, list) else value
