"""Projects as people write them for Scrapy, under Scrapy itself and moved to trawl: the same records and requests.

Where a project can't run as it is, trawl says so before its first request, with the file and the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.moving import PROJECTS, Project, under_scrapy, under_trawl
from tests.scrapy.site import Site


def row(name: str, *, xfail: str = "", **what: Any) -> Any:
    """A project of the table; ``xfail`` says why it fails."""
    marks = [pytest.mark.xfail(strict=True, reason=xfail)] if xfail else []
    return pytest.param(Project(name=name, **what), id=name, marks=marks)


EXPORTED = [
    *("all.csv", "some.csv", "renamed.csv", "all.xml", "one.xml", "all.json", "plain.json", "all.jl", "all.pickle"),
    *("all.semicolon", "all.report", "all.pprint", "made.csv", "empty.json", "unmade.json"),
    *("category-a.csv", "category-b.csv", "category-none.csv", "pipeline.xml"),
]

TABLE = [
    row("api_cursor", headers=["Authorization", "Accept", "Accept-Language", "Content-Type"]),
    row("arguments", arguments=["-a", "query=ubik,night & day", "-a", "pages=2", "-a", "label=x"]),
    row("blank_in_link"),
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
    row("news_sitemap"),
    row("next_page"),
    row("posting", headers=["Content-Type", "Cookie", "Referer"]),
    row("priorities"),
    row("retrying", spider="flaky", xfail="what a refusal repeats is not a retry here, so nothing is lost"),
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
    assert ours.records == scrapys.records, said
    assert ours.files == scrapys.files, said
    if project.requests_differ:
        assert ours.asked != scrapys.asked, f"they are the same: {project.requests_differ}"
    else:
        assert ours.asked == scrapys.asked, said
    assert ours.status == scrapys.status, said


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
