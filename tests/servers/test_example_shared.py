"""examples/shared.py as two processes beside a real server and a real demo."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.test_demo import demo
from tests.docs.given import ROOT
from tests.servers.stores import running_store
from trawl.engine.steering import Pause, Resume, stored_form
from trawl.frontier.redis.report import inspect_job, order
from trawl.testing.demo import DEMO_HOST

pytestmark = pytest.mark.servers
PATIENCE = 120.0  # seconds


def test_two_processes_share_a_job_and_one_feed_has_what_both_found(tmp_path: Path) -> None:
    with running_store("redis", tmp_path) as store, demo() as (_, site):
        port = urlsplit(site).port
        text = (ROOT / "examples" / "shared.py").read_text("utf-8")
        (tmp_path / "shared.py").write_text(text.replace(DEMO_HOST.rpartition(":")[2], str(port)), "utf-8")
        url, quick = store.url("shared"), ("-s", "DOWNLOAD_DELAY=1.5", "-s", "JOB_LEASE=4")
        command = (sys.executable, "-m", "trawl")
        first = (*command, "crawl", "shared.py", "--job", url, "-o", "pages.jsonl", "--stats", "first.json", *quick)
        second = (*command, "worker", url, "--spider", "shared.py", "--stats", "second.json", *quick)
        running = []

        def begin(number: int, line: tuple[str, ...]) -> None:
            with (tmp_path / f"log-{number}").open("wb") as log:
                running.append(subprocess.Popen(line, cwd=tmp_path, stderr=log))

        def until(is_so: Callable[[], object]) -> None:
            deadline = time.monotonic() + PATIENCE
            while not is_so():
                assert time.monotonic() < deadline, [path.read_text("utf-8") for path in tmp_path.glob("log-*")]
                time.sleep(0.02)

        try:
            begin(0, first)
            until(lambda: "new" in (tmp_path / "log-0").read_text("utf-8"))
            # One host has five pages: the other process is to be there before they are done.
            order(url, *stored_form(Pause()), is_heard=True)
            begin(1, second)
            until(lambda: sum(session.parts > 0 for session in inspect_job(url).sessions) == len(running))
            order(url, *stored_form(Resume()), is_heard=True)
            statuses = [process.wait(PATIENCE) for process in running]
        finally:
            for process in running:
                process.kill()
        assert statuses == [0, 0], (tmp_path / "log-0").read_text("utf-8") + (tmp_path / "log-1").read_text("utf-8")
    pages = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text("utf-8").splitlines()]
    assert len(pages) == len({page["url"] for page in pages}) == 10 + 5
    assert sorted(len(page["titles"]) for page in pages) == [6, *[10] * 10, *[20] * 4]
    found = [json.loads((tmp_path / f"{name}.json").read_text("utf-8")) for name in ("first", "second")]
    assert min(stats["item_scraped_count"] for stats in found) > 0, "one did all of it"
