"""A setting without effect is reported, with the setting that hides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import trawl
from trawl.settings import Layer, definitions, load
from trawl.settings.hidden import _CAPS, _SWITCHES, without_effect


def told(*layers: Mapping[str, Any], **attributes: object) -> list[str]:
    spider = type("S", (trawl.Spider,), attributes)
    return without_effect(load(*(Layer(f"layer {number}", layer) for number, layer in enumerate(layers))), spider)


def test_a_delay_alone_changes_nothing_while_its_slot_rests_longer() -> None:
    (sentence,) = told({"DOWNLOAD_DELAY": 0.1})
    assert sentence == (
        "DOWNLOAD_DELAY = 0.1 has no effect: DOWNLOAD_DELAY_PER_SLOT (1 s, one slot) decides; set "
        "DOWNLOAD_DELAY_PER_SLOT too, or give the host a 'rate' in THROTTLING_SCOPES"
    )


@pytest.mark.parametrize(
    ("given", "hidden"),
    [
        ({"DOWNLOAD_DELAY": 0}, "DOWNLOAD_DELAY = 0 "),
        ({"DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "CONCURRENT_REQUESTS": 1}, "DELAY = 0.1 has"),
        ({"DOWNLOAD_DELAY_PER_SLOT": 0.1}, "DOWNLOAD_DELAY_PER_SLOT = 0.1 has no effect: DOWNLOAD_DELAY (1 s)"),
        ({"DOWNLOAD_DELAY": 3.0, "DOWNLOAD_DELAY_PER_SLOT": 2}, "DOWNLOAD_DELAY_PER_SLOT = 2 has no effect"),
        ({"THROTTLING_SCOPES": {"a.example": {"delay": 0.2}}}, "THROTTLING_SCOPES['a.example']['delay'] = 0.2 has no"),
        (
            {"THROTTLING_SCOPES": {"a.example": {"rate": 4, "delay_per_slot": 1, "concurrency": 1}}},
            "THROTTLING_SCOPES['a.example']['rate'] = 4 has no effect",
        ),
        ({"THROTTLING_SCOPES": {"api": {"delay": 1, "delay_per_slot": 0.5}}}, "['api']['delay_per_slot'] = 0.5 has no"),
        ({"THROTTLING_SCOPES": {"api": {"delay": 1, "window": 9}}}, "THROTTLING_SCOPES['api']['window'] has no effect"),
        ({"THROTTLING_SCOPES": {"api": {"concurrency": 17}}}, "THROTTLING_SCOPES['api'] has concurrency 17, above"),
        (
            {"CONCURRENT_REQUESTS_PER_IP": 2, "THROTTLING_SCOPES": {"a.example": {"delay": 2}}},
            "THROTTLING_SCOPES of host names have no effect ('a.example')",
        ),
        ({"RAMPUP_BACKOFF_TARGET": 2}, "RAMPUP_BACKOFF_TARGET has no effect: no scope of THROTTLING_SCOPES"),
        ({"THROTTLING_WINDOW": 2}, "THROTTLING_WINDOW has no effect"),
        ({"RETRY_ENABLED": False, "RETRY_TIMES": 5, "RETRY_BUDGET_PER": "host"}, "RETRY_TIMES, RETRY_BUDGET_PER have"),
        ({"RETRY_BUDGET_RESERVE": 5}, "RETRY_BUDGET_RESERVE has no effect: RETRY_BUDGET is not set"),
        ({"ROBOTSTXT_OBEY": False, "THROTTLING_ROBOTSTXT_MAX_DELAY": 5}, "TXT_MAX_DELAY has no effect"),
        ({"HTTPCACHE_DIR": "x"}, "HTTPCACHE_DIR has no effect: HTTPCACHE_ENABLED is false"),
        ({"AUTOTHROTTLE_MAX_DELAY": 5.0}, "AUTOTHROTTLE_MAX_DELAY has no effect: AUTOTHROTTLE_ENABLED is false"),
        ({"COOKIES_ENABLED": False, "COOKIES_FILE": "c.txt"}, "COOKIES_FILE has no effect: COOKIES_ENABLED is false"),
        ({"REDIRECT_ENABLED": False, "METAREFRESH_MAXDELAY": 5}, "MAXDELAY has no effect: REDIRECT_ENABLED"),
        ({"CONCURRENT_REQUESTS_PER_DOMAIN": 17}, "is 17, above CONCURRENT_REQUESTS = 16"),
        ({"DOWNLOAD_TIMEOUT": 20, "DOWNLOAD_READ_TIMEOUT": 20}, "READ_TIMEOUT is 20, not below"),
        ({"PAGES_PER_DOMAIN": 9, "CLOSESPIDER_PAGECOUNT": 5}, "PAGES_PER_DOMAIN is 9, above CLOSESPIDER_PAGECOUNT = 5"),
        ({"RETRY_DELAY": 90}, "RETRY_DELAY is 90, above RETRY_MAX_DELAY = 60"),
        ({"USER_AGENT": "books/1", "CONTACT": "me@your.site"}, "CONTACT has no effect: USER_AGENT is set"),
        ({"USER_AGENT": "a", "DEFAULT_REQUEST_HEADERS": {"user-agent": "b"}}, "USER_AGENT has no effect: DEFAULT"),
        (
            {"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 9, "AUTOTHROTTLE_START_DELAY": 6},
            "AUTOTHROTTLE_START_DELAY = 6 has no effect",
        ),
        (
            {"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 0, "AUTOTHROTTLE_START_DELAY": 0.5},
            "AUTOTHROTTLE_START_DELAY = 0.5 has no effect: DOWNLOAD_DELAY_PER_SLOT (1 s)",
        ),
        (
            {"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 0, "AUTOTHROTTLE_MAX_DELAY": 0.5},
            "AUTOTHROTTLE_MAX_DELAY = 0.5 has no effect",
        ),
        ({"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_TARGET_CONCURRENCY": 4}, "is 4, above CONCURRENT_REQUESTS_PER_D"),
        (
            {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 90},
            "START_DELAY is 90, above AUTOTHROTTLE_MAX_DELAY = 60",
        ),
        ({"RETRY_TIMES": 0, "RETRY_HTTP_CODES": [500]}, "RETRY_HTTP_CODES has no effect: RETRY_TIMES is 0"),
        ({"THROTTLING_ROBOTSTXT_MAX_DELAY": 0, "THROTTLING_ROBOTSTXT_OBEY": True}, "ROBOTSTXT_OBEY has no effect"),
        ({"DOWNLOAD_DELAY": 90, "THROTTLING_ROBOTSTXT_MAX_DELAY": 30}, "= 30 has no effect on hosts: their delay (90"),
        ({"DOWNLOAD_DELAY": 90, "BACKOFF_MAX_DELAY": 30}, "BACKOFF_MAX_DELAY = 30 has no effect on hosts"),
        ({"IMAGES_STORE": "images", "IMAGES_EXPIRES": 9}, "IMAGES_STORE, IMAGES_EXPIRES have no effect: ITEM"),
        ({"JOB_KEEP_GIVEN_UP": True}, "JOB_KEEP_GIVEN_UP has no effect: JOB_DIR is empty"),
        ({"FEED_EXPORT_FIELDS": ["a"]}, "FEED_EXPORT_FIELDS has no effect: FEEDS is empty"),
        ({"FEEDS": {"a.csv": {}}, "FEED_TEMPDIR": "/tmp"}, "FEED_TEMPDIR has no effect: FEEDS names no store"),
        ({"FEEDS": {"a.csv": {"fields": ["b"]}}, "FEED_EXPORT_FIELDS": ["a"]}, "each feed of FEEDS has its own 'fi"),
        ({"LOG_ENABLED": False, "LOG_LEVEL": "DEBUG"}, "LOG_LEVEL has no effect: LOG_ENABLED is false"),
        ({"LOG_LEVEL": "WARNING", "COOKIES_DEBUG": True}, "COOKIES_DEBUG has no effect: LOG_LEVEL is above INFO"),
        ({"LOG_LEVEL": 30, "LOGSTATS_INTERVAL": 9}, "LOGSTATS_INTERVAL has no effect: LOG_LEVEL is above INFO"),
        ({"LOG_FORMAT": "%(message)s", "LOG_DATEFORMAT": "%H"}, "LOG_DATEFORMAT has no effect: LOG_FORMAT has no"),
        ({"MEMUSAGE_CHECK_INTERVAL_SECONDS": 5}, "MEMUSAGE_CHECK_INTERVAL_SECONDS has no effect"),
    ],
)  # fmt: skip
def test_a_setting_that_another_one_hides_is_reported(given: Mapping[str, Any], hidden: str) -> None:
    assert any(hidden in sentence for sentence in told(given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"DOWNLOAD_DELAY": 1},
        {"DOWNLOAD_DELAY": 3},
        {"DOWNLOAD_DELAY": 0.1, "DOWNLOAD_DELAY_PER_SLOT": 0.1},
        {"DOWNLOAD_DELAY": 0.1, "DOWNLOAD_DELAY_PER_SLOT": 0},
        {"DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS_PER_DOMAIN": 4},
        {"CONCURRENT_REQUESTS": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 100},
        {"THROTTLING_SCOPES": {"a.example": {"delay": 2}, "b.example": {"rate": 4}, "api": {"delay": 0.1}}},
        {
            "THROTTLING_SCOPES": {"a.example": {"concurrency": 4, "delay": 0.2, "rampup": True}},
            "RAMPUP_BACKOFF_TARGET": 2,
        },
        {"RETRY_ENABLED": False},
        {"ROBOTSTXT_OBEY": False, "THROTTLING_ROBOTSTXT_OBEY": False},
        {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "x"},
        {"CONTACT": "me@your.site"},
        {"DOWNLOAD_TIMEOUT": 20},
        {"RETRY_TIMES": 0},
        {"RETRY_TIMES": 0, "RETRY_ENABLED": True, "RETRY_BUDGET": None},
        {"LOG_LEVEL": "WARNING", "LOGSTATS_INTERVAL": 0},
        {"LOG_LEVEL": 10, "COOKIES_DEBUG": True},
        {"FEED_EXPORT_ENCODING": "utf-8"},
        {"FEEDS": {"a.csv": {"fields": ["b"]}, "c.csv": {}}, "FEED_EXPORT_FIELDS": ["a"]},
        {"FEEDS": {"s3://b/a.csv": {}}, "FEED_TEMPDIR": "/tmp"},
        {"ITEM_PIPELINES": {"trawl.pipelines.ImagesPipeline": 1}, "IMAGES_STORE": "images"},
        {"MEMUSAGE_CHECK_INTERVAL_SECONDS": 5, "MEMUSAGE_LIMIT_MB": 100},
        {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_TARGET_CONCURRENCY": 4, "CONCURRENT_REQUESTS_PER_DOMAIN": 4},
    ],
)
def test_nothing_is_reported_that_has_an_effect_or_is_a_default(given: Mapping[str, Any]) -> None:
    assert told(given) == []


def test_a_spiders_own_download_delay_is_hidden_like_the_setting() -> None:
    (sentence,) = told({}, download_delay=0.1)
    assert sentence.startswith(
        "the spider's download_delay = 0.1 has no effect: DOWNLOAD_DELAY_PER_SLOT (1 s, one slot)"
    )
    assert told({"DOWNLOAD_DELAY_PER_SLOT": 0.1}, download_delay=0.1) == []


def test_a_spiders_own_attribute_hides_the_setting() -> None:
    (sentence,) = told({"DOWNLOAD_DELAY": 5}, download_delay=3)
    assert sentence == "DOWNLOAD_DELAY has no effect: the spider's download_delay overrides it; keep one of them"
    assert told({"DOWNLOAD_DELAY": 3}, download_delay=3) == []
    (sentence,) = told({"HTTPERROR_ALLOWED_CODES": [404]}, handle_httpstatus_list=[500])
    assert sentence.startswith("HTTPERROR_ALLOWED_CODES has no effect: the spider's handle_httpstatus_list")
    assert told({"HTTPERROR_ALLOWED_CODES": [404]}) == []


def test_before_a_crawl_an_option_may_still_set_what_decides() -> None:
    settings = load(Layer("test", {"JOB_LEASE": 20, "LOG_ENCODING": "ascii"}))
    assert len(without_effect(settings)) == 2
    assert without_effect(settings, is_whole=False) == []


def test_each_name_in_the_tables_is_a_setting() -> None:
    names = {definition.name for definition in definitions()}
    for switch in _SWITCHES:
        assert switch.name in names
        for hidden in switch.hidden:
            assert hidden in names or (hidden.endswith("_") and any(name.startswith(hidden) for name in names))
    assert {name for cap in _CAPS for name in (cap.hidden, cap.cap)} <= names
