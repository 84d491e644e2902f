"""Which spiders count as moved from Scrapy, and the defaults that hold for their crawls."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import trawl
from tests.cli.fake_crawl import FakeEngine
from trawl import Spider, scrapy_names
from trawl.cli import main
from trawl.cli.load import load_spider
from trawl.errors import SettingsError
from trawl.scrapy_names.moved import MOVED_DEFAULTS, is_moved
from trawl.settings import Layer, load, of_environment, of_spider
from trawl.settings.values import known
from trawl.spiders import SpidersSettings
from trawl.testing import SimulatedWeb, simulate

SPIDER = "\n\nclass Shop(Spider):\n    name = 'shop'\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import trawl as scrapy\nSpider = scrapy.Spider",
        "from trawl import Spider\nfrom trawl.linkextractors import LinkExtractor",
        "import trawl.item\nfrom trawl.spiders import Spider",
        "from trawl.spiders import Spider\n\ndef late():\n    from trawl.selector import Selector",
        "from trawl.spiders import Spider\nimport json, trawl . \\\n  utils",
    ],
)
def test_a_spider_with_scrapys_imports_is_moved(tmp_path: Path, imports: str) -> None:
    (tmp_path / "shop.py").write_text(imports + SPIDER)
    spider = load_spider(str(tmp_path / "shop.py"))
    assert is_moved(spider)
    assert load(of_spider(spider))["SCRAPY_COMPAT"] is True


@pytest.mark.parametrize(
    "imports",
    [
        "import trawl\nfrom trawl import Spider",
        "from trawl.spiders import Spider\nfrom trawl.loader import ItemLoader\nfrom trawl.http import Request",
        "from trawl import Spider\nimport trawl.crawler\nfrom trawl.exporters import CsvItemExporter",
        '"""Not `from trawl.item import Item`."""\nfrom trawl import Spider',
    ],
)
def test_a_spider_that_imports_trawl_by_its_own_names_is_not(tmp_path: Path, imports: str) -> None:
    (tmp_path / "shop.py").write_text(imports + SPIDER)
    spider = load_spider(str(tmp_path / "shop.py"))
    assert not is_moved(spider)
    settings = load(of_spider(spider))
    assert settings["SCRAPY_COMPAT"] is None
    assert settings.source("SCRAPY_COMPAT") == "default"


def test_its_start_urls_are_not_filtered(tmp_path: Path) -> None:
    """As in Scrapy, where start URLs have ``dont_filter``; a rule finds the start page once more by its links."""
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\n\nclass Shop(scrapy.Spider):\n    name = 'shop'\n"
        "    start_urls = ['http://a.example/'] * 2\n"
        "    def parse(self, response):\n        yield {'url': response.url}\n"
        "        yield response.follow('/', self.again)\n"
        "    def again(self, response):\n        yield {'again': response.url}\n"
    )
    web = SimulatedWeb()
    web.add_host("a.example")
    spider = load_spider(str(tmp_path / "shop.py"))
    items = simulate(spider, web).items
    assert sorted(items, key=str) == [{"again": "http://a.example/"}, *[{"url": "http://a.example/"}] * 2]
    assert simulate(spider, web, {"FILTER_START_URLS": True}).items == [{"url": "http://a.example/"}]


def test_its_start_asks_no_other_site_without_dont_filter(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\n\nclass Shop(scrapy.Spider):\n    name = 'shop'\n"
        "    allowed_domains = ['a.example']\n"
        "    def start_requests(self):\n"
        "        yield scrapy.Request('http://b.example/one')\n"
        "        yield scrapy.Request('http://b.example/', dont_filter=True)\n"
        "        yield scrapy.Request('http://a.example/')\n"
        "    def parse(self, response):\n        yield {'url': response.url}\n"
    )
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example")
    spider = load_spider(str(tmp_path / "shop.py"))
    moved = simulate(spider, web)
    assert sorted(item["url"] for item in moved.items) == ["http://a.example/", "http://b.example/"]
    assert moved.stats["offsite_filtered"] == 1
    assert "offsite_filtered" not in simulate(spider, web, {"FILTER_START_URLS": True}).stats


def test_its_meta_tells_what_scrapys_middleware_and_downloader_write_there(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\n\nclass Look:\n    def process_request(self, request, spider):\n"
        "        spider.asked.append(request.meta['download_timeout'])\n"
        "    def process_response(self, request, response, spider):\n"
        "        spider.asked.append((request.meta['download_slot'], request.meta['download_latency']))\n"
        "        return response\n\n"
        "class Shop(scrapy.Spider):\n    name = 'shop'\n    download_timeout = 7\n    asked = []\n"
        "    start_urls = ['http://a.example/']\n    custom_settings = {'DOWNLOADER_MIDDLEWARES': {Look: 543}}\n"
        "    def parse(self, response):\n        yield dict(response.meta)\n"
        "        for path in ('http://b.example/', '/none'):\n"
        "            yield response.follow(path, self.done, errback=self.failed, meta=response.meta,\n"
        "                                  cookies={'a': 'b'})\n"
        "    def done(self, response):\n        yield {'slot': response.meta['download_slot']}\n"
        "    def failed(self, failure):\n        yield {'failed': failure.request.meta['download_slot']}\n"
    )
    web = SimulatedWeb()
    web.add_host("b.example")
    web.add_page("http://a.example/", latency=0.5)
    web.add_page("http://a.example/none", status=404)
    spider = load_spider(str(tmp_path / "shop.py"))
    first, *rest = simulate(spider, web).items
    told = {"download_timeout": 7, "download_slot": "a.example", "download_latency": 0.5, "depth": 0}
    assert told.items() <= first.items()
    assert sorted(rest, key=str) == [{"failed": "a.example"}, {"slot": "b.example"}]
    assert {7, ("a.example", 0.5)} <= set(spider.asked)  # type: ignore[attr-defined]


@pytest.mark.parametrize("answers", ["request.replace(url=B)", "scrapy.Request(B, meta=request.meta)"])
@pytest.mark.parametrize("place", ["middleware", "callback", "retry"])
def test_the_slot_that_it_is_told_puts_no_other_host_into_that_scope(tmp_path: Path, place: str, answers: str) -> None:
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\nfrom trawl.middleware import get_retry_request\nB = 'http://b.example/'\n\n"
        "def other(request):\n    return " + answers + "\n\n"
        "class Other:\n    def process_response(self, request, response, spider):\n"
        "        return other(request) if request.url != B and spider.place == 'middleware' else response\n\n"
        "class Shop(scrapy.Spider):\n    name = 'shop'\n    place = ''\n    start_urls = ['http://a.example/']\n"
        "    custom_settings = {'DOWNLOADER_MIDDLEWARES': {Other: 543}}\n"
        "    def parse(self, response):\n        request = response.request\n"
        "        if self.place == 'retry':\n            request = get_retry_request(request, spider=self)\n"
        "        if response.url != B:\n            yield other(request)\n"
        "        else:\n            yield {'slot': response.meta['download_slot']}\n"
    )
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example")
    spider = load_spider(str(tmp_path / "shop.py"))
    spider.place = place  # type: ignore[attr-defined]
    sim = simulate(spider, web)
    assert sim.items == [{"slot": "b.example"}]
    assert {tuple(send.scopes) for send in sim.sends if "b.example" in send.url} == {("b.example",)}


def test_urls_and_ports_in_its_allowed_domains_match_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shop.py").write_text(
        "import trawl as scrapy\n\nclass Shop(scrapy.Spider):\n    name = 'shop'\n"
        "    allowed_domains = ['http://a.example/', 'a.example:80']\n"
        "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
        "        self.start_urls.append('http://a.example/')\n"
        "    def parse(self, response):\n        yield {'url': response.url}\n"
        "        yield response.follow('/1')\n        yield response.follow('http://b.example/', priority=-1)\n"
    )
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example")
    spider = load_spider(str(tmp_path / "shop.py"))
    sim = simulate(spider, web)
    assert sim.items == [{"url": "http://a.example/"}]
    assert sim.stats["offsite_filtered"] == 2
    assert "allowed_domains: 'http://a.example/', 'a.example:80': URLs and ports match nothing" in caplog.text
    spider.allowed_domains = ["https://a.example", "b.example"]
    assert len(simulate(spider, web).items) == 3
    caplog.clear()
    spider.allowed_domains = ["[::1]", "a.example"]
    assert len(simulate(spider, web).items) == 2
    assert "URLs and ports" not in caplog.text
    spider.allowed_domains = ["[::1]:80", "a.example"]
    simulate(spider, web)
    assert "allowed_domains: '[::1]:80': URLs and ports" in caplog.text
    assert spider().start_urls == spider().start_urls == ["http://a.example/"]


def test_a_base_class_elsewhere_counts(tmp_path: Path) -> None:
    (tmp_path / "moved_base.py").write_text("import trawl as scrapy\nclass Base(scrapy.Spider):\n    pass\n")
    (tmp_path / "derived.py").write_text("from moved_base import Base\nclass Shop(Base):\n    name = 'shop'\n")
    assert is_moved(load_spider(str(tmp_path / "derived.py")))


def test_its_defaults_are_the_weakest_source(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**MOVED_DEFAULTS, "LOGSTATS_INTERVAL": 7, "LOG_FILE": "moved.log", "RETRY_TIMES": 9}
    monkeypatch.setattr("trawl.scrapy_names.moved.MOVED_DEFAULTS", table)
    moved = Layer("custom_settings", {"RETRY_TIMES": 4, "LOG_FILE": None}, is_moved=True)
    settings = load(moved)
    assert (settings["LOGSTATS_INTERVAL"], settings["LOG_FILE"], settings["RETRY_TIMES"]) == (7, None, 4)
    assert settings.source("LOGSTATS_INTERVAL") == settings.source("SCRAPY_COMPAT") == "moved from Scrapy"
    assert settings.source("RETRY_TIMES") == "custom_settings"
    assert load(Layer("x", {}))["LOGSTATS_INTERVAL"] != 7


@pytest.mark.parametrize(
    ("imports_scrapys", "said", "answer"),
    [(False, True, True), (True, False, False), (True, None, True), (False, None, None), (True, "false", False)],
)
def test_the_setting_decides_where_it_is_said(imports_scrapys: bool, said: object, answer: bool | None) -> None:
    values = load(Layer("custom_settings", {}, is_moved=imports_scrapys), Layer("-s", {"SCRAPY_COMPAT": said}, True))
    assert values["SCRAPY_COMPAT"] is answer
    assert values.of(SpidersSettings).scrapy_compat is answer


def test_the_table_names_settings_that_are_there() -> None:
    assert set(MOVED_DEFAULTS) <= set(known())
    assert scrapy_names.moved.MOVED_DEFAULTS is MOVED_DEFAULTS
    assert load(Layer("x", {"SCRAPY_COMPAT": True}))["SCRAPY_COMPAT"] is True


def test_a_class_typed_at_a_prompt_is_native() -> None:
    assert not is_moved(type("Shop", (Spider,), {"__module__": "nowhere"}))


def test_importing_a_native_spider_imports_nothing_of_scrapys_habits() -> None:
    program = (
        "import sys\nfrom trawl import CrawlSpider, LinkExtractor, Request, Rule, Spider\n"
        "class Shop(Spider):\n    name = 'shop'\n    async def parse(self, response): yield {}\n"
        "print([name for name in sys.modules if name.startswith(('trawl.compat', 'trawl.scrapy_names.'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("said", "feeds"),
    [
        (True, {"a.json": {"indent": 1}, "b.csv": {"overwrite": True}}),
        (False, {"a.json": {}, "b.csv": {"overwrite": True}}),
    ],
)
@pytest.mark.parametrize("is_moved", [True, False])
def test_a_feed_of_the_command_line_stands_beside_the_projects_feeds_alone(
    is_moved: bool, said: bool, feeds: object
) -> None:
    project = Layer("pyproject.toml", {"FEEDS": {"a.json": {"indent": 1}}, "SCRAPY_COMPAT": said})
    own = Layer("custom_settings", {"FEEDS": {"c.json": {}}}, is_moved=is_moved, spider=trawl.Spider)
    given = Layer("-o/-O", {"FEEDS": {"a.json": {}, "b.csv": {"overwrite": True}}}, is_beside=True)
    assert load(project, own, given)["FEEDS"] == feeds


def test_text_in_the_environment_says_it_for_declared_settings_too() -> None:
    project = Layer("pyproject.toml", {}, own={"BOT_NAME": "shop"})
    assert load(project, of_environment({"TRAWL_SCRAPY_COMPAT": "true"}))["BOT_NAME"] == "shop"
    with pytest.raises(SettingsError, match="BOT_NAME is a setting of Scrapy's"):
        load(Layer("x", {"SCRAPY_COMPAT": True}, own={"BOT_NAME": "x"}), Layer("-s", {"SCRAPY_COMPAT": "false"}, True))


def test_its_feeds_have_scrapys_bytes(tmp_path: Path) -> None:
    spider = """
    def parse(self, response):
        yield {"tags": ["a", "b"], "size": (1, None), "text": "\u00e9"}
"""
    written = []
    for imports in ("import trawl as scrapy\nfrom scrapy import Spider", "from trawl import Spider"):
        (tmp_path / "shop.py").write_text(imports.replace("from scrapy", "from trawl") + SPIDER + spider)
        kind = load_spider(str(tmp_path / "shop.py"))
        kind.start_urls = ["https://shop.example/"]
        web = SimulatedWeb()
        web.add_page("https://shop.example/", body="")
        names = [tmp_path / "o.csv", tmp_path / "o.jsonl"]
        simulate(kind, web, settings={"FEEDS": {name: {"overwrite": True} for name in names}})
        written.append([name.read_bytes() for name in names])
    assert written == [
        [
            'tags,size,text\r\n"a,b","(1, None)",\u00e9\r\n'.encode(),
            b'{"tags": ["a", "b"], "size": [1, null], "text": "\\u00e9"}\n',
        ],
        [
            'tags,size,text\r\n"[""a"",""b""]","[1,null]",\u00e9\r\n'.encode(),
            '{"tags":["a","b"],"size":[1,null],"text":"\u00e9"}\n'.encode(),
        ],
    ]


class Counted(Spider):
    name = "counted"
    start_urls = ["http://a.example/"]
    handle_httpstatus_list = [404]
    seen: dict[str, Any] = {}

    def parse(self, response: Any) -> Iterator[Any]:
        self.logger.error("an error of the user's")
        yield {"status": response.status}
        if response.status == 200:
            yield response.follow("/missing")

    def closed(self, reason: str) -> None:
        type(self).seen = {**self.crawler.stats.get_stats(), "end": self.crawler.stats.get_value("finish_time")}


@pytest.fixture
def site() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/missing"])
    web.add_page("http://a.example/missing", status=404)
    return web


def test_a_moved_crawl_keeps_scrapys_statistics(site: SimulatedWeb) -> None:
    result = simulate(Counted, site, {"SCRAPY_COMPAT": True, "ROBOTSTXT_OBEY": False})
    assert result.stats["log_count/ERROR"] == 2
    assert result.stats["request_depth_max"] == 1
    began, ended = result.stats["start_time"], Counted.seen["end"]
    assert isinstance(began, datetime)
    assert timedelta(0) <= ended - began < timedelta(minutes=5)
    assert not [handler for handler in logging.getLogger().handlers if type(handler).__name__ == "_LogCounter"]


def test_a_native_crawl_does_not(site: SimulatedWeb) -> None:
    stats = simulate(Counted, site, {"ROBOTSTXT_OBEY": False}).stats
    assert not {"start_time", "finish_time", "request_depth_max"} & stats.keys()
    assert not [key for key in stats if key.startswith("log_count")]


def test_a_job_keeps_them_too(tmp_path: Path, site: SimulatedWeb) -> None:
    settings = {"SCRAPY_COMPAT": True, "ROBOTSTXT_OBEY": False, "JOB_DIR": str(tmp_path / "job")}
    first, again = (simulate(Counted, site, settings).stats for _ in range(2))
    assert first["log_count/ERROR"] == 2
    assert again["finish_time"] >= first["start_time"]
    assert again["response_count"] == first["response_count"] == 2  # what the first run kept could be read


def test_the_spiders_statuses_override_the_settings(site: SimulatedWeb) -> None:
    class Other(Counted):
        handle_httpstatus_list = [500]

    class Unsaid(Spider):
        name = "unsaid"
        start_urls = ["http://a.example/missing"]

        def parse(self, response: Any) -> Any:
            return {"status": response.status}

    settings = {"ROBOTSTXT_OBEY": False, "HTTPERROR_ALLOWED_CODES": [404]}
    assert [simulate(spider, site, settings).items for spider in (Other, Unsaid)] == [
        [{"status": 200}],
        [{"status": 404}],
    ]


@pytest.mark.parametrize(("moved", "status"), [("true", 0), ("false", 130)])
def test_an_end_that_a_moved_spider_asked_for_is_no_interruption(tmp_path: Path, moved: str, status: int) -> None:
    (tmp_path / "mine.py").write_text("from trawl import Spider" + SPIDER)
    words = ["crawl", str(tmp_path / "mine.py"), "--quiet", "-s", f"SCRAPY_COMPAT={moved}"]
    assert main(words, crawl_with=FakeEngine(reason="cancelled")) == status


def test_ctrl_c_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("from trawl import Spider" + SPIDER)
    monkeypatch.setattr("trawl.cli.crawl.is_interrupted", lambda: True)
    words = ["crawl", str(tmp_path / "mine.py"), "--quiet", "-s", "SCRAPY_COMPAT=true"]
    assert main(words, crawl_with=FakeEngine(reason="shutdown")) == 130


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("http.response.html.HtmlResponse", "HtmlResponse"),
        ("http.response.text.TextResponse", "TextResponse"),
        ("http.request.form.FormRequest", "FormRequest"),
        ("selector.unified.SelectorList", "SelectorList"),
        ("spiders.crawl.CrawlSpider", "CrawlSpider"),
    ],
)
def test_scrapys_paths_are_there_for_annotations(path: str, name: str) -> None:
    found: Any = trawl
    for part in path.split("."):
        found = getattr(found, part)
    assert found.__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = trawl.http.response.__getattribute__("nothing")


REDIRECTED = """
import trawl as scrapy

class Shop(scrapy.Spider):
    name = "shop"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        for path in ("/old", "/loop", "/refresh"):
            yield response.follow(path, self.parse_page)

    def parse_page(self, response):
        yield {"url": response.url, "referer": response.request.headers.get("Referer")}
"""


def _redirecting() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_redirect("http://a.example/old", "http://a.example/older")
    web.add_redirect("http://a.example/older", "http://a.example/page")
    web.add_redirect("http://a.example/loop", "http://a.example/loop")
    web.add_page("http://a.example/refresh", body='<meta http-equiv="refresh" content="0; url=/refreshed">')
    return web


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, ["http://a.example/older", "http://a.example/refresh"]),
        ({"SCRAPY_COMPAT": False}, ["http://a.example/"] * 2),
        ({"REFERER_ENABLED": False}, [None, None]),
        ({"REFERRER_POLICY": "origin"}, ["http://a.example/"] * 2),
    ],
)
def test_referer_after_a_redirect_is_the_page_that_redirected(
    tmp_path: Path, settings: dict[str, Any], sent: list[str | None]
) -> None:
    (tmp_path / "shop.py").write_text(REDIRECTED)
    sim = simulate(load_spider(str(tmp_path / "shop.py")), _redirecting(), settings)
    found = {item["url"].rpartition("/")[2]: item["referer"] for item in sim.items}
    assert [found["page"], found["refreshed"]] == sent


def test_a_url_that_redirects_to_itself_is_a_duplicate_as_in_scrapy(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(REDIRECTED)
    spider = load_spider(str(tmp_path / "shop.py"))
    moved = simulate(spider, _redirecting())
    assert moved.stats["dupefilter_filtered"] == 1
    assert sum(send.url.endswith("/loop") for send in moved.sends) == 1
    native = simulate(spider, _redirecting(), {"SCRAPY_COMPAT": False})
    assert sum(send.url.endswith("/loop") for send in native.sends) > 10
