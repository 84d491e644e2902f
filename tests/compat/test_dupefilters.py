"""Filters of duplicates as projects write them for Scrapy: ``DUPEFILTER_CLASS`` and ``REQUEST_FINGERPRINTER_CLASS``."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trawl import Request, Spider
from trawl.compat import BaseDupeFilter, RFPDupeFilter
from trawl.errors import SettingsError
from trawl.testing import SimulatedWeb, Simulation, simulate
from trawl.utils import RequestFingerprinter

LINKS = [f"http://a.example/item/{n}?view={view}" for n in (1, 2) for view in ("x", "y", "x")]


class ByPath(BaseDupeFilter):
    """Remembers by itself."""

    made: list[ByPath]

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.told: list[str] = []
        self.made.append(self)

    def open(self) -> None:
        self.told.append("open")

    def request_seen(self, request: Request) -> bool:
        path = request.url.partition("?")[0]
        if "broken" in path:
            raise RuntimeError("no database")
        is_seen = path in self.seen
        self.seen.add(path)
        return is_seen

    def log(self, request: Request, spider: Any) -> None:
        self.told.append(request.url)

    def close(self, reason: str) -> None:
        self.told.append(reason)


class ByNumber(RFPDupeFilter):
    """Has its own idea of the same."""

    def request_fingerprint(self, request: Request) -> str:
        return request.url.partition("?")[0]


class Fingerprinter:
    cache: weakref.WeakKeyDictionary[Request, bytes] = weakref.WeakKeyDictionary()

    def fingerprint(self, request: Request) -> bytes:
        if request not in self.cache:
            self.cache[request] = request.url.partition("?")[0].encode()
        return self.cache[request]


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[ByPath]:
    found: list[ByPath] = []
    monkeypatch.setattr(ByPath, "made", found, raising=False)
    return found


class Links(Spider):
    name = "links"
    start_urls = ("http://a.example/",)
    links: tuple[str, ...] = tuple(LINKS)

    def parse(self, response: Any) -> Any:
        for url in self.links:
            yield Request(url, self.parse_item)

    def parse_item(self, response: Any) -> Any:
        yield {"url": response.url.removeprefix("http://a.example")}


def crawled(settings: Mapping[str, object], spider: type[Spider] = Links) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_redirect("http://a.example/old", "http://a.example/item/1?view=z")
    return simulate(spider, web, settings, errors="collect")


def urls(settings: Mapping[str, object], spider: type[Spider] = Links) -> list[str]:
    return sorted(item["url"] for item in crawled(settings, spider).items)


def test_without_one_urls_are_compared() -> None:
    assert urls({}) == ["/item/1?view=x", "/item/1?view=y", "/item/2?view=x", "/item/2?view=y"]


def test_one_that_remembers_by_itself_is_asked_for_each_request(made: list[ByPath]) -> None:
    sim = crawled({"DUPEFILTER_CLASS": ByPath})
    assert sorted(item["url"] for item in sim.items) == ["/item/1?view=x", "/item/2?view=x"]
    assert sim.stats["dupefilter_filtered"] == 4
    [one] = made
    assert (one.told[0], one.told[-1]) == ("open", "finished")
    assert sorted(one.told[1:-1]) == sorted([LINKS[1], LINKS[2], LINKS[4], LINKS[5]])


def test_the_target_of_a_redirect_is_asked_for_too() -> None:
    class Redirected(Links):
        links = ("http://a.example/item/1", "http://a.example/old")

    assert urls({"DUPEFILTER_CLASS": ByPath}, Redirected) == ["/item/1"]
    assert urls({"DUPEFILTER_CLASS": ByNumber}, Redirected) == ["/item/1"]
    assert urls({}, Redirected) == ["/item/1", "/item/1?view=z"]


def test_one_that_fails_costs_the_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Links):
        links = ("http://a.example/broken", "http://a.example/item/1")

    assert urls({"DUPEFILTER_CLASS": ByPath}, Broken) == ["/item/1"]
    assert "is dropped: ByPath failed" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [{"DUPEFILTER_CLASS": ByNumber}, {"REQUEST_FINGERPRINTER_CLASS": Fingerprinter}],
    ids=["filter", "print"],
)
def test_one_with_its_own_idea_of_the_same_works_with_a_job(settings: dict[str, object], tmp_path: Path) -> None:
    assert urls(settings) == ["/item/1?view=x", "/item/2?view=x"]
    job = {**settings, "JOB_DIR": str(tmp_path / "job")}
    assert urls(job) == ["/item/1?view=x", "/item/2?view=x"]
    assert urls(job) == []


def test_one_that_remembers_by_itself_is_refused_with_a_job(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ByPath remembers requests itself.* crawl without JOB_DIR"):
        crawled({"DUPEFILTER_CLASS": ByPath, "JOB_DIR": str(tmp_path / "job")})


@pytest.mark.parametrize("name", ["scrapy.dupefilters.BaseDupeFilter", "trawl.compat.BaseDupeFilter"])
def test_scrapys_base_class_lets_all_through(name: str) -> None:
    assert len(urls({"DUPEFILTER_CLASS": name})) == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"},
        {"REQUEST_FINGERPRINTER_CLASS": "scrapy.utils.request.RequestFingerprinter"},
        {"REQUEST_FINGERPRINTER_CLASS": RequestFingerprinter, "DUPEFILTER_CLASS": RFPDupeFilter},
    ],
)
def test_scrapys_defaults_are_what_holds(settings: dict[str, object]) -> None:
    assert len(urls(settings)) == 4


def test_a_filter_may_add_to_the_fingerprints_of_its_base() -> None:
    class AllFirst(RFPDupeFilter):
        def request_seen(self, request: Request) -> bool:
            return "item/2" in request.url or super().request_seen(request)

    assert urls({"DUPEFILTER_CLASS": AllFirst}) == ["/item/1?view=x", "/item/1?view=y"]


@pytest.mark.parametrize("setting", ["DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS"])
def test_what_is_no_such_class_is_refused_by_name(setting: str) -> None:
    with pytest.raises(SettingsError, match=rf"{setting}: dict has no method \w+\(request\)"):
        crawled({setting: dict})
    with pytest.raises(SettingsError, match=setting):
        crawled({setting: "nowhere.Filter"})


def test_the_crawler_has_the_fingerprinter_of_the_setting() -> None:
    told: list[bytes] = []

    class Told(Links):
        def parse_item(self, response: Any) -> None:
            told.append(self.crawler.request_fingerprinter.fingerprint(response.request))

    crawled({"REQUEST_FINGERPRINTER_CLASS": Fingerprinter}, Told)
    assert sorted(told) == [b"http://a.example/item/1", b"http://a.example/item/2"]
