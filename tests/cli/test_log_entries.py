"""Repeated log entries are counted, and entries as JSON have their fields."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from tests.cli.simulated import crawl_on
from trawl.cli.app import main
from trawl.cli.log_entries import WINDOW
from trawl.cli.logs import Logs, named_in_log
from trawl.errors import ConnectFailed
from trawl.observe import ObserveSettings
from trawl.testing import SimulatedWeb

throttling = logging.getLogger("trawl.throttling")
engine = logging.getLogger("trawl.engine")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logs(stream: io.StringIO) -> Iterator[Logs]:
    with Logs(Console(file=stream, width=200)) as logs:
        logs.apply(ObserveSettings(log_format="%(message)s"))
        yield logs


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall time of log entries."""
    time = [1e9]
    make = logging.LogRecord

    def made(*args: object, **kwargs: object) -> logging.LogRecord:
        record = make(*args, **kwargs)  # type: ignore[arg-type]
        record.created = time[0]
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", made)
    return time


def refuse(hosts: range) -> None:
    for number in hosts:
        throttling.info("%s: backing off after %s", f"h{number}.example", "ConnectFailed")


def test_the_first_of_a_kind_is_logged_and_the_others_of_its_minute_are_counted(
    logs: Logs, stream: io.StringIO, now: list[float]
) -> None:
    refuse(range(813))
    assert stream.getvalue() == "h0.example: backing off after ConnectFailed\n"
    now[0] += WINDOW
    refuse(range(813, 814))
    assert stream.getvalue().splitlines()[1:] == [
        "h812.example: backing off after ConnectFailed (and 811 more like this within 60 s)",
        "h813.example: backing off after ConnectFailed",
    ]


def test_a_percent_sign_is_reported_as_it_is(logs: Logs, stream: io.StringIO) -> None:
    for page in ("a%20b", "c%20d"):
        engine.warning("%s: ignored", page)
    logs.__exit__(None, None, None)
    assert stream.getvalue().splitlines() == ["a%20b: ignored", "c%20d: ignored"]


def test_what_is_not_reported_yet_is_reported_at_the_end(logs: Logs, stream: io.StringIO) -> None:
    refuse(range(2))
    logs.__exit__(None, None, None)
    assert stream.getvalue().splitlines() == [f"h{n}.example: backing off after ConnectFailed" for n in range(2)]


async def test_a_minute_without_another_entry_is_reported_too(
    logs: Logs, stream: io.StringIO, now: list[float], autojump_clock: MockClock
) -> None:
    refuse(range(3))
    with pytest.MonkeyPatch.context() as patch, trio.move_on_after(WINDOW + 1.0):
        patch.setattr("trawl.cli.log_entries.time", lambda: 1e9 + WINDOW)
        await logs.watch()
    assert "h2.example: backing off after ConnectFailed (and 1 more like this" in stream.getvalue()


def test_other_texts_levels_lines_and_spiders_are_other_kinds(logs: Logs, stream: io.StringIO) -> None:
    throttling.info("%s: backing off", "a.example")
    throttling.warning("%s: backing off", "a.example")
    throttling.info("%s: resumes", "a.example")
    with named_in_log("other"):
        throttling.info("%s: backing off", "a.example")
    for number in (0, 1):
        try:
            _ = 1 // 0 if number else int("no")
        except (ZeroDivisionError, ValueError):
            engine.exception("%s: the callback failed", "page")
    text = stream.getvalue()
    assert text.count("backing off") == 3
    assert (text.count("resumes"), text.count("Traceback")) == (1, 2)


def test_a_traceback_is_printed_once_a_minute(logs: Logs, stream: io.StringIO, now: list[float]) -> None:
    for _ in range(3):
        try:
            _ = 1 // 0
        except ZeroDivisionError:
            engine.exception("%s: the callback failed", "page")
    now[0] += WINDOW
    engine.info("later")
    assert stream.getvalue().count("Traceback") == 1
    assert "page: the callback failed: ZeroDivisionError: integer division or modulo by zero (and 1 more" in (
        stream.getvalue()
    )


def test_a_user_and_progress_are_never_left_out(logs: Logs, stream: io.StringIO) -> None:
    for number in range(3):
        logging.getLogger("quotes").warning("row %d", number)
        logging.getLogger("trawl.progress").info("%s", "12 pages")
        logging.getLogger("trawl.feeds").info("feed %s: written", number)
    assert len(stream.getvalue().splitlines()) == 9


def test_at_debug_nothing_is_left_out(stream: io.StringIO) -> None:
    with Logs(Console(file=stream, width=200)) as logs:
        logs.apply(ObserveSettings(log_format="%(message)s", log_level="DEBUG"))
        refuse(range(3))
    assert len(stream.getvalue().splitlines()) == 3


SPIDER = """\
import trawl

class Many(trawl.Spider):
    name = "many"
    custom_settings = {"ROBOTSTXT_OBEY": False, "RETRY_TIMES": 0}
    start_urls = [f"http://h{number}.example/" for number in range(200)] + ["http://a.example/page"]

    def parse(self, response):
        if "page" in response.url:
            raise ValueError("no price")
        self.logger.info("seen", extra={"url": response.url, "scope": "mine"})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.py").write_text(SPIDER, "utf-8")
    return tmp_path


def web() -> SimulatedWeb:
    web = SimulatedWeb()
    for number in range(200):
        web.add_host(f"h{number}.example", connect_error=ConnectFailed("refused"))
    web.add_host("a.example")
    return web


def test_many_dead_hosts_take_few_lines(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["crawl", "many.py", "--log-file", "log.txt"], crawl_with=crawl_on(web()))
    lines = (folder / "log.txt").read_text("utf-8").splitlines()
    assert len(lines) <= 40, lines
    assert any("more like this" in line for line in lines)


@pytest.mark.parametrize("spider", ["many.py", "missing.py"])
def test_each_line_of_standard_error_is_json(folder: Path, capfd: pytest.CaptureFixture[str], spider: str) -> None:
    status = main(["crawl", spider, "--log-format", "json"], crawl_with=crawl_on(web()))
    entries = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    if spider == "many.py":
        assert [entry["message"][:24] for entry in entries if "summary" in entry["message"]] == [
            "summary: ended finished;"
        ]
    else:
        assert status == 2
        assert [(entry["level"], "missing.py" in entry["message"]) for entry in entries] == [("CRITICAL", True)]


def test_json_has_the_documented_fields(folder: Path) -> None:
    main(
        ["crawl", "many.py", "--log-file", "log.jsonl", "--log-format", "json", "--job", "jobs/many"],
        crawl_with=crawl_on(web()),
    )
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    page = Path(__file__).parents[2] / "docs" / "reference" / "log.md"
    documented = {line.split("`")[1] for line in page.read_text("utf-8").splitlines() if line.startswith("| `")}
    assert {field for entry in entries for field in entry} == documented - {"spider"}
    (failed,) = (entry for entry in entries if entry.get("error") == "ValueError: no price")
    assert failed["url"] == "http://a.example/page"
    assert failed["traceback"].splitlines()[-1] == "ValueError: no price"
    assert failed["job"] == "jobs/many"
    assert any(entry.get("scope") == "h0.example" for entry in entries)
