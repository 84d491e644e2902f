"""The crawls of a command: options, spiders, and a check that no two crawls write to the same file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from trawl.cli import FAILED, INTERRUPTED, OK, UNSATISFACTORY, USAGE
from trawl.cli.load import all_spiders
from trawl.cli.view import CrawlWith, Watcher
from trawl.engine import Crawl, Recorder
from trawl.errors import SpiderLoadError, UsageError
from trawl.observe import without_passwords
from trawl.settings import Layer, Settings
from trawl.spiders import Spider
from trawl.throttling import ScopeReport

if TYPE_CHECKING:
    from trawl._run import CrawlResult

__all__ = [
    "NAME",
    "CrawlEntry",
    "CrawlOptions",
    "LogOptions",
    "chosen",
    "refuse_clashes",
    "reports_of_all",
    "stats_of",
    "worst",
]

NAME = "%(name)s"
"""The placeholder for the spider's name in ``--job`` and in the path of a feed."""

_OF_A_SPIDER = re.compile(r"%\((?!time|batch)")

_WORST_FIRST = (USAGE, FAILED, INTERRUPTED, UNSATISFACTORY)

_ONE_EACH = {
    "JOB_DIR": f"write --job with {NAME} for the spider's name, as in --job jobs/{NAME}",
    "WARC_FILE": "set different ones in `custom_settings`",
    "COOKIES_FILE": "set different ones in `custom_settings`",
}
"""Settings that name a file or job to which only one crawl may write, with advice."""


@attrs.frozen
class LogOptions:
    """The options of the log, as typed. With None, the setting applies."""

    level: str | None = None
    file: str | None = None
    format: str | None = None

    def layer(self, default_level: str | None = None) -> Layer:
        """Return the settings of the log, with a level for commands that have their own default."""
        level = self.level or default_level
        values = {"LOG_LEVEL": level and level.upper(), "LOG_FILE": self.file, "LOG_FORMAT": self.format}
        given = {name: text for name, text in values.items() if text}
        return Layer(f"--{next(iter(given), 'LOG_LEVEL').lower().replace('_', '-')}", given)


@attrs.frozen(kw_only=True)
class CrawlOptions:
    """The options of the commands that crawl, and of ``trawl export``, as typed. With None, the setting applies."""

    targets: Sequence[str] = ()
    takes_all: bool = False
    arguments: Sequence[str] = ()
    settings: Sequence[str] = ()
    appended: Sequence[str] = ()
    overwritten: Sequence[str] = ()
    job: str | None = None
    job_durability: str | None = None
    log: LogOptions = LogOptions()
    is_quiet: bool = False
    fails_on: Sequence[str] = ()
    stats: str | None = None
    receipt: str | None = None
    metrics: str | None = None
    metrics_scopes: int | None = None
    panel: str | None = None
    processes: int = 0  # 0 without the option
    is_worker: bool = False  # `trawl worker`, which writes no feeds
    waits: bool = False
    leader: int | None = None  # the socket to the process that started this worker

    def words_of_worker(self) -> list[str]:
        """Return the options that a leader's workers get too, as words of a command line."""
        log = self.log
        logged = (("--log-level", log.level), ("--log-file", log.file), ("--log-format", log.format))
        pairs = [("--spider", self.targets[0])]
        pairs += [(option, text) for option, texts in (("-a", self.arguments), ("-s", self.settings)) for text in texts]
        pairs += [(option, text) for option, text in logged if text is not None]
        return [*(word for pair in pairs for word in pair), *(["--quiet"] if self.is_quiet else [])]


@attrs.define(eq=False)
class CrawlEntry:
    """A crawl of the command, before its start, while it runs, and after its end."""

    spider: type[Spider]
    settings: Settings
    arguments: Mapping[str, str]
    layers: Sequence[Layer] = ()
    shown_name: str = ""
    recorder: Recorder | None = None
    watchers: list[Watcher] = attrs.Factory(list)
    crawl: Crawl | None = None
    result: CrawlResult | None = None
    error_status: int = FAILED

    @property
    def stats(self) -> Mapping[str, object]:
        """The current statistics. If an error ended the crawl, its ``finish_reason`` is ``failed``."""
        if self.result is not None:
            return self.result.stats
        stats = {} if self.crawl is None else self.crawl.stats.as_dict()
        return {**stats, "finish_reason": stats.get("finish_reason") or "failed"}

    @property
    def reason(self) -> str:
        """The reason why the crawl ended; "" if it has no result."""
        return "" if self.result is None else self.result.reason

    async def run(
        self, crawl_with: CrawlWith, watchers: Sequence[Watcher] = (), *, handle_signals: bool = False
    ) -> CrawlResult:
        """Run the crawl. Sets ``crawl`` and ``result``, and returns the result. A checkpoint."""

        async def keep(crawl: Crawl) -> None:
            self.crawl = crawl
            await trio.lowlevel.checkpoint()

        self.result = await crawl_with(
            self.spider,
            self.settings,
            spider_args=self.arguments,
            watchers=[keep, *self.watchers, *watchers],
            handle_signals=handle_signals,
            **({} if self.recorder is None else {"recorder": self.recorder}),
        )
        return self.result


def chosen(typed: Sequence[str], *, takes_all: bool) -> Sequence[str]:
    """Return the spiders to run: as typed, or with ``--all`` each spider below the working directory."""
    if typed and takes_all:
        raise UsageError("--all crawls with every spider below this folder: do not name spiders too")
    if not typed and not takes_all:
        raise UsageError("no spider is named: write its name or FILE.py, or --all (`trawl list` shows all spiders)")
    if typed:
        return typed
    found, unread = all_spiders(Path())
    for why in unread.values():
        raise SpiderLoadError(why)
    if not found:
        raise UsageError("--all: there is no spider below this folder; `trawl new spider NAME DOMAIN` writes one")
    return [each.target for each in found]


def refuse_clashes(entries: Sequence[CrawlEntry]) -> None:
    """Refuse spiders that have the same name, or would write to the same feed, job, archive or cookie file."""
    first: dict[tuple[str, str], CrawlEntry] = {}
    for entry in entries:
        for words, value in _own_places(entry):
            other = first.setdefault((words, value), entry)
            if other is not entry:
                both = f"{other.spider.__name__} and {entry.spider.__name__}"
                raise UsageError(words.format(both, without_passwords(value)))


def _own_places(entry: CrawlEntry) -> Iterator[tuple[str, str]]:
    """Yield the name and the places that no other crawl may have, each after the message about another crawl."""
    yield "the spiders {} have the name {!r}: use different names", entry.spider.name
    for path in map(str, entry.settings.get("FEEDS", ())):
        if not _OF_A_SPIDER.search(path):
            yield f"{{}} would write to the same feed, {{!r}}: put {NAME} into its name", path
    for setting, advice in _ONE_EACH.items():
        if value := entry.settings[setting]:
            yield f"{{}} would have the same {setting}, {{!r}}: {advice}", str(value)


def stats_of(entries: Sequence[CrawlEntry]) -> Mapping[str, object]:
    """Return the statistics of a single crawl; for several crawls, a mapping from spider names to statistics."""
    return entries[0].stats if len(entries) == 1 else {entry.spider.name: entry.stats for entry in entries}


def worst(statuses: Iterable[int]) -> int:
    """Return the exit status for several crawls: the first of 2, 1, 130, 3 that any of them has, otherwise 0."""
    met = set(statuses)
    return next((status for status in _WORST_FIRST if status in met), OK)


def reports_of_all(entries: Iterable[CrawlEntry]) -> list[ScopeReport]:
    """Return the reports of the scopes of all crawls, busiest first. A scope that crawls shared has one report."""
    reports: list[ScopeReport] = []
    by_scope: dict[str, list[ScopeReport]] = {}
    for entry in entries:
        for report in entry.crawl.report() if entry.crawl is not None else ():
            known = by_scope.setdefault(report.scope, [])
            if report not in known:
                known.append(report)
                reports.append(report)
    return sorted(reports, key=lambda report: -report.sends)
