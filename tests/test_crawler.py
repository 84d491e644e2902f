"""Scrapy's ``CrawlerProcess``, as scripts have it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import trawl
from trawl.crawler import AsyncCrawlerProcess, CrawlerProcess
from trawl.errors import SettingsError, SpiderLoadError, UsageError


class Saying(trawl.Spider):
    """Gives an item, and asks nobody for a page."""

    name = "saying"

    async def start(self) -> AsyncIterator[Any]:
        await self.meet()
        yield {"said": getattr(self, "what", "nothing"), "delay": self.settings["DOWNLOAD_DELAY"]}

    async def meet(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def silent_root() -> Iterator[logging.Logger]:
    """The root logger, as it was when the test is over."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_setting_without_effect_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    process = CrawlerProcess({"TELNETCONSOLE_ENABLED": True}, install_root_handler=False)
    process.crawl(Saying)
    process.start()
    assert len([line for line in caplog.messages if line.startswith("TELNETCONSOLE_ENABLED")]) == 1


def test_it_runs_spiders_with_their_arguments_side_by_side() -> None:
    others: list[trio.Event] = []

    class Meeting(Saying):
        async def meet(self) -> None:
            if others:
                others[0].set()
            else:
                others.append(trio.Event())
                await others[0].wait()  # ends only if the other one runs meanwhile

    process = CrawlerProcess({"DOWNLOAD_DELAY": 3}, install_root_handler=False)
    process.crawl(Meeting, what="hello")
    process.crawl(Meeting, what="world")
    process.start()
    expected = [[{"said": said, "delay": 3.0}] for said in ("hello", "world")]
    assert [result.items for result in process.results] == expected
    assert {result.reason for result in process.results} == {"finished"}
    process.start()
    assert process.results == []


NAMED = """
import trawl


class Named(trawl.Spider):
    name = "named-in-a-project"

    async def start(self):
        yield {"word": self.word}
"""


def test_a_spider_may_be_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "spider_of_this_test.py").write_text(NAMED)
    process = CrawlerProcess(install_root_handler=False)
    process.crawl("named-in-a-project", word="found")
    process.start()
    assert process.results[0].reason == "finished"
    assert process.results[0].stats["item_scraped_count"] == 1
    with pytest.raises(SpiderLoadError, match="nobody"):
        process.crawl("nobody")


def test_it_reads_the_projects_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nDOWNLOAD_DELAY = 7\n", "utf-8")
    process = AsyncCrawlerProcess(install_root_handler=False)
    process.crawl(Saying)
    process.start()
    assert process.results[0].items == [{"said": "nothing", "delay": 7.0}]


def test_it_logs_unless_the_program_does(silent_root: logging.Logger) -> None:
    silent_root.handlers.clear()  # as a script begins
    CrawlerProcess({"LOG_LEVEL": "WARNING"}).start()
    assert (len(silent_root.handlers), silent_root.level) == (1, logging.WARNING)
    CrawlerProcess({"LOG_LEVEL": "DEBUG"}).start()
    assert (len(silent_root.handlers), silent_root.level) == (1, logging.WARNING)


def test_what_can_not_be_run_is_refused_by_its_name() -> None:
    process = CrawlerProcess({"DOWNLOD_DELAY": 1}, install_root_handler=False)
    with pytest.raises(UsageError, match="the class of a spider"):
        process.crawl(object)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="its arguments by name, not 'hello'"):
        process.crawl(Saying, "hello")
    process.crawl(Saying)
    with pytest.raises(SettingsError, match="did you mean DOWNLOAD_DELAY"):
        process.start()


def test_what_one_spider_is_refused_for_is_raised_as_it_is() -> None:
    class Wrong(Saying):
        custom_settings = {"DOWNLOAD_DELAY": "fast"}

    process = CrawlerProcess(install_root_handler=False)
    process.crawl(Wrong)
    with pytest.raises(SettingsError, match="DOWNLOAD_DELAY must be a number"):
        process.start()


def test_what_only_scrapys_has_says_what_to_use() -> None:
    scrapys: Any = CrawlerProcess()
    with pytest.raises(AttributeError, match=r"CrawlerProcess has no create_crawler, .* `results\[0\]\.stats`"):
        scrapys.create_crawler(Saying)
    with pytest.raises(ImportError, match=r"there is no CrawlerRunner here: .*`await trawl\.crawl\(Spider\)`"):
        from trawl.crawler import CrawlerRunner  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from trawl.crawler import nonsense  # type: ignore[attr-defined]  # noqa: F401
