"""The command ``trawl export``: copies the items of a job in a server to feeds, and writes each item once.

The command joins the job as a session that takes no hosts. The job stores the position of each feed, so the command can
be killed and run again. Only one process at a time may export. A ``trawl crawl`` with feeds is also an exporting
process. If other processes end a session that does not respond, the command joins the job again.
"""

from __future__ import annotations

import logging
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio
from rich.console import Console

from trawl.blocking import ThreadBlocking
from trawl.cli import INTERRUPTED, OK
from trawl.cli.crawl_entry import CrawlOptions
from trawl.cli.load import feeds_layer
from trawl.cli.local_server import has_server, reach_local_server
from trawl.cli.logs import Logs, run_guarded
from trawl.cli.worker import rejoining
from trawl.engine.callbacks import without_groups
from trawl.errors import UsageError
from trawl.feeds import FeedsSettings
from trawl.feeds.outbox import open_outbox
from trawl.frontier import SCHEMES, JobSettings
from trawl.frontier.job import Job
from trawl.frontier.parts import ItemsReceived, JobFinished
from trawl.frontier.sections import JOB_INFO
from trawl.observe import ObserveSettings, counted
from trawl.settings import Layer, Settings, ambient, assignments, load

__all__ = ["copy_items", "export_command"]

logger: logging.Logger = logging.getLogger("trawl.export")

LOOK_EVERY = 1.0
"""Seconds between two checks for a job that does not exist yet."""


def export_command(options: CrawlOptions, console: Console, *, follows: bool) -> int:
    """Export the items of a job. With ``follows``, continue until the job has finished. Returns the exit status."""
    early = options.log.layer()

    def act(logs: Logs) -> int:
        durability = options.job_durability
        settings = load(
            *ambient(),
            assignments(options.settings),
            feeds_layer(options.appended, options.overwritten),
            Layer("JOB", {} if options.job is None else {"JOB_DIR": options.job}),
            Layer("--job-durability", {} if durability is None else {"JOB_DURABILITY": durability}),
            early,
        )
        logs.apply(settings.of(ObserveSettings), is_quiet=options.is_quiet)
        if not settings.of(FeedsSettings).feeds:
            raise UsageError("there is no feed to export to: give -o FILE")
        return trio.run(_run, settings, follows)

    return run_guarded(console, early, act, is_quiet=options.is_quiet)


async def _run(settings: Settings, follows: bool) -> int:
    """Export until the end or until a signal. The job records the position of each feed with each batch."""
    status = OK

    async def export() -> None:
        async with trio.open_nursery() as nursery:

            async def hear_signals() -> None:
                nonlocal status
                with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
                    async for _ in numbers:
                        status = INTERRUPTED
                        nursery.cancel_scope.cancel()

            nursery.start_soon(hear_signals)
            await _export(settings, follows)
            nursery.cancel_scope.cancel()

    await without_groups(export())
    return status


async def _export(settings: Settings, follows: bool) -> None:
    place = settings.of(JobSettings).job_dir
    if place.startswith(SCHEMES):
        await _export_from(place, settings, follows)
    elif not place:
        raise UsageError("there is no job to export: give its address, redis://HOST/NAME")
    elif not has_server(Path(place)):
        raise UsageError(f"job {place}: its items go to the feeds of `trawl crawl SPIDER --job {place}`: run that")
    else:
        async with reach_local_server(Path(place)) as url:
            await _export_from(url, settings, follows)


async def _export_from(url: str, settings: Settings, follows: bool) -> None:
    from trawl.frontier.redis import Address, open_job  # noqa: PLC0415 - needs coredis
    from trawl.frontier.redis.report import inspect_job  # noqa: PLC0415

    job = settings.of(JobSettings)
    Address.parse(url)
    is_told = False
    while True:  # inspect the job first, because opening a missing job would create it
        try:
            report = await trio.to_thread.run_sync(partial(inspect_job, url, has_scopes=False))
            if JOB_INFO.read(report) is not None:
                break
            raise UsageError(f"job {report.name}: no process has worked on it yet")
        except UsageError as error:
            if not follows:
                raise
            if not is_told:
                logger.warning("%s: waiting", error)
            is_told = True
        await trio.sleep(LOOK_EVERY)

    async def copy() -> None:
        async with open_job(Address.parse(url), job.job_durability, lease=job.job_lease, works=False) as opened:
            await without_groups(copy_items(opened, settings.of(FeedsSettings), follows=follows))

    await rejoining(copy)


async def copy_items(job: Job, settings: FeedsSettings, *, follows: bool) -> None:
    """Copy the items of an open job to feeds. If cancelled, feeds stay at their recorded positions. A checkpoint."""
    facts, session = JOB_INFO.read(job), job.session
    if facts is None or session is None:
        raise job.damaged("the facts about its spider and its runs can't be read")
    begun = datetime.fromtimestamp(facts.begun_at, UTC)
    feeds, outbox = await open_outbox(settings, ThreadBlocking(), job, spider_name=facts.spider, started_utc=begun)
    before = job.outbox_start
    async with feeds, trio.open_nursery() as nursery:
        nursery.start_soon(outbox.write)
        session.ask_if_over(is_idle=True)
        while follows:
            change = await session.next_change()
            if isinstance(change, ItemsReceived):
                outbox.others_gave(change.end)
            elif isinstance(change, JobFinished):
                break
        outbox.others_gave(job.outbox_end)
        outbox.close()
    logger.info("job %s: %s copied", job.name, counted(job.outbox_start - before, "item"))
