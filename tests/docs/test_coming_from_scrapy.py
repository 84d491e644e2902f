"""What *Coming from Scrapy* says of names is so."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import trawl
from trawl.observe.stats import SCRAPYS
from trawl.scrapy_names.names import PLUGINS
from trawl.testing import SimulatedWeb, simulate

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "howto" / "coming-from-scrapy.md").read_text("utf-8")
FILES = [path for path in sorted((ROOT / "trawl").rglob("*.py")) if "checks" not in path.parts]  # they tell of keys
SOURCE = "\n".join(path.read_text("utf-8") for path in FILES)
META = [row for row in re.findall(r"^\| (`.*) \| (.*) \|$", TEXT.partition("## The keys of `meta`")[2], re.M) if row]


def keys(meaning: str) -> list[str]:
    rows = [keys for keys, words in META if words.startswith(meaning)]
    assert rows
    return re.findall(r"`(\w+)`", " ".join(rows))


@pytest.mark.parametrize("key", [*keys("obeyed"), *keys("set by trawl"), *keys("only in trawl")])
def test_a_key_of_meta_that_means_something_is_in_the_code(key: str) -> None:
    assert f'"{key}"' in SOURCE


@pytest.mark.parametrize("key", keys("ignored"))
def test_a_key_of_meta_that_means_nothing_is_not(key: str) -> None:
    assert f'"{key}"' not in SOURCE


def test_each_signal_of_scrapys_is_in_the_table() -> None:
    table = TEXT.partition("## Signals")[2].partition("## Contracts")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= import_module("trawl.signals").SCRAPYS


@pytest.mark.parametrize("name", ["spiders", "linkextractors", "http", "exceptions", "selector", "items", "loader"])
def test_a_module_is_where_the_changed_import_line_looks_for_it(name: str) -> None:
    assert getattr(trawl, name) is import_module(f"trawl.{name}")


@pytest.mark.parametrize(
    "name",
    [
        *("Spider", "CrawlSpider", "SitemapSpider", "XMLFeedSpider", "CSVFeedSpider", "Rule", "LinkExtractor"),
        *("Request", "FormRequest", "Response", "Selector", "Item", "Field", "run", "crawl", "open_crawl"),
    ],
)
def test_a_name_is_there(name: str) -> None:
    assert name in trawl.__all__
    assert getattr(trawl, name) is not None


def test_the_errors_that_it_names_are_there() -> None:
    exceptions = import_module("trawl.exceptions")
    for name in ("NameNotResolved", "DownloadTimeout", "ConnectTimeout", "HttpError", "CloseSpider", "DropItem"):
        assert name in TEXT
        assert issubclass(getattr(exceptions, name), Exception)


def test_each_statistic_that_has_another_name_is_in_its_table() -> None:
    section = TEXT.partition("## Statistics")[2].partition("\n## ")[0]
    for scrapys, ours in SCRAPYS.items():
        row = next(line for line in section.splitlines() if f"`{scrapys}" in line)
        assert f"`{ours}" in row


class Driver:
    """A browser of selenium's, as far as the guide's middleware asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.current_url = self.page_source = ""

    def get(self, url: str) -> None:
        self.asked.append(url)
        self.current_url, self.page_source = f"{url}#shown", f"<h1>Shown {len(self.asked)}</h1>"

    def quit(self) -> None:
        self.asked.append("quit")


def test_the_middleware_that_answers_from_a_browser_does(monkeypatch: pytest.MonkeyPatch) -> None:
    section = TEXT.partition("### Pages from a browser")[2]
    names: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], names)
    driver = Driver()
    selenium = ModuleType("selenium")
    selenium.webdriver = SimpleNamespace(Firefox=lambda: driver)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "selenium", selenium)

    class Pages(trawl.Spider):
        name = "pages"
        start_urls = ("http://a.example/",)

        def parse(self, response: trawl.Response) -> Any:
            for path in ("/one", "/two"):
                yield response.follow(path, self.parse_page, meta={"browser": True})
            yield response.follow("/plain", self.parse_page)

        def parse_page(self, response: trawl.Response) -> Any:
            yield {"url": response.url, "heading": response.css("h1::text").get()}

    web = SimulatedWeb()
    web.add_page("http://a.example/", body="<p>start</p>")
    web.add_page("http://a.example/plain", body="<h1>Plain</h1>")
    sim = simulate(Pages, web, {"DOWNLOADER_MIDDLEWARES": {names["FromBrowser"]: 1000}})
    assert sorted(item["heading"] for item in sim.items) == ["Plain", "Shown 1", "Shown 2"]
    assert sorted(driver.asked) == ["http://a.example/one", "http://a.example/two", "quit"]


def test_each_plug_in_that_is_named_has_a_row() -> None:
    table = TEXT.partition("## Plug-ins")[2].partition("## Signals")[0]
    rows = set(re.findall(r"`((?:scrapy|fake)-[\w-]+)`", table.partition("### Pages")[0]))
    assert {name.replace("_", "-") for name in PLUGINS} - {"rotating-proxies", "scrapy-proxies"} <= rows
    assert rows >= {"fake-useragent", "scrapy-rotating-proxies", "scrapy-user-agents", "scrapy-redis"}
