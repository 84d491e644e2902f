"""A process that works on a job is killed in the middle of its transactions; the next one goes on from there (C1)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trawl.blocking import InlineBlocking
from trawl.clock import WallClock
from trawl.frontier import Record
from trawl.frontier.job_frontier import open_frontier
from trawl.frontier.sqlite import open_job
from trawl.http import Request

PAGES = 1500
"""Page ``n`` leads to the pages ``2n + 1`` and ``2n + 2``, and gives its number as an item."""

WORKERS = 8

LANE = (("a.example",), "http://a.example")


def record(number: int) -> Record:
    request = Request(f"http://a.example/{number}")
    return Record(request, (("a.example", None),), "http://a.example", b"%16d" % number)


async def work(directory: str, report: bool) -> None:
    """Go on with the job until nothing is pending, and say each page once its acknowledgement has returned."""
    from trawl.blocking import ThreadBlocking

    job = await open_job(directory, ThreadBlocking())
    frontier = await open_frontier(job, object(), WallClock.started(trio.current_time()))
    if job.is_new:
        await frontier.claim_many([b"%16d" % 0])
        await frontier.push_many([record(0)])

    async def worker() -> None:
        while frontier.statistics().pending + frontier.statistics().leased:
            for lease in await frontier.lease_many(LANE, 3):
                number = int(lease.request.url.rsplit("/", 1)[1])
                children = [child for child in (2 * number + 1, 2 * number + 2) if child < PAGES]
                fresh = await frontier.claim_many([b"%16d" % child for child in children])
                outputs = [record(child) for child, is_new in zip(children, fresh, strict=True) if is_new]
                await frontier.acknowledge(lease, outputs, [b"%d" % number])
                if report:
                    print(number, flush=True)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(WORKERS):
            nursery.start_soon(worker)
    await job.aclose()


def killed_after(directory: Path, lines: int) -> list[int]:
    """Start a process on the job, kill it once it has said so many pages, and tell all that it said."""
    process = subprocess.Popen([sys.executable, __file__, str(directory)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    return [int(line) for line in said if line.endswith("\n")]


async def items_of(directory: Path) -> list[int]:
    job = await open_job(directory, InlineBlocking())
    items = [int(one.item) for one in await job.outbox_after(0, PAGES + 1)]
    await job.aclose()
    return items


async def check_kills(directory: Path, kills: int, seed: int) -> None:
    drawn = random.Random(seed)
    said: list[int] = []
    for _ in range(kills):
        said += killed_after(directory, drawn.randrange(1, PAGES // (kills + 1)))
        assert len(said) == len(set(said)), "an acknowledged page came again"
        items = await items_of(directory)
        assert len(items) == len(set(items)), "an item is there twice"
        assert set(said) <= set(items), "what was acknowledged has its items"
        assert len(items) - len(said) <= WORKERS * (kills + 1), "what was not said was being acknowledged"
    await work(str(directory), report=False)
    assert sorted(await items_of(directory)) == list(range(PAGES))


@pytest.mark.long
async def test_c1_c7_killed_and_resumed_every_page_is_done_and_every_item_is_there_once(tmp_path: Path) -> None:
    await check_kills(tmp_path, kills=2, seed=1)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(10))
async def test_c1_c7_killed_many_times_at_many_moments(tmp_path: Path, seed: int) -> None:
    await check_kills(tmp_path, kills=20, seed=seed)


if __name__ == "__main__":
    trio.run(work, sys.argv[1], True)
