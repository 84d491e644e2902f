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
    row("crawl_books"),
    row("exports", spider="products", files=EXPORTED),
    row("next_page"),
    row("shop", spider="shop", files=["items.jl"], xfail="a folder's name wins over the spider's"),
    row("cookie_steps"),
    row("media_kept", files=["store/full", "store/own", "pictures/full", "pictures/thumbs"]),
    row("middleware_errors", files=["closed.txt"]),
    row("more_sites"),
    row("odd_outputs"),
    row("record_csv"),
    row("record_rules"),
    row("record_sitemap"),
    row("record_xml"),
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
