"""What the benchmark makes of its figures: nothing is measured here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import limit_req
from benchmarks.bench import Row
from benchmarks.chart import Series, chart
from benchmarks.figures import Figure, median_of, ratio_of, table
from benchmarks.report import FIRST_PAGES, PLOTTED, controllers_plot, page, with_figures, with_tables
from benchmarks.results import Results
from benchmarks.rows import ROWS
from benchmarks.rows.limits import CRAWLERS, OURS, Server, run
from benchmarks.site import PAGES
from benchmarks.site import page as html
from tests.servers.limited import CASES, Run
from tests.servers.nginx import Hit
from trawl._run import CrawlResult

ROOT = Path(__file__).parent.parent
MACHINE = {"cores": 2, "processor": "P", "system": "S 1", "python": "3", "versions": {"trio": "1"}}


def test_a_goal_is_reached_at_its_very_figure() -> None:
    assert Figure(name="a", value=2.0, most=2.0).is_reached is True
    assert Figure(name="a", value=2.1, most=2.0).is_reached is False
    assert Figure(name="a", value=0.5, least=0.5).is_reached is True
    assert Figure(name="a", value=0.4, least=0.5).is_reached is False
    assert Figure(name="a", value=0.4).is_reached is None


def test_a_ratio_is_taken_within_each_round() -> None:
    assert ratio_of("a", [10.0, 100.0, 30.0], [5.0, 50.0, 10.0]).value == 2.0
    assert median_of("a", [1.0, 9.0, 2.0]).value == 2.0


def test_the_table_says_what_was_missed() -> None:
    told = table("row", [Figure(name="rate", value=1_234.5, unit="pages/s", least=2_000)])
    assert "1,234" in told
    assert ">= 2,000 MISSED" in told


def test_a_run_that_was_broken_off_has_what_it_has_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.results.machine", lambda: MACHINE)
    results = Results()
    results.add(Row("one", "one", lambda bench: []), [Figure(name="a", value=3.0, most=2.0)], rounds=1)
    results.write(tmp_path / "kept.json")
    kept = Results.read(tmp_path / "kept.json")
    assert list(kept.rows) == ["one"]
    assert kept.missed() == ["one (a)"]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_the_page_shows_each_figure_with_its_goal() -> None:
    results = Results()
    results.add(ROWS["seen"], [Figure(name="at most", value=95.6, unit="bytes", most=100.0)], rounds=1)
    text = page(json.loads(json.dumps({"machine": MACHINE, "rows": results.rows})))
    assert "| a seen fingerprint in memory | at most | 95.6 bytes | ≤ 100 | reached |" in text
    assert "2 cores of P, S 1, Python 3; trio 1" in text


def test_a_chart_is_svg_with_a_mark_for_each_point() -> None:
    drawn = chart("title", "x", "y", [Series("a", [(1, 10), (4, 200)]), Series("b", [(1, 12), (4, 190)])])
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 4


def test_the_controllers_are_drawn_beside_one_another_and_their_server() -> None:
    root = ElementTree.fromstring(controllers_plot())
    words = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [word.partition(":")[0] for word in words if " pages, " in word] == list(PLOTTED)
    limits = [each for each in root.iter("{http://www.w3.org/2000/svg}line") if each.get("stroke-dasharray")]
    assert len(limits) == 1 + 2 * len(PLOTTED)  # the legend's, and before and after the limit moves


def test_a_crawl_of_nginx_is_drawn_with_what_nginx_served_and_refused() -> None:
    hits = [
        Hit(at=100 + n / 4, host="five-rampup.localhost", method="GET", target=f"/{n}", status=429 if n == 9 else 200)
        for n in range(41)
    ]
    run = Run(case=CASES[0], result=CrawlResult("finished", {}, 10.0, []), hits=hits)
    drawn = limit_req.panel(run)
    assert [rate.rate for rate in drawn.rates] == [4.0, 4.0, 4.0, 4.0, 4.5]
    assert (drawn.refused_at, drawn.limit) == ([2.25], [(0.0, 5.0)])
    assert "1 answers 429" in drawn.note


def test_each_row_is_told_of_where_the_benchmark_is_explained() -> None:
    told = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert [name for name in ROWS if f"`{name}`" not in told] == []


def test_every_page_of_the_site_can_be_reached_and_none_leads_back_to_the_first() -> None:
    linked = {
        number: [int(part.partition(".html")[0]) for part in html(number, 5).split('href="')[1:]]
        for number in range(PAGES)
    }
    found, new = {0}, [0]
    while new:
        new = [target for number in new for target in linked[number] if target not in found]
        found.update(new)
    assert len(found) == PAGES
    assert all(0 not in targets for targets in linked.values())
    assert 5_300 < len(html(1_234).encode()) < 5_900


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_every_crawler_asks_a_limited_server_which_serves_no_more_than_it_allows(crawler: str) -> None:
    server = Server(rate=5.0, burst=5.0, outages=[(20.0, 22.0)])
    trace = run(crawler, server, seconds=40.0)
    assert trace == run(crawler, server, seconds=40.0)
    assert 20 <= len(trace.good) <= 5 * 40 + 5
    assert trace.good_between(20.0, 22.0) == 0 < len(trace.refused)
    assert all(trace.good_between(at, at + 1.0) <= 10 for at in trace.good)


def test_trawl_uses_a_limit_loses_nothing_and_is_refused_seldom() -> None:
    trace = run(OURS, Server(rate=10.0), seconds=60.0)
    assert trace.lost == 0
    assert trace.good_between(30.0, 60.0) >= 0.95 * 10.0 * 30.0
    assert trace.refused_between(30.0, 60.0) <= 0.03 * trace.good_between(30.0, 60.0)
    assert len(run(OURS, Server(rate=10.0), pages=50).good) == 50


def test_the_tables_of_limits_are_those_that_were_measured() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "latest.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "explanation" / "rate-limited-servers.md").read_text(encoding="utf-8")
    assert with_tables(text, kept) == text


@pytest.mark.parametrize("path", FIRST_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_first_page_shows_what_was_measured(path: Path) -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "latest.json").read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    assert with_figures(text, kept, FIRST_PAGES[path]) == text
    assert " pages per second in one process without delays" in text


def test_the_changelog_has_the_speeds_that_were_measured() -> None:
    text = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    named = re.search(r"([\d,]+) pages per second in the benchmark, where Scrapy reaches ([\d,]+)", text)
    assert named is not None
    speeds = (ROOT / "docs" / "explanation" / "speed.md").read_text(encoding="utf-8")
    assert f"\n| trawl | {named[1]} |" in speeds
    assert f"\n| Scrapy | {named[2]} |" in speeds


def test_the_page_begins_with_the_peers_and_what_a_user_can_do_and_has_its_goals_after_that() -> None:
    results = Results()
    results.add(
        ROWS["pages"],
        [
            Figure(name="trawl", value=3_000.0, unit="pages/s"),
            Figure(name="compiled", value=3_500.0, unit="pages/s"),
            Figure(name="Scrapy", value=200.0, unit="pages/s"),
            Figure(name="against Scrapy", value=15.0, unit="x", least=14.0),
        ],
        rounds=1,
    )
    text = page(json.loads(json.dumps({"machine": MACHINE, "rows": results.rows})))
    parts = [
        "| trawl | 3,000 |  |",
        "| trawl, compiled | 3,500 |  |",
        "| Scrapy | 200 | 15 x |",
        "## What limits a crawl",
        "fast\n",
        "## Goals",
        "reached",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
