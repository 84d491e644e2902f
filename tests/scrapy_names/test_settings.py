"""Scrapy's settings: each has a meaning here, or is told what takes its place."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from trawl.errors import SettingsError
from trawl.scrapy_names.moved import RENAMED
from trawl.scrapy_names.settings import UNSUPPORTED
from trawl.settings import Layer, assignments, load, of_project
from trawl.settings.values import known

SCRAPYS = (Path(__file__).parents[2] / "docs" / "_ext" / "scrapy-settings.txt").read_text("utf-8").split()
"""As its default settings and its reference have them, those of the files and images pipelines too."""


@pytest.mark.parametrize("name", SCRAPYS)
def test_each_of_scrapys_settings_has_a_meaning_or_a_word_about_it(name: str) -> None:
    assert name in known() or name in RENAMED or UNSUPPORTED.get(name, "")


def test_the_table_of_the_guide_has_all_that_have_no_effect() -> None:
    assert {*UNSUPPORTED, *RENAMED} <= set(SCRAPYS)


def test_what_takes_the_place_of_a_setting_exists() -> None:
    assert set(RENAMED.values()) <= set(known())
    named = {word.strip(",:`.") for words in UNSUPPORTED.values() for word in words.split() if "_" in word}
    assert {name.partition("=")[0] for name in named if name.isupper()} <= set(known())


def test_a_setting_that_has_no_effect_is_told_with_what_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(Layer("-s", {"DEPTH_PRIORITY": 1}))
    assert caplog.messages == [
        "DEPTH_PRIORITY (in -s) is Scrapy's and has no effect: trawl always uses the order of 1 with FIFO queues;"
        " for another order, use DEPTH_FIRST or priorities"
    ]


def test_a_moved_crawl_reads_settings_that_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    project = Layer("x", {"SCRAPY_COMPAT": True}, own={"BOT_NAME": "shop", "DEPTH_PRIORITY": 1})
    spider = Layer("custom_settings", {"CONCURRENT_ITEMS": 5, "DEPTH_PRIORITY": "2"}, is_moved=True)
    settings = load(project, spider)
    assert (settings["BOT_NAME"], settings.getint("CONCURRENT_ITEMS"), settings["DEPTH_PRIORITY"]) == ("shop", 5, "2")
    assert settings.source("CONCURRENT_ITEMS") == "custom_settings"
    assert [said.partition(" is Scrapy's")[0] for said in caplog.messages] == [
        "CONCURRENT_ITEMS (in custom_settings)",
        "DEPTH_PRIORITY (in custom_settings)",
    ]
    plain = load(Layer("custom_settings", {}, is_moved=True))
    assert (plain.get("BOT_NAME"), plain.getint("CONCURRENT_ITEMS")) == ("scrapybot", 100)


def test_a_native_crawl_reads_none_of_them() -> None:
    assert "BOT_NAME" not in load()
    assert "CONCURRENT_ITEMS" not in load(Layer("custom_settings", {"CONCURRENT_ITEMS": 5}))


@pytest.mark.parametrize(
    "layer",
    [
        Layer("x", {"DOWNLOAD_SLOTS": {"a.example": {"concurrency": 1, "delay": 2, "randomize_delay": False}}}),
        assignments(['DOWNLOAD_SLOTS={"a.example": {"concurrency": 1, "delay": 2, "randomize_delay": false}}']),
    ],
)
def test_slots_of_hosts_are_scopes(layer: Layer, caplog: pytest.LogCaptureFixture) -> None:
    assert load(layer)["THROTTLING_SCOPES"] == {"a.example": {"concurrency": 1, "delay": 2.0, "jitter": False}}
    assert caplog.messages == []


@pytest.mark.parametrize("wrong", ["no", {"a.example": 1}])
def test_slots_that_are_wrong_are_refused(wrong: Any) -> None:
    with pytest.raises(SettingsError, match="THROTTLING_SCOPES"):
        load(Layer("x", {"DOWNLOAD_SLOTS": wrong}))


def test_a_directory_of_a_job_has_another_name_and_ours_wins() -> None:
    assert load(Layer("x", {"JOBDIR": "/tmp/a"}))["JOB_DIR"] == "/tmp/a"
    assert load(Layer("x", {"JOBDIR": None}))["JOB_DIR"] == ""
    assert load(Layer("x", {"JOBDIR": "/tmp/a", "JOB_DIR": "/tmp/b"}))["JOB_DIR"] == "/tmp/b"


OFF = {
    ("DOWNLOADER_MIDDLEWARES", "downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware"): {
        "DOWNLOAD_TIMEOUT": 10.0
    },
    ("DOWNLOADER_MIDDLEWARES", "downloadermiddlewares.httpcompression.HttpCompressionMiddleware"): {
        "COMPRESSION_ENABLED": False
    },
    ("DOWNLOADER_MIDDLEWARES", "downloadermiddlewares.robotstxt.RobotsTxtMiddleware"): {"ROBOTSTXT_OBEY": False},
    ("EXTENSIONS", "extensions.closespider.CloseSpider"): {"CLOSESPIDER_ITEMCOUNT": 0, "CLOSESPIDER_TIMEOUT": 0},
    ("EXTENSIONS", "extensions.feedexport.FeedExporter"): {"FEEDS": {}},
    ("EXTENSIONS", "extensions.logstats.LogStats"): {"LOGSTATS_INTERVAL": 0},
    ("EXTENSIONS", "extensions.memusage.MemoryUsage"): {"MEMUSAGE_LIMIT_MB": 0},
    ("EXTENSIONS", "extensions.throttle.AutoThrottle"): {"AUTOTHROTTLE_ENABLED": False},
    ("SPIDER_MIDDLEWARES", "spidermiddlewares.depth.DepthMiddleware"): {"DEPTH_LIMIT": 0},
    ("SPIDER_MIDDLEWARES", "spidermiddlewares.httperror.HttpErrorMiddleware"): {"HTTPERROR_ALLOW_ALL": True},
    ("SPIDER_MIDDLEWARES", "spidermiddlewares.referer.RefererMiddleware"): {"REFERER_ENABLED": False},
    ("SPIDER_MIDDLEWARES", "spidermiddlewares.urllength.UrlLengthMiddleware"): {"URLLENGTH_LIMIT": 0},
}
ON = {
    "DOWNLOAD_TIMEOUT": 30, "ROBOTSTXT_OBEY": True, "COMPRESSION_ENABLED": True, "CLOSESPIDER_ITEMCOUNT": 5,
    "CLOSESPIDER_TIMEOUT": 5, "FEEDS": {"a.json": {}}, "LOGSTATS_INTERVAL": 5, "MEMUSAGE_LIMIT_MB": 5,
    "AUTOTHROTTLE_ENABLED": True, "DEPTH_LIMIT": 5, "HTTPERROR_ALLOW_ALL": False, "REFERER_ENABLED": True,
    "URLLENGTH_LIMIT": 5,
}  # fmt: skip


@pytest.mark.parametrize(("place", "off"), OFF.items(), ids=lambda value: value[1] if isinstance(value, tuple) else "")
def test_none_for_a_part_of_scrapys_is_stronger_than_what_it_reads(
    place: tuple[str, str], off: dict[str, object]
) -> None:
    setting, path = place
    on = Layer("-s", {name: ON[name] for name in off})
    assert all(load(on)[name] != value for name, value in off.items())
    below, above = Layer("file", {setting: {f"scrapy.{path}": None}}), Layer("x", {setting: {f"trawl.{path}": None}})
    for order in ([below, on], [on, above]):
        settings = load(*order)
        assert {name: settings[name] for name in off} == off
    assert settings.source(next(iter(off))) == "x"


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("DOWNLOAD_HANDLERS", {"https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}, "meta browser"),
        ("SCHEDULER", "scrapy_redis.scheduler.Scheduler", "JOB_DIR to redis://HOST/NAME"),
        ("HTTPCACHE_STORAGE", "scrapy_splash.SplashAwareFSCacheStorage", "Splash's HTTP API"),
        ("SPIDER_CONTRACTS", ["scrapy_splash.x"], "Splash's HTTP API"),
        ("ADDONS", {"scrapy_poet.Addon": 300}, "scrapy_poet.InjectionMiddleware with 543 to DOWNLOADER_MIDDLEWARES"),
    ],
)
def test_a_setting_without_effect_that_names_a_plug_in_is_refused(name: str, value: object, what: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} \(in -s\): scrapy_\w+\.\S+ does not run here: .*{what}"):
        load(Layer("-s", {name: value}))


def test_a_setting_without_effect_is_told_with_its_line(tmp_path: Path) -> None:
    told: list[str] = []
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.trawl]\n# EDITOR = "x"\nROBOTSTXT_OBEY = true\nEDITOR = "vi"\n', "utf-8")
    load(of_project(tmp_path), Layer("-s", {"BOT_NAME": "x"}), tell=told.append)
    assert told[0].startswith(f"EDITOR (in {file}:4) is Scrapy's and has no effect: ")
    assert told[1].startswith("BOT_NAME (in -s) is Scrapy's")
