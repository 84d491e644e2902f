"""Projects as people write them for Scrapy, under Scrapy itself and moved to trawl: the same records and requests.

Where a project can't run as it is, trawl says so before its first request, with the file and the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.moving import PROJECTS, Project, checked, under_scrapy, under_trawl
from tests.scrapy.site import Site


def row(name: str, **what: Any) -> Any:
    """A project of the table."""
    return pytest.param(Project(name=name, **what), id=name)


EXPORTED = [
    *("all.csv", "some.csv", "renamed.csv", "all.xml", "one.xml", "all.json", "plain.json", "all.jl", "all.pickle"),
    *("all.semicolon", "all.report", "all.pprint", "made.csv", "empty.json", "unmade.json"),
    *("category-a.csv", "category-b.csv", "category-none.csv", "pipeline.xml"),
]

TABLE = [
    row("api_cursor", headers=["Authorization", "Accept", "Accept-Language", "Content-Type"]),
    row("atom_namespaces"),
    row(
        "on_asyncio",
        warned=[
            "on_asyncio.py:9: asyncio does not work in a crawl, which runs on Trio; use trio.sleep()",
            "on_asyncio.py:10: asyncio does not work in a crawl, which runs on Trio; use a nursery of Trio's",
            "on_asyncio.py:14: asyncio does not work",
            "on_asyncio.py:24: asyncio does not work",
            "on_asyncio.py:25: all responses have one class",
        ],
        differs="what awaits asyncio fails",
    ),
    row("depth_seen", headers=["X-Depth"]),
    row("kinds_of_content"),
    row("middleware_chain"),
    row("late_start_urls", headers=["X-Listing", "Referer"]),
    row("mail_links"),
    row("login_with_click", headers=["Referer", "Cookie", "Content-Type"]),
    row("named_images", files=["covers"]),
    row("own_filter", spider="books", files=["count.json"]),
    row("redirect_referers", headers=["Referer"]),
    row("rule_processing"),
    row("seen_by_path", files=["skipped.json"]),
    row(
        "several_feeds",
        feed="",
        files=["hits.csv", "totals.json", "all-search.xml", "rows.json", "watched.json", "closed.txt"],
        headers=["Accept", "X-Api"],
    ),
    row("signals_and_limits", files=["closed.txt"], headers=["X-Number", "X-Agent"]),
    row("sitemap_kinds"),
    row("splash_api", headers=["Content-Type", "Accept"]),
    row("as_written"),
    row("arguments", arguments=["-a", "query=ubik,night & day", "-a", "pages=2", "-a", "label=x"]),
    row(
        "bare_hosts",
        warned=["is Scrapy's and has no effect: sites no longer offer a separate form of pages with #!"],
        requests_differ="an empty query is sent as it stands",
    ),
    row("blank_in_link"),
    row(
        "board",
        spider="board",
        files=["out/troubles.jsonl", "out/cheap.jsonl", "rows.json", "totals.json", "report.json"],
        headers=["User-Agent", "X-Depth", "Referer"],
        warned=[
            "pyproject.toml:7: ROBOTSTXT_OBEY: nothing is sent to a site whose robots.txt can't be read",
            "pipelines.py:83: download() also fetches from sites outside allowed_domains",
            "board.py:23: errbacks are not called for requests that are not allowed (robots.txt, allowed_domains)",
            "errors have other names and messages in trawl",
        ],
    ),
    row("bracketed", requests_differ="what Scrapy escapes and browsers do not goes to the server as it is"),
    row(
        "joined_statuses",
        warned=["joined_statuses.py:14: handle_httpstatus_list in meta overrides the spider's for redirects too"],
        differs="a redirect is followed unless the list in force has its status",
        requests_differ="the pages that they lead to",
    ),
    row("canned_answers"),
    row("canonical"),
    row("addresses"),
    row("crawl_books"),
    row("exports", spider="products", files=EXPORTED),
    row("middleware_classes", headers=["User-Agent", "X-Client", "X-Seen"]),
    row("cookie_steps"),
    row("media_kept", files=["store/full", "store/own", "pictures/full", "pictures/thumbs"]),
    row("middleware_errors", files=["closed.txt"]),
    row("more_sites"),
    row("odd_outputs"),
    row("record_csv"),
    row("record_rules"),
    row("record_sitemap"),
    row("record_xml"),
    row("csv_feed", feed="records.csv"),
    row("csv_rows"),
    row("dataclass_loader"),
    row("database", spider="database", files=["rows.jl", "mongo.jl"]),
    row("depth_limited"),
    row("downloads", spider="reports", files=["files", "images"]),
    row("enough", files=["closed.json"]),
    row("errbacks"),
    row("exporting", script="main.py", files=["even.jl", "odd.jl", "all.csv"]),
    row(
        "exact_count",
        warned=["exact_count.py:11: CLOSESPIDER_ITEMCOUNT: the crawl ends exactly at this count"],
        differs="Scrapy finishes what is in flight",
    ),
    row("extended", spider="things", files=["stats.json"]),
    row("forum_accounts"),
    row("forum_login"),
    row("header_bytes"),
    row("idle_feeder"),
    row("infinite_scroll", headers=["X-Requested-With", "Referer"]),
    row("inline"),
    row("links_everywhere"),
    row("meta_chain", headers=["Referer"]),
    row("named_test", files=["page.html"]),
    row("news_fragments"),
    row("no_charset"),
    row("news_sitemap"),
    row("next_page"),
    row("posting", headers=["Content-Type", "Cookie", "Referer"]),
    row("priorities"),
    row(
        "retrying",
        spider="flaky",
    ),
    row(
        "tries_told",
        warned=["tries_told.py:12: retry_times does not count retries after a refusal"],
        differs="what a refusal repeats is not a retry here, so nothing is lost",
    ),
    row("rotating", spider="pages", headers=["User-Agent", "Proxy-Authorization"]),
    row("rss_feed"),
    row("serializers", files=["out"]),
    row("shop", spider="shop", files=["items.jl"]),
    row("spider_mixins", headers=["User-Agent", "Cookie"]),
    row("statuses"),
    row(
        "twisted_pipeline",
        told=[
            "twisted_pipeline.py is written for Scrapy: line 2: take out",
            "line 3: take out",
            "`await trio.to_thread.run_sync(function, *arguments)` in an async def",
        ],
        edits=[
            (
                "twisted_pipeline.py",
                "from twisted.internet.defer import inlineCallbacks, returnValue\n"
                "from twisted.internet.threads import deferToThread",
                "import trio",
            ),
            ("twisted_pipeline.py", "    @inlineCallbacks\n    def process_item", "    async def process_item"),
            ("twisted_pipeline.py", "yield deferToThread(len,", "await trio.to_thread.run_sync(len,"),
            ("twisted_pipeline.py", "returnValue(item)", "return item"),
        ],
    ),
    row(
        "utils_imports",
        told=["utils_imports.py is written for Scrapy: line 5: take out", "url if '://' in url else f'http://{url}'"],
        edits=[
            ("utils_imports.py", "from scrapy.utils.url import add_http_if_no_scheme\n", ""),
            ("utils_imports.py", "add_http_if_no_scheme(place)", "place if '://' in place else f'http://{place}'"),
        ],
    ),
    row("xml_feed", feed="records.xml"),
]


@pytest.mark.parametrize("project", TABLE)
def test_the_same_records_and_requests(project: Project, tmp_path: Path, site: Site) -> None:
    scrapys = under_scrapy(project, tmp_path / "scrapy", site)
    assert scrapys.status == 0, scrapys.said
    assert scrapys.records or any(scrapys.files.values()), f"a project without records compares nothing\n{scrapys.said}"
    ours = under_trawl(project, tmp_path / "trawl", site)
    said = f"\n\n--- Scrapy:\n{scrapys.said[-6000:]}\n\n--- trawl:\n{ours.said[-6000:]}"
    if project.differs:
        assert project.warned, "a difference that nobody is told"
        assert ours.records != scrapys.records, f"they are the same: {project.differs}"
    else:
        assert ours.records == scrapys.records, said
    assert ours.files == scrapys.files, said
    for words in project.warned:
        assert words in _before_the_first_request(ours.said), said
    if project.requests_differ:
        assert ours.asked != scrapys.asked, f"they are the same: {project.requests_differ}"
    else:
        assert ours.asked == scrapys.asked, said
    assert ours.status == scrapys.status, said


def _before_the_first_request(said: str) -> str:
    """The log of trawl until it sends something: its lines on robots.txt, pages and backing off come after."""
    return " ".join(said.partition(" [trawl.engine] ")[0].partition(" [trawl.throttling] ")[0].split())


@pytest.mark.parametrize("project", [each for each in TABLE if each.values[0].warned])
def test_what_differs_is_told_by_check_too(project: Project, tmp_path: Path, site: Site) -> None:
    said = " ".join(checked(project, tmp_path / "trawl", site).split())
    for words in project.warned:
        assert words in said


@pytest.mark.parametrize("project", [each for each in TABLE if each.values[0].told])
def test_what_to_change_is_told_before_the_first_request(project: Project, tmp_path: Path, site: Site) -> None:
    ours = under_trawl(project, tmp_path / "trawl", site, is_edited=False)
    assert (ours.status, site.asked) == (2, []), ours.said
    said = " ".join(ours.said.split())
    for words in project.told:
        assert words in said, ours.said


def test_each_project_is_in_the_table() -> None:
    found = {path.stem for path in PROJECTS.iterdir() if path.name != "__pycache__"}
    assert found == {each.values[0].name for each in TABLE}
