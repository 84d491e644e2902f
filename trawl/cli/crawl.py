"""The command ``trawl crawl``, which also runs ``trawl worker``."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio
from rich.console import Console

from trawl.blocking import is_interrupted
from trawl.cli import FAILED, INTERRUPTED, OK, UNSATISFACTORY, exit_status
from trawl.cli.crawl_entry import (
    NAME,
    CrawlEntry,
    CrawlOptions,
    chosen,
    refuse_clashes,
    reports_of_all,
    stats_of,
    worst,
)
from trawl.cli.load import STANDARD_OUTPUT, check_arguments, feeds_layer, load_spider, spider_arguments
from trawl.cli.local_server import has_server
from trawl.cli.logs import Logs, named_in_log, run_guarded
from trawl.cli.summary import FailOn, StatsFile, scopes_table, summary_table
from trawl.cli.view import (
    CrawlWith,
    Panels,
    StatusOf,
    Watcher,
    can_show,
    log_watcher,
    open_panel,
    panel_watcher,
    status_of,
)
from trawl.cli.worker import LeaderProcess, lead, rejoining, require_address, spider_of_job
from trawl.engine.watchers import report_blocked_loop
from trawl.errors import TrawlError, UsageError
from trawl.frontier import SCHEMES
from trawl.observe import ObserveSettings, came_to_nothing, summary_rows
from trawl.robots import RobotsSettings
from trawl.settings import Layer, Settings, ambient, assignments, file_of, load, of_project, of_spider
from trawl.settings.hidden import without_effect
from trawl.shutdown import heed_signals
from trawl.spiders import Spider
from trawl.throttling import ScopeReport

if TYPE_CHECKING:
    from trawl._run import CrawlResult
    from trawl.engine import Crawl
    from trawl.panel import Panel

__all__ = ["crawl_command", "short_collections"]

settings_logger: logging.Logger = logging.getLogger("trawl.settings")


def warn_of_scrapy_project(directory: Path) -> None:
    """Warn if ``directory`` is in a Scrapy project without ``[tool.trawl]``, because settings.py is not read."""
    folder = next((each for each in (directory, *directory.parents) if (each / "scrapy.cfg").is_file()), None)
    if folder is None or (layer := of_project(directory)).values or layer.own:
        return
    from trawl.cli.move import settings_modules, shown  # noqa: PLC0415  # most projects have no scrapy.cfg

    for path in [*settings_modules(folder)][:1]:
        settings_logger.warning(
            "%s is not read; settings belong in [tool.trawl] of pyproject.toml, and `trawl move %s --write` converts"
            " them",
            shown(path),
            shown(folder),
        )


logger: logging.Logger = logging.getLogger("trawl")


def crawl_command(options: CrawlOptions, crawl_with: CrawlWith, console: Console) -> int:
    """Run one crawl or several crawls at the same time. Returns the worst exit status."""
    # Set up the log before the spider's settings are known, so that the spider's import is logged too.
    early = options.log.layer()

    def act(logs: Logs) -> int:
        leader = None if options.leader is None else LeaderProcess(options.leader)
        arguments = spider_arguments(options.arguments)
        stats_file = None if options.stats is None else StatsFile(options.stats)
        fails_on = FailOn.parse(options.fails_on, stats_file)
        earlier = {} if stats_file is None or fails_on.fewer is None else stats_file.earlier()
        assigned = assignments(options.settings)
        feeds = feeds_layer(options.appended, options.overwritten)
        entries = [_loaded(target, options, arguments, (assigned, feeds), early) for target in _targets(options)]
        if len(entries) > 1:
            for entry in entries:
                entry.shown_name = entry.spider.name
        jobs = {entry.shown_name: _shown_job(str(entry.settings["JOB_DIR"])) for entry in entries}
        logs.apply(entries[0].settings.of(ObserveSettings), is_quiet=options.is_quiet, jobs=jobs)
        _check(entries, options)
        token = entries[0].settings.of(ObserveSettings).panel_token
        panel = None if options.panel is None else open_panel(options.panel, token)
        write_receipt = _receipt(entries, options)
        stop_metrics = _serve_metrics(entries, options)
        try:
            reports = _Run(options, crawl_with, console, logs, panel).run(entries, leader)
        except BaseException:
            if stats_file is not None:
                with suppress(TrawlError):  # the crawl's error is more important, and is raised below
                    stats_file.write(stats_of(entries))
            raise
        finally:
            stop_metrics()
            write_receipt()
        if leader is not None:
            leader.ended(entries[0].reason, reports)
            return _status(entries[0])
        starts = [_sum_up(entry, options.is_quiet, console, logs) for entry in entries]
        if not options.is_quiet and not logs.is_json and (table := scopes_table(reports, console.width)) is not None:
            with suppress(OSError):  # the terminal may be gone
                console.print(table)
        lost = [_lost_items(entry, entries, fails_on, earlier) for entry in entries]
        if stats_file is not None and not any(lost):
            stats_file.write(stats_of(entries))
        return worst(
            _judged(entry, fails_on, words, has_start=start)
            for entry, words, start in zip(entries, lost, starts, strict=True)
        )

    return run_guarded(console, early, act, is_quiet=options.is_quiet)


def _targets(options: CrawlOptions) -> Sequence[str]:
    """Return the spiders to crawl with. A worker without a spider on its command line uses the spider of its job."""
    if options.is_worker and not options.targets:
        job = options.job or str(load(*ambient(), assignments(options.settings))["JOB_DIR"])
        require_address(job)
        return [spider_of_job(job)]
    return chosen(options.targets, takes_all=options.takes_all)


def _loaded(
    target: str, options: CrawlOptions, arguments: Mapping[str, str], typed: Sequence[Layer], early: Layer
) -> CrawlEntry:
    spider = load_spider(target)
    if options.job == "":  # for example from an empty variable; without a job, a kill would lose everything
        raise UsageError("--job takes a directory or an address, not ''")
    job = None if options.job is None else options.job.replace(NAME, spider.name)
    more = (
        *typed,
        Layer("--job", {} if job is None else {"JOB_DIR": job}),
        Layer("--job-durability", {"JOB_DURABILITY": options.job_durability} if options.job_durability else {}),
        Layer("trawl worker", {"FEEDS": {}} if options.is_worker else {}),
        early,
    )
    layers = *ambient(spider=spider), of_spider(spider), *more
    settings = load(*layers)
    check_arguments(spider, arguments)
    return CrawlEntry(spider, settings, arguments, layers)


def _check(entries: Sequence[CrawlEntry], options: CrawlOptions) -> None:
    """Refuse crawls that would write to the same place, and warn about code that was written for Scrapy."""
    if options.processes and len(entries) > 1:
        raise UsageError("--processes is for one spider: run `trawl crawl SPIDER --processes N` for each")
    for entry in entries:
        job = str(entry.settings["JOB_DIR"])
        if options.is_worker:
            require_address(job)
        if job and not options.processes and has_server(Path(job)):
            raise UsageError(f"job {job}: it was made with --processes: give --processes N again")
    if options.stats == STANDARD_OUTPUT and any(_prints_items(entry.settings) for entry in entries):
        raise UsageError("--stats - and a feed to standard output would mix there: write one of them to a file")
    refuse_clashes(entries)
    for entry in entries:
        warn_of_scrapy_project(Path.cwd() if (file := file_of(entry.spider)) is None else file.parent)
        if entry.settings["SCRAPY_COMPAT"]:
            from trawl.cli.checks import check_spider  # noqa: PLC0415  # only for moved spiders

            for finding in check_spider(entry.spider, is_moved=True, settings=entry.settings):
                logger.warning("%s", finding)


def _receipt(entries: Sequence[CrawlEntry], options: CrawlOptions) -> Callable[[], None]:
    """Record the sends for ``--receipt``. Returns a function that writes the receipt of the sends so far."""
    path = options.receipt
    if path is None:
        return lambda: None
    from trawl.testing.receipt import Checker, check_receipt_name, save_receipt  # noqa: PLC0415  # rarely needed

    if len(entries) > 1 or options.processes:
        raise UsageError("--receipt is for one spider in one process: use WARC_FILE and `trawl receipt` for others")
    check_receipt_name(path)
    checker = Checker(user_agent=entries[0].settings.of(RobotsSettings).robotstxt_user_agent)
    entries[0].recorder, started_utc = checker.record, datetime.now(UTC)

    def write() -> None:
        save_receipt(path, checker.receipt(f"spider {entries[0].spider.name}", started_utc), checker)

    return write


def _serve_metrics(entries: Sequence[CrawlEntry], options: CrawlOptions) -> Callable[[], None]:
    """Open the port of ``--metrics`` before the crawl starts. Returns a function that closes it."""
    if options.metrics is None:
        if options.metrics_scopes is not None:
            raise UsageError("--metrics-scopes needs --metrics PORT")
        return lambda: None
    if options.processes:
        raise UsageError("--metrics is for one process: give each `trawl worker` of the job its own --metrics PORT")
    from trawl.telemetry import MAX_SCOPES, MetricsServer  # noqa: PLC0415  # rarely needed

    most = MAX_SCOPES if options.metrics_scopes is None else options.metrics_scopes
    server = MetricsServer(options.metrics, most)
    for entry in entries:
        entry.watchers.append(server.watch)
    return server.close


def _shown_job(job: str) -> str:
    """Return a job's directory, or its address without a password."""
    if not job.startswith(SCHEMES):
        return job
    from trawl.frontier.redis.client import Address  # noqa: PLC0415  # most crawls use no server

    return Address.parse(job).shown


@attrs.frozen
class _Run:
    """The parts that all crawls of a command share."""

    options: CrawlOptions
    crawl_with: CrawlWith
    console: Console
    logs: Logs
    panel: Panel | None

    def run(self, entries: Sequence[CrawlEntry], leader: LeaderProcess | None) -> list[ScopeReport]:
        """Run one or several crawls at the same time, or a crawl in several processes."""
        with short_collections(), nullcontext() if self.panel is None else closing(self.panel):
            if self.options.processes:
                return self._lead(entries[0])
            return trio.run(self._alone, entries[0], leader) if len(entries) == 1 else trio.run(self._together, entries)

    def _lead(self, entry: CrawlEntry) -> list[ScopeReport]:
        from trawl.frontier.redis.client import check_installed  # noqa: PLC0415  # most crawls use no server

        check_installed("redis" if str(entry.settings["JOB_DIR"]).startswith(SCHEMES) else "processes")
        panel = self.panel

        def shown(status: StatusOf, url: str) -> list[Watcher]:
            watchers = [self.logs.watch, *self._watchers(entry, status)]
            if panel is None:
                return watchers
            from trawl.cli.job import ServerLink  # noqa: PLC0415  # most crawls use no server

            async def show(crawl: Crawl) -> None:
                await panel.show_job(crawl.spider.name, ServerLink(url), partial(status, crawl))

            return [*watchers, show]

        words = self.options.words_of_worker()
        words += ["-s", "LOG_FILE_APPEND=true"] if entry.settings.of(ObserveSettings).log_file is not None else []
        return trio.run(lead, entry, self.options.processes, words, self.crawl_with, shown, self.console)

    async def _alone(self, entry: CrawlEntry, leader: LeaderProcess | None) -> list[ScopeReport]:
        shown = self._watchers(entry) if leader is None else [leader.watch]
        if self.panel is not None:
            shown.append(self.panel.watch)
        await rejoining(partial(entry.run, self.crawl_with, [self.logs.watch, *shown], handle_signals=True))
        return reports_of_all([entry])

    async def _together(self, entries: Sequence[CrawlEntry]) -> list[ScopeReport]:
        """Run several crawls at the same time. If a crawl fails, the other crawls continue."""
        panels = Panels(self.console) if self._draws(entries) else None

        async def crawl(entry: CrawlEntry) -> None:
            shown = [panels.watch] if panels is not None else self._watchers(entry)
            if self.panel is not None:
                shown.append(self.panel.show)
            with named_in_log(entry.shown_name):
                try:
                    await rejoining(partial(entry.run, self.crawl_with, [heed_signals, *shown]))
                except Exception as error:
                    entry.error_status = self.logs.tell_error(error, entry.shown_name)
                else:
                    logger.info("ended: %s", entry.reason)

        async with trio.open_nursery() as around:
            around.start_soon(report_blocked_loop, None)
            around.start_soon(self.logs.watch)
            if panels is not None:
                around.start_soon(panels.draw)
            if self.panel is not None:
                around.start_soon(self.panel.serve)
            async with trio.open_nursery() as nursery:
                for entry in entries:
                    nursery.start_soon(crawl, entry)
            around.cancel_scope.cancel()
        return reports_of_all(entries)

    def _draws(self, entries: Iterable[CrawlEntry]) -> bool:
        """Return whether the terminal shows a panel, because no feed prints items there."""
        prints = sys.stdout.isatty() and any(_prints_items(each.settings) for each in entries)
        return not self.options.is_quiet and can_show(self.console) and not prints

    def _watchers(self, entry: CrawlEntry, status: StatusOf = status_of) -> list[Watcher]:
        """Return the watcher that shows the progress of a crawl, if there is one."""
        if self._draws([entry]):
            return [panel_watcher(self.console, status)]
        interval = entry.settings.of(ObserveSettings).logstats_interval
        return [log_watcher(interval, status)] if interval and not self.options.is_quiet else []


def _sum_up(entry: CrawlEntry, is_quiet: bool, console: Console, logs: Logs) -> bool:
    """Print the summary of a crawl. Returns False if its spider has no start URLs and no ``start()``."""
    result = entry.result
    if result is None:
        return True
    with named_in_log(entry.shown_name):
        has_start = not _explain(entry.spider, entry.arguments, result)
        if logs.is_json:
            rows = summary_rows(result.reason, result.elapsed, result.stats)
            logger.info("summary: %s", "; ".join(f"{title} {words}" for title, words in rows))
    if not is_quiet and not logs.is_json:
        with suppress(OSError):  # the terminal may be gone
            hidden = without_effect(entry.settings, entry.spider)
            stats, name = result.stats, entry.shown_name
            console.print(summary_table(result.reason, result.elapsed, stats, name=name, hidden=hidden))
    return has_start


def _lost_items(
    entry: CrawlEntry, entries: Sequence[CrawlEntry], fails_on: FailOn, earlier: Mapping[str, object]
) -> str:
    """Return a sentence if a finished crawl has too few items compared with the last crawl; otherwise ""."""
    if entry.result is None or _status(entry) != OK:
        return ""
    own = earlier if len(entries) == 1 else earlier.get(entry.spider.name)
    return fails_on.lost_items(entry.result.stats, own if isinstance(own, Mapping) else {})


def _judged(entry: CrawlEntry, fails_on: FailOn, lost_items: str, *, has_start: bool) -> int:
    """Return the exit status of a crawl, and log the problems that caused this status."""
    result = entry.result
    if result is None:
        return entry.error_status
    status = _status(entry) if has_start else FAILED
    with named_in_log(entry.shown_name):
        if status == OK and (words := "; ".join(filter(None, (fails_on.failed_in(result.stats), lost_items)))):
            logger.error("the crawl fails on %s", words)
            return UNSATISFACTORY
        if words := came_to_nothing(result.reason, result.stats):
            logger.warning("%s", words)
    return status


def _status(entry: CrawlEntry) -> int:
    if entry.result is None:
        return entry.error_status
    status = exit_status(entry.reason)
    # engine.close_spider(spider) sets the same reason as Ctrl-C, as in Scrapy, but is not an interruption.
    is_closed = status == INTERRUPTED and entry.settings["SCRAPY_COMPAT"] and not is_interrupted()
    return OK if is_closed else status


LONG_COLLECTION = 0.01
"""Seconds. After a full pass of the garbage collector that takes longer, the surviving objects are frozen."""

YOUNG_OBJECTS = 5000
"""Number of new objects after which the garbage collector searches them for reference cycles.

The collector tracks about sixty objects for each request in flight. With Python's default (700, or 2,000 since 3.13),
it would scan all these objects once per 64 requests and find no cycles.
"""

YOUNG_PASSES = 1
"""Number of passes over new objects before a pass also includes the survivors of earlier passes.

With Python's default of 10, half a million objects were created before the first full pass, which then took 0.1 s.
"""


@contextmanager
def short_collections(seconds: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    """Keep Python's garbage collector fast: after a long pass, later passes skip the surviving objects.

    A full pass takes 0.2 µs per object. With a million pending requests, it takes a second, and nothing is sent during
    that second. The skipped objects are *frozen* (``gc.freeze()``). A frozen object is still freed when its last
    reference is removed, but a cycle of frozen objects stays in memory until the end. A short pass freezes nothing, so
    a crawl whose memory does not grow keeps no cycles. Passes over new objects are made rare, because they took 5 % of
    the time of a crawl without delays.

    The collector belongs to the whole process, so only the command uses this function. Crawls inside a program do not.
    """
    began = 0.0

    def passed(phase: str, info: Mapping[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = seconds()
        elif info["generation"] == 2 and seconds() - began > LONG_COLLECTION:
            gc.freeze()

    young, _, old = thresholds = gc.get_threshold()
    if 0 < young < YOUNG_OBJECTS:  # `young` is 0 if the user has turned the collector off
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, old)
    gc.freeze()  # the objects of imported modules stay in memory anyway
    gc.callbacks.append(passed)
    try:
        yield
    finally:
        gc.callbacks.remove(passed)
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def _explain(spider: type[Spider], arguments: Mapping[str, str], result: CrawlResult) -> bool:
    """Log why a spider sent no requests or yielded no items. Returns True if the spider has no start."""
    stats = result.stats
    if result.reason != "finished" or "finish_reason" not in stats or stats.get("item_scraped_count"):
        return False
    from trawl.cli.checks import check_work, has_no_start  # noqa: PLC0415  # rarely needed

    for finding in check_work(spider):
        logger.warning("%s", finding)
    return not any(stats.get(key) for key in _DONE) and not arguments and has_no_start(spider)


_DONE = ("request_count", "response_count", "item_dropped_count", "item_invalid_count")


def _prints_items(settings: Settings) -> bool:
    return STANDARD_OUTPUT in {str(path) for path in settings.get("FEEDS", ())}
