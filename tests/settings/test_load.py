from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from trawl.errors import SettingsError
from trawl.observe import ObserveSettings
from trawl.settings import Layer, ambient, assignments, load, of_environment, of_project, of_spider


def test_without_sources_everything_has_its_default() -> None:
    settings = load()
    assert settings["LOG_LEVEL"] == "INFO"
    assert settings.of(ObserveSettings) == ObserveSettings()
    assert {settings.source(name) for name in settings} == {"default"}


def test_stronger_sources_win_in_the_promised_order(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.trawl]\nLOG_FILE = 'toml'\nLOGSTATS_INTERVAL = 1\nSHUTDOWN_TIMEOUT = 1\nLOG_ENCODING = 'latin-1'\n"
    )
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)

    class Custom:
        custom_settings = {"LOG_FILE": "custom", "LOGSTATS_INTERVAL": 3}

    environ = {"TRAWL_LOG_FILE": "environ", "TRAWL_LOGSTATS_INTERVAL": "2", "TRAWL_SHUTDOWN_TIMEOUT": "2", "PATH": "/"}
    settings = load(*ambient(inner, environ), of_spider(Custom), assignments(["LOG_FILE=line"]))
    assert [
        (settings[name], settings.source(name))
        for name in ("LOG_FILE", "LOGSTATS_INTERVAL", "SHUTDOWN_TIMEOUT", "LOG_ENCODING", "LOG_LEVEL")
    ] == [
        ("line", "-s"),
        (3.0, "custom_settings"),
        (2.0, "TRAWL_SHUTDOWN_TIMEOUT"),
        ("latin-1", str(tmp_path / "pyproject.toml")),
        ("INFO", "default"),
    ]


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (assignments(["LOG_FILEE=x"]), "unknown setting LOG_FILEE (in -s); did you mean LOG_FILE?"),
        (
            of_environment({"TRAWL_LOG_FIL": "x"}),
            "unknown setting TRAWL_LOG_FIL (in the environment); did you mean TRAWL_LOG_FILE?",
        ),
        (
            Layer("custom_settings", {"log_file": "x"}),
            "unknown setting log_file (in custom_settings); did you mean LOG_FILE?",
        ),
        (
            Layer("custom_settings", {"XYZZY": 1}),
            "unknown setting XYZZY (in custom_settings);"
            " declare your own settings in own_settings of the spider, or in [tool.trawl.own]",
        ),
        (assignments(["SHUTDOWN_TIMEOUT=x"]), "SHUTDOWN_TIMEOUT must be a number, at least 0, not 'x' (in -s)"),
        (
            of_environment({"TRAWL_SHUTDOWN_TIMEOUT": "-1"}),
            "SHUTDOWN_TIMEOUT must be a number, at least 0, not -1 (in TRAWL_SHUTDOWN_TIMEOUT)",
        ),
        (
            Layer("custom_settings", {"LOG_ENABLED": "yes"}),
            "LOG_ENABLED must be true or false, not 'yes' (in custom_settings)",
        ),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line_with_its_source(layer: Layer, sentence: str) -> None:
    """I03."""
    with pytest.raises(SettingsError) as caught:
        load(layer)
    assert str(caught.value) == sentence


def test_a_wrong_value_is_refused_even_where_a_stronger_source_overrides_it() -> None:
    with pytest.raises(SettingsError, match="in custom_settings"):
        load(Layer("custom_settings", {"SHUTDOWN_TIMEOUT": "soon"}), assignments(["SHUTDOWN_TIMEOUT=1"]))


def test_scrapy_settings_without_meaning_are_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = load(Layer("custom_settings", {"TWISTED_REACTOR": "x.y", "LOG_ENABLED": False}))
    assert "TWISTED_REACTOR" not in settings
    assert settings["LOG_ENABLED"] is False
    assert caplog.messages == ["TWISTED_REACTOR (in custom_settings) is Scrapy's and has no effect: trawl runs on Trio"]


def test_declared_settings_of_scrapy_are_told_if_they_change_the_records(caplog: pytest.LogCaptureFixture) -> None:
    own = {
        "ADDONS": {"shop.parts.Addon": 300},
        "BOT_NAME": "shop",
        "DOWNLOAD_HANDLERS": {"http": "shop.parts.Handler"},
        "DOWNLOADER": "",
        "LOG_FORMATTER": "shop.parts.Formatter",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
        "TELNETCONSOLE_ENABLED": False,
        "SHOP_SIZE": 3,
    }
    settings = load(Layer("pyproject.toml", {"SCRAPY_COMPAT": True}, own=own))
    told = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert told == ["ADDONS", "DOWNLOAD_HANDLERS", "LOG_FORMATTER"]
    assert settings["ADDONS"] == {"shop.parts.Addon": 300}
    plugin = {"DOWNLOAD_HANDLERS": {"http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}}
    with pytest.raises(SettingsError, match="does not run here: render pages"):
        load(Layer("pyproject.toml", {"SCRAPY_COMPAT": True}, own=plugin))


def test_a_key_of_the_projects_own_stays_in_a_feed_of_a_moved_crawl(caplog: pytest.LogCaptureFixture) -> None:
    feeds = {"x.json": {"format": "json", "shop_kind": "a"}, "y.json": {"overwrite": True}}
    settings = load(Layer("pyproject.toml", {"SCRAPY_COMPAT": True, "FEEDS": feeds}))
    assert settings["FEEDS"] == feeds
    [record] = caplog.records
    assert record.getMessage() == (
        "FEEDS['x.json'] (in pyproject.toml) has your own key 'shop_kind': only the feed's item_filter gets it"
    )
    mistakes: tuple[dict[str, object], ...] = ({"overwrit": True}, {"postprocessing": []})
    for wrong in mistakes:
        with pytest.raises(SettingsError, match="unknown key"):
            load(Layer("pyproject.toml", {"SCRAPY_COMPAT": True, "FEEDS": {"x.json": wrong}}))


@pytest.mark.parametrize("text", ["LOG_FILE", "=x", ""])
def test_an_assignment_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(SettingsError, match="-s takes NAME=VALUE, not"):
        assignments([text])


def test_a_value_may_hold_equals_signs_and_the_last_of_a_name_counts() -> None:
    assert load(assignments(["LOG_FORMAT=x", "LOG_FORMAT=a=b"]))["LOG_FORMAT"] == "a=b"


def test_a_broken_pyproject_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trawl")
    with pytest.raises(SettingsError, match=r"pyproject\.toml can't be read"):
        of_project(tmp_path)


def test_tool_trawl_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ntrawl = 3")
    with pytest.raises(SettingsError, match="must be a table"):
        of_project(tmp_path)


def test_the_nearest_pyproject_counts_even_when_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nLOG_FILE = 'far'")
    near = tmp_path / "near"
    near.mkdir()
    (near / "pyproject.toml").write_text("")
    assert of_project(near).values == {}


def test_custom_settings_must_be_a_mapping() -> None:
    class Wrong:
        custom_settings = ("LOG_FILE",)

    with pytest.raises(SettingsError, match="custom_settings must be a mapping, not tuple"):
        of_spider(Wrong)


def test_a_spider_without_custom_settings_says_nothing() -> None:
    assert of_spider(object()).values == {}


def test_a_spiders_user_agent_stands_for_the_setting() -> None:
    class Named:
        user_agent = "me"

    class Own(Named):
        custom_settings = {"USER_AGENT": "we"}

    assert load(of_spider(Named))["USER_AGENT"] == "me"
    assert load(of_spider(Own))["USER_AGENT"] == "we"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_project_of_another_user_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_link: bool
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.trawl]\nLOGSTATS_INTERVAL = 1\n")
    ambient(tmp_path, {})
    assert caplog.text == ""
    call = Path.lstat if is_link else Path.stat

    def changed(each: Path, **options: bool) -> os.stat_result:
        status = call(each, **options)
        return status if each != path else os.stat_result([*status[:4], 4242, *status[5:]])

    monkeypatch.setattr(Path, call.__name__, changed)
    project, _ = ambient(tmp_path, {})
    assert project.values == {"LOGSTATS_INTERVAL": 1}
    assert f"{path} belongs to another user (uid 4242)" in caplog.text
    caplog.clear()
    path.write_text("[tool.other]\n")
    ambient(tmp_path, {})
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("project", "spider", "feeds"),
    [
        ({"FEED_FORMAT": "csv"}, {"FEED_URI": "out.csv"}, {"out.csv": {"format": "csv"}}),
        ({"FEED_URI": "out.x"}, {"FEED_FORMAT": "xml"}, {"out.x": {"format": "xml"}}),
        ({"FEED_URI": "a.x", "FEED_FORMAT": "csv"}, {"FEED_URI": "b.x"}, {"b.x": {"format": "csv"}}),
        ({"FEED_URI": "a.x"}, {"FEED_URI": None}, {}),
        (
            {"FEEDS": {"a.json": {"format": "json"}}},
            {"FEED_URI": "b.x"},
            {"b.x": {"format": "jsonlines"}, "a.json": {"format": "json"}},
        ),
        (
            {"FEED_URI": "b.x", "FEEDS": {"a.json": {"format": "json"}}},
            {"FEEDS": {"c.xml": {"format": "xml"}}},
            {"b.x": {"format": "jsonlines"}, "c.xml": {"format": "xml"}},
        ),
    ],
)
def test_the_old_settings_of_a_feed_may_be_in_two_sources(
    project: dict[str, object], spider: dict[str, object], feeds: object
) -> None:
    told: list[str] = []
    layers = (Layer("pyproject.toml", project), Layer("custom_settings", spider, is_moved=True))
    assert load(*layers, tell=told.append)["FEEDS"] == feeds
    assert told == []


def test_the_format_of_no_feed_is_told() -> None:
    told: list[str] = []
    assert load(Layer("-s", {"FEED_FORMAT": "csv"}), tell=told.append)["FEEDS"] == {}
    assert told == [
        "FEED_FORMAT (in -s) has no effect without FEED_URI: set `format` in the feed's entry of FEEDS",
    ]
