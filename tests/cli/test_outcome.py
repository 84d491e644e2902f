"""``--fail-on``, ``--stats`` and ``--version``: what a line of cron asks of a crawl."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.fake_crawl import FakeCrawl, FakeEngine
from tests.cli.simulated import FOLLOWER, QUICK, crawl_on
from trawl import __version__
from trawl.cli import main
from trawl.cli.summary import StatsFile
from trawl.errors import ConnectFailed, TrawlError
from trawl.observe import Stats
from trawl.testing import SimulatedResponse, SimulatedWeb

FAILING = FOLLOWER.replace('yield {"url": response.url}', "1 / 0")
NO_ITEMS = FOLLOWER.replace('yield {"url": response.url}', "pass")
LOSING = FOLLOWER + '    custom_settings = {"ITEM_PIPELINES": {"losing.Losing": 1}}\n'
LOSER = "class Losing:\n    def process_item(self, item, spider):\n        raise RuntimeError('no')\n"


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "losing.py").write_text(LOSER)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def crawled(source: str, *arguments: str, is_there: bool = True) -> int:
    Path("pages.py").write_text(source)
    web = SimulatedWeb()
    if is_there:
        web.add_page("http://a.example/", body="<p>hello")
    else:
        web.add_host("a.example", connect_error=ConnectFailed)
    quick = (*QUICK, "-s", "ROBOTSTXT_OBEY=false")
    return main(["crawl", "pages.py", *quick, *arguments], crawl_with=crawl_on(web))


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.rstrip().rpartition("\n")[2]


CASES = [
    (FAILING, True, "errors", "no item came: errors in callbacks: 1", "errors: errors in callbacks: 1"),
    (LOSING, True, "errors", "no item came: errors in pipelines: 1", "errors: errors in pipelines: 1"),
    (FOLLOWER, False, "unreachable", "nothing was sent: errors in downloads: 1", "unreachable: no server could be"),
]


@pytest.mark.parametrize(("source", "is_there", "kind", "warned", "failed"), CASES)
def test_a_crawl_that_came_to_nothing_says_so_last_and_fails_where_asked_to(
    source: str, is_there: bool, kind: str, warned: str, failed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert crawled(source, is_there=is_there) == 0
    line = last_line(capfd)
    assert "WARNING" in line
    assert warned in line
    assert crawled(source, "--quiet", "--fail-on", kind, is_there=is_there) == 3
    assert f"ERROR: the crawl fails on {failed}" in last_line(capfd)


def test_kinds_are_given_one_by_one_or_together_and_a_good_crawl_meets_none(
    capfd: pytest.CaptureFixture[str],
) -> None:
    every = ("--fail-on", "errors,no-items", "--fail-on", "unreachable")
    assert crawled(FOLLOWER, *every) == 0
    assert crawled(NO_ITEMS, *every) == 3
    assert "the crawl fails on no-items: no item came" in last_line(capfd)
    assert crawled(NO_ITEMS, "--fail-on", "errors") == 0


@pytest.mark.usefixtures("virtual_clock")
def test_a_host_that_was_given_up_is_a_failure_where_asked_to(capfd: pytest.CaptureFixture[str]) -> None:
    Path("pages.py").write_text(FOLLOWER)
    command = ["crawl", "pages.py", *QUICK, "-s", "ROBOTSTXT_RETRY_TIMES=0", "--quiet", "--fail-on", "given-up"]
    for status in (3, 3, 0):  # with the job, whose last run has its page
        web = SimulatedWeb()
        web.add_host("a.example", robots=SimulatedResponse(503) if status else "")
        assert main([*command, "--job", "job"], crawl_with=crawl_on(web)) == status
        assert ("the crawl fails on given-up: 1 request of a host that" in capfd.readouterr().err) is bool(status)


def test_a_crawl_that_failed_or_was_stopped_keeps_its_own_status() -> None:
    Path("pages.py").write_text(FOLLOWER)
    for reason, status in (("shutdown", 130), ("feed_error", 1), ("closespider_pagecount", 3)):
        assert main(["crawl", "pages.py", "--fail-on", "no-items"], crawl_with=FakeEngine(reason=reason)) == status


def test_an_unknown_kind_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert crawled(FOLLOWER, "--fail-on", "errors,404") == 2
    assert (
        "--fail-on 404: there is no such failure; use errors, no-items, unreachable, given-up, fewer-items=30%"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(("before", "status"), [(None, 0), (1, 0), (1.4, 0), (2, 3), (100, 3)])
def test_fewer_items_than_in_the_last_crawl_is_a_failure_until_it_is_accepted(
    before: float | None, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = Path("stats.json")
    if before is not None:
        path.write_text(json.dumps({"item_scraped_count": before}))
    for _ in range(2):
        assert crawled(FOLLOWER, "--fail-on", "fewer-items=30%", "--stats", "stats.json") == status
    kept = before if status else 1
    assert json.loads(path.read_text())["item_scraped_count"] == kept
    if status:
        line = last_line(capfd)
        assert f"the crawl fails on fewer-items: 1 items, and {before} in the last crawl" in line
        path.unlink()
        assert crawled(FOLLOWER, "--fail-on", "fewer-items=30%", "--stats", "stats.json") == 0


def test_fewer_items_has_to_have_something_to_compare_with(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("--stats", "-")):
        assert crawled(FOLLOWER, "--fail-on", "fewer-items=30%", *arguments) == 2
        assert "name the file of the last crawl's statistics with --stats FILE" in capfd.readouterr().err
    Path("stats.json").write_text("[]")
    assert crawled(FOLLOWER, "--fail-on", "fewer-items=30%", "--stats", "stats.json") == 2
    assert "has no statistics of an earlier crawl" in capfd.readouterr().err
    assert crawled(FOLLOWER, "--fail-on", "fewer-items") == 2


def test_the_statistics_are_in_the_file_whole_and_readable() -> None:
    Path("stats.json").write_text("of the night before")
    assert crawled(FOLLOWER, "--stats", "stats.json") == 0
    stats = json.loads(Path("stats.json").read_text())
    assert (stats["item_scraped_count"], stats["finish_reason"]) == (1, "finished")
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_dates_are_written_as_iso_8601_and_no_figure_as_null(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    StatsFile("-").write({"start_time": at, "rate": float("nan"), "bad\ud800": 1})
    out, _ = capfdbinary.readouterr()
    stats = json.loads(out)
    assert (datetime.fromisoformat(stats["start_time"]), stats["rate"]) == (at, None)


@pytest.mark.parametrize("begins", [True, False])
def test_a_crawl_that_raised_leaves_the_statistics_that_it_had(begins: bool) -> None:
    Path("pages.py").write_text(FOLLOWER)
    stats = Stats()
    stats.inc("response_count", 7)
    engine = FakeEngine(crawl=FakeCrawl(stats=stats))

    async def crawl_with(*arguments: object, **options: object) -> object:
        if begins:
            await engine(*arguments, **options)  # type: ignore[arg-type]
        raise RuntimeError("a defect")

    assert main(["crawl", "pages.py", "--stats", "stats.json"], crawl_with=crawl_with) == 1  # type: ignore[arg-type]
    written = json.loads(Path("stats.json").read_text())
    assert written == {"finish_reason": "failed", **({"response_count": 7} if begins else {})}


def test_a_crawl_that_was_stopped_leaves_its_statistics() -> None:
    Path("pages.py").write_text(FOLLOWER)
    stats = Stats()
    stats.set("finish_reason", "shutdown")
    engine = FakeEngine(reason="shutdown", crawl=FakeCrawl(stats=stats))
    assert main(["crawl", "pages.py", "--stats", "stats.json"], crawl_with=engine) == 130
    assert json.loads(Path("stats.json").read_text()) == {"finish_reason": "shutdown"}


@pytest.mark.parametrize(
    ("path", "words"),
    [("none/stats.json", "there is no folder"), (".", "that is a folder; name a file in it")],
)
def test_a_file_that_could_not_be_written_is_refused_before_anything_is_sent(
    path: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert crawled(FOLLOWER, "--stats", path) == 2
    assert words in capfd.readouterr().err


def test_statistics_and_items_do_not_mix_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert crawled(FOLLOWER, "--stats", "-", "-O", "-:csv") == 2
    assert crawled(FOLLOWER, "--stats", "-", "--quiet") == 0
    assert json.loads(capfd.readouterr().out)["item_scraped_count"] == 1


def test_a_file_that_is_not_replaced_stays_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Path("stats.json").write_text("{}")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trawl.file_sync.replace_file", refuse)
    with pytest.raises(TrawlError, match=r"can't be written to .*stats\.json: No space left"):
        StatsFile("stats.json").write({"a": 1})
    assert not [name for name in os.listdir() if name.startswith(".")]
    assert Path("stats.json").read_text() == "{}"


def test_the_version_is_an_option_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["version"]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first == second
    assert first.startswith(f"trawl {__version__} (")
