"""What *Coming from Scrapy* says of names is so."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import trawl
from trawl.observe.stats import SCRAPYS
from trawl.scrapy_names.names import PLUGINS

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


def test_each_plug_in_that_is_named_has_a_row() -> None:
    table = TEXT.partition("## Plug-ins")[2].partition("## Signals")[0]
    rows = set(re.findall(r"`((?:scrapy|fake)-[\w-]+)`", table.partition("### Pages")[0]))
    named = {name.partition(".")[0].replace("_", "-") for name in PLUGINS}
    assert named - {"rotating-proxies", "scrapy-proxies"} <= rows
    assert rows >= {"fake-useragent", "scrapy-rotating-proxies", "scrapy-user-agents", "scrapy-redis"}
