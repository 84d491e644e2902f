"""``--job`` and ``trawl job``: a crawl that goes on, and what is told of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.cli import main
from trawl.feeds.base import FeedState
from trawl.feeds.outbox import FEED_STATES
from trawl.frontier.sqlite import open_job
from trawl.testing import SimulatedResponse, SimulatedWeb

SPIDER = """
import trawl

class Three(trawl.Spider):
    name = "three"
    start_urls = ["http://a.example/1", "http://a.example/2", "http://b.example/"]

    def parse(self, response):
        yield {"url": response.url}

class Other(Three):
    name = "other"
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command in a folder with a spider, on a simulated web in which b.example can't be reached."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.py").write_text(SPIDER, encoding="utf-8")
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(body="x"))

    async def crawl(*arguments: Any, **more: Any) -> Any:
        return await crawl_with(
            *arguments,
            **{**more, "handle_signals": False},
            transport=web.transport(),
            blocking=InlineBlocking(),
            seed=0,
        )

    def run(*words: str) -> int:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(trio, "run", _on_a_virtual_clock(trio.run))
            return main(words, crawl_with=crawl)

    return run


def _on_a_virtual_clock(run: Any) -> Any:
    def virtual(function: Any, *arguments: Any) -> Any:
        return run(function, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))

    return virtual


CRAWL = ("crawl", "three.py:Three", "-q", "-o", "out.jsonl", "--job", "job", "-s", "ROBOTSTXT_OBEY=false")


def test_a_job_goes_on_from_the_command_line_and_is_told_of(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*CRAWL, "-s", "CLOSESPIDER_TIMEOUT=0.5") == 0
    assert command("job", "job") == 0
    told = capsys.readouterr().out
    assert "state    stopped: closespider_timeout\n" in told
    assert "spider   three (Three)\n" in told
    assert "1 run, " in told
    assert "a.example" in told
    assert "failed   0 requests\n" in told
    assert str(tmp_path / "out.jsonl") in told

    assert command(*CRAWL) == 0
    assert command("job", "job") == 0
    told = capsys.readouterr().out
    assert "state    finished\n" in told
    assert "pending  0 requests, 0 of them leased\n" in told
    assert "failed   1 request; --requeue-failed queues them again\n" in told
    assert "http://b.example/" in told
    rows = [json.loads(line)["url"] for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(rows) == ["http://a.example/1", "http://a.example/2"]


def test_failed_requests_are_queued_again_and_pending_ones_printed(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*CRAWL) == 0
    capsys.readouterr()
    assert command("job", "job", "--requeue-failed") == 0
    assert capsys.readouterr().out == "1 failed request queued again\n"
    assert command("job", "job", "--export-pending") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["url"] == "http://b.example/"


def test_a_job_of_another_spider_and_no_job_are_wrong_usage(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(*CRAWL) == 0
    assert command("crawl", "three.py:Other", "-q", "--job", "job") == 2
    assert "belongs to spider 'three' (Three), not to 'other' (Other)" in capsys.readouterr().err
    assert command("job", str(tmp_path / "none")) == 2
    assert command("crawl", "three.py:Three", "-q", "--job", "three.py") == 2


def test_a_job_without_anything_in_it_is_new(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def make() -> None:
        job = await open_job(tmp_path / "job", InlineBlocking())
        FEED_STATES.keep(job, {})
        await job.aclose()

    trio.run(make)
    assert command("job", "job") == 0
    assert "state    new\n" in capsys.readouterr().out


async def test_a_job_in_use_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = await open_job(tmp_path / "job", InlineBlocking())
    assert main(["job", str(tmp_path / "job")]) == 0
    assert "state    running" in capsys.readouterr().out
    assert main(["job", str(tmp_path / "job"), "--requeue-failed"]) == 1
    await job.aclose()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_ends_the_crawl_with_status_1_and_the_job_goes_on(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word if word != "out.jsonl" else "/dev/full:jsonl" for word in CRAWL]
    assert command(*words) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert command("job", "job") == 0
    assert "state    stopped: feed_error\n" in capsys.readouterr().out
    assert command(*CRAWL) == 0
    rows = [json.loads(line)["url"] for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(rows) == ["http://a.example/1", "http://a.example/2"]


@pytest.mark.parametrize(
    ("feed", "told"),
    [("out.jsonl", r"feeds +\d+ bytes  /.*out\.jsonl$"), ("out.sqlite", r"feeds +2 rows   /.*out\.sqlite$"),
     ("out.db:sqlite", r"feeds +2 rows   /.*out\.db$")],
)  # fmt: skip
def test_a_feed_is_told_in_bytes_and_a_table_in_rows(
    feed: str, told: str, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["crawl", "three.py:Three", "-q", "-o", feed, "--job", "job", "-s", "ROBOTSTXT_OBEY=false"]
    assert command(*words, "-s", "RETRY_ENABLED=false") == 0
    assert command("job", "job") == 0
    assert re.search(told, capsys.readouterr().out, re.M)


def test_a_feed_that_is_a_pipe_holds_nobody_up(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def make() -> None:
        job = await open_job(tmp_path / "job", InlineBlocking())
        FEED_STATES.keep(job, {str(tmp_path / "pipe"): FeedState(7), "nul\0": FeedState(0), "/dev/tty": FeedState(0)})
        await job.aclose()

    os.mkfifo(tmp_path / "pipe")
    trio.run(make)
    assert command("job", "job") == 0
    assert re.search(r"7 bytes  /.*pipe$", capsys.readouterr().out, re.M)
