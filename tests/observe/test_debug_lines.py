"""What the log says at DEBUG, and that it is asked of nothing otherwise."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

import trawl
from trawl.cli import main
from trawl.cli.summary import MEANINGS, scopes_table, summary_table
from trawl.observe import summary_rows
from trawl.observe.summary import _ROWS
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.throttling import ScopeReport

A = "http://a.example"


class Pages(trawl.Spider[Any]):
    name = "pages"
    start_urls = [f"{A}/"]
    allowed_domains = ["a.example"]

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        for url in ("/old", "/", "http://b.example/"):
            if response.url == f"{A}/":
                yield response.follow(url)


def lines(
    web: SimulatedWeb,
    caplog: pytest.LogCaptureFixture,
    settings: Mapping[str, object],
    spider: type[trawl.Spider[Any]] = Pages,
) -> str:
    caplog.set_level(logging.DEBUG, "trawl")
    simulate(spider, web, settings={"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False, **settings})
    return "\n".join(f"{record.name} {record.getMessage()}" for record in caplog.records)


def test_every_page_redirect_duplicate_offsite_drop_and_item_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/", body="hello")
    web.add_page(f"{A}/old", status=301, headers={"Location": "/new"}, body="")
    web.add_page(f"{A}/new", body="new")
    said = lines(web, caplog, {"DOWNLOAD_DELAY": 0})
    for line in (
        f"trawl.engine <GET {A}/>: 200, 5 bytes; ",
        f"trawl.engine <GET {A}/old>: redirect to {A}/new",
        f"trawl.admission <GET {A}/> is dropped: seen before",
        "trawl.admission <GET http://b.example/> is dropped: offsite filtered",
        f"trawl.items item of {A}/new: {{'url': '{A}/new'}}",
    ):
        assert line in said


class Many(trawl.Spider[Any]):
    name = "many"
    start_urls = [f"{A}/{number}" for number in range(12)]

    def parse(self, response: Any) -> Any:
        pass


def test_a_scope_tells_of_each_step_up_and_down(caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb()
    answers = iter([429])

    def answer(request: Any) -> SimulatedResponse:
        return SimulatedResponse(status=next(answers, 200), headers={})

    web.add_host("a.example", handler=answer)
    said = lines(web, caplog, {"DOWNLOAD_DELAY": 1.0, "BACKOFF_WINDOW": 5.0}, Many)
    assert "trawl.throttling a.example: delay 1 s -> 2 s (backoff step 1: 429 of http://a.example/0)" in said
    assert "trawl.throttling a.example: delay 2 s -> 1 s (configuration)" in said


def test_hints_crawl_delays_and_spent_quotas_are_told(caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb()
    answers = iter([SimulatedResponse(status=503, headers={"Retry-After": "20"})])

    def answer(request: Any) -> SimulatedResponse:
        return next(answers, SimulatedResponse())

    web.add_host("a.example", handler=answer, robots="User-agent: *\nCrawl-delay: 3")
    quota = {"a.example": {"quota": 5, "window": 100.0}}
    said = lines(web, caplog, {"ROBOTSTXT_OBEY": True, "THROTTLING_SCOPES": quota, "DOWNLOAD_DELAY": 0}, Many)
    assert "-> 3 s (Crawl-delay 3 of robots.txt)" in said
    assert "a.example: nothing is sent for 2" in said
    assert "a.example: its quota of 5 is spent, 0 is left" in said


def test_rampup_tells_of_its_moves(caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    scopes = {"a.example": {"rampup": True}}
    said = lines(web, caplog, {"THROTTLING_SCOPES": scopes, "DOWNLOAD_DELAY": 1.0, "BACKOFF_WINDOW": 2.0}, Many)
    assert "s (rampup)" in said


def test_every_word_of_both_tables_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "summary"]) == 0
    told = capsys.readouterr().out
    crawl, scope = MEANINGS.values()
    keys = [key if not key.endswith("/") else f"{key}x" for row in _ROWS.values() for key, _ in row]
    rows = summary_rows("finished", 1.0, {"request_count": 1, **dict.fromkeys(keys, 1)})
    # The first where there are several, the last where a setting has no effect.
    assert ["spider", *(title for title, _ in rows), "settings"] == list(crawl)
    table = scopes_table([ScopeReport(scope="a", sends=1)], 200)
    assert table is not None
    assert [str(column.header) for column in table.columns] == list(scope)
    assert summary_table("finished", 1.0, {}).row_count == 5
    for word in (*crawl, *scope):
        assert f"\n  {word}  " in told


def test_help_shows_that_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "version"]) == 0
    first = capsys.readouterr().out
    assert main(["version", "--help"]) == 0
    assert first == capsys.readouterr().out
    assert main(["help", "nothing"]) == 2


def test_the_rate_of_a_single_host_is_never_above_what_is_allowed() -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    exact = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False, "DOWNLOAD_DELAY": 1.0}
    sim = simulate(Many, web, settings={**exact, "CLOSESPIDER_PAGECOUNT": 2})
    assert dict(summary_rows(sim.reason, sim.elapsed, sim.stats))["rate"] == "1.0/s"
    assert sim.report[0].allowed == pytest.approx(1.0)
