"""Helpers of ``scrapy.utils``; the values that are compared are those of Scrapy 2.19."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import trawl
import trawl.utils
from trawl.crawler import CrawlerProcess
from trawl.http import HtmlResponse, Request
from trawl.http.request import NO_CALLBACK
from trawl.settings import Layer, Settings, UnknownSetting, load
from trawl.utils import (
    RequestFingerprinter,
    arg_to_iter,
    build_from_crawler,
    configure_logging,
    create_instance,
    data_path,
    fingerprint,
    get_base_url,
    get_crawler,
    get_project_settings,
    load_object,
    open_in_browser,
    request_fingerprint,
    response_status_message,
    to_bytes,
    to_unicode,
    urlparse_cached,
)


class Shop(trawl.Spider):
    name = "shop"

    async def start(self) -> Any:
        settings = self.crawler.settings
        yield {name: settings.get(name) for name in ("DOWNLOAD_DELAY", "RETRY_TIMES", "SHOP_SIZE")}


@pytest.mark.parametrize(
    ("request_", "options", "scrapys"),
    [
        (Request("http://a.example/b?c=2&a=1#x"), {}, "5d1ff46659bccfe507028343a5158b6b8e610299"),
        (Request("http://a.example/", method="POST", body=b"x"), {}, "1f6030288f14e74b643274baa1b468adbe0e7ceb"),
        (
            Request("http://a.example/", headers={"B": "2", "A": ["1", "3"]}),
            {"include_headers": ["a", "B", "C"]},
            "91151944efb9f499da35edb2a4a1e376f4212dd5",
        ),
        (
            Request("http://a.example/b#x"),
            {"keep_fragments": True},
            "fbd925267480dc2064c5cf61cd2332bf8348490e",
        ),
        (Request("http://a.example/%c3%a9?q=a+b"), {}, "f1a25d7c5744fbfd8a1565615d78d5dbf75a54f5"),
    ],
)
def test_a_fingerprint_is_scrapys(request_: Request, options: dict[str, Any], scrapys: str) -> None:
    assert fingerprint(request_, **options).hex() == scrapys
    if not options:
        crawler = get_crawler(Shop)
        assert crawler.request_fingerprinter.fingerprint(request_).hex() == scrapys
        assert RequestFingerprinter.from_crawler(crawler).fingerprint(request_).hex() == scrapys


def test_the_older_fingerprint_is_text() -> None:
    a, b = (request_fingerprint(Request(f"http://a.example/?{query}")) for query in ("a=1&b=2", "b=2&a=1"))
    assert a == b == "1483a6e6bcda7e573dc558f5db45dc343315c326"


@pytest.mark.parametrize(
    "path", ["project.get_project_settings", "log.configure_logging", "python.to_bytes", "test.get_crawler"]
)
def test_each_is_in_a_module_called_as_scrapys(path: str) -> None:
    module, name = path.split(".")
    found: dict[str, Any] = {}
    exec(f"from trawl.utils.{module} import {name}", found)
    assert found[name] is getattr(trawl.utils, name)


def test_small_ones_return_what_scrapys_do() -> None:
    page = HtmlResponse("http://a.example/x/y", body=b"<html><head><base href='/z/'></head></html>")
    assert get_base_url(page) == "http://a.example/z/"
    assert [response_status_message(status) for status in (200, "404", b"503", 999)] == [
        "200 OK",
        "404 Not Found",
        "503 Service Unavailable",
        "999 Unknown Status",
    ]
    assert [list(arg_to_iter(arg)) for arg in (None, "ab", b"c", {"d": 1}, 5, (6, 7))] == [
        *([], ["ab"], [b"c"], [{"d": 1}], [5], [6, 7])
    ]
    assert (to_bytes("é"), to_bytes(b"x"), to_unicode(b"\xe9", "latin-1"), to_unicode("y")) == (
        *(b"\xc3\xa9", b"x", "é", "y"),
    )
    assert urlparse_cached(page).hostname == "a.example"


def test_an_object_is_loaded_by_its_path() -> None:
    assert load_object("trawl.http.Request") is load_object(Request) is Request
    for path, error in (("Request", ValueError), ("trawl.http.Nothing", NameError), (5, TypeError)):
        with pytest.raises(error):
            load_object(path)


def test_parts_are_made_as_they_ask_for_it() -> None:
    class Asks:
        def __init__(self, size: int) -> None:
            self.size = size

        @classmethod
        def from_crawler(cls, crawler: Any, size: int = 0) -> Any:
            return cls(size or crawler.settings.getint("RETRY_TIMES"))

    class Plain:
        def __init__(self, size: int = 1) -> None:
            self.size = size

    crawler = get_crawler(Shop, {"RETRY_TIMES": 8})
    assert (build_from_crawler(Asks, crawler).size, build_from_crawler(Plain, crawler, size=2).size) == (8, 2)
    assert (create_instance(Asks, None, crawler).size, create_instance(Plain, None, None).size) == (8, 1)


def test_a_projects_settings_are_read_changed_and_given_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.trawl]\nDOWNLOAD_DELAY = 7\nRETRY_TIMES = 5\n[tool.trawl.own]\nSHOP_SIZE = 3\n", "utf-8"
    )
    settings = get_project_settings()
    assert (settings["DOWNLOAD_DELAY"], settings.getint("RETRY_TIMES"), settings.getfloat("DOWNLOAD_DELAY")) == (
        7,
        5,
        7,
    )
    assert (settings["NOPE"], settings.get("NOPE", 1), settings["LOG_LEVEL"], settings["SHOP_SIZE"]) == (
        None,
        1,
        "INFO",
        3,
    )
    assert settings.getbool("ROBOTSTXT_OBEY") is True
    settings.set("DOWNLOAD_DELAY", 9)
    settings["RETRY_TIMES"] = 4
    process = CrawlerProcess(settings, install_root_handler=False)
    process.crawl(Shop)
    process.start()
    assert process.results[0].items == [{"DOWNLOAD_DELAY": 9.0, "RETRY_TIMES": 4, "SHOP_SIZE": 3}]


def test_a_spiders_settings_override_those_of_the_process() -> None:
    class Own(Shop):
        custom_settings = {"RETRY_TIMES": 1}

    process = CrawlerProcess({"RETRY_TIMES": 6, "DOWNLOAD_DELAY": 2}, install_root_handler=False)
    process.crawl(Own)
    process.start()
    assert process.results[0].items == [{"DOWNLOAD_DELAY": 2.0, "RETRY_TIMES": 1, "SHOP_SIZE": None}]


def test_the_log_is_set_up_unless_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: asked.append(options))
    configure_logging(install_root_handler=False)
    configure_logging({"LOG_ENABLED": False})
    assert asked == []
    configure_logging({"LOG_LEVEL": "ERROR", "LOG_FORMAT": "%(message)s"})
    assert [(options["level"], options["format"]) for options in asked] == [("ERROR", "%(message)s")]


def test_an_unknown_setting_is_none_in_a_moved_crawl_alone() -> None:
    moved = load(Layer("x", {"SCRAPY_COMPAT": True}))
    assert (moved["NOPE"], moved.get("NOPE", 3), moved.getint("NOPE"), moved.getbool("NOPE")) == (None, 3, 0, False)
    assert (moved.getlist("NOPE"), moved.getdict("NOPE"), moved.getfloat("NOPE"), "NOPE" in moved) == (
        [],
        {},
        0.0,
        False,
    )
    native = load()
    assert native.get("NOPE", 3) == 3
    for ask in (native.__getitem__, native.getint, moved.source):
        with pytest.raises(UnknownSetting):
            ask("NOPE")


def test_a_copy_of_the_projects_settings_answers_as_they_do() -> None:
    settings = get_project_settings()
    copied = settings.copy()
    copied.set("DOWNLOAD_DELAY", 7)
    assert (copied.getint("DOWNLOAD_DELAY"), settings.getint("DOWNLOAD_DELAY")) == (7, 1)
    assert copied.getbool("COOKIES_ENABLED") is True
    assert copied["NOT_A_SETTING"] is None


def test_a_test_makes_a_crawler_with_settings_that_nobody_declared() -> None:
    crawler = get_crawler(settings_dict={"SHOP_ENABLED": True, "BOT_NAME": "shop", "RETRY_TIMES": 4})
    settings = crawler.settings
    assert isinstance(settings, Settings)
    assert (settings.getbool("SHOP_ENABLED"), settings["BOT_NAME"]) == (True, "shop")
    assert (settings.getint("RETRY_TIMES"), settings.get("OTHER")) == (4, None)
    settings.set("SHOP_ENABLED", False, priority="cmdline")
    assert settings.getbool("SHOP_ENABLED") is False


class _Fixed:
    """A fingerprinter with its own setting, as in Scrapy's documentation."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark

    @classmethod
    def from_crawler(cls, crawler: Any) -> _Fixed:
        return cls(crawler.settings["MARK"])

    def fingerprint(self, request: Request) -> bytes:
        return self.mark


def test_a_test_crawl_has_the_fingerprinter_of_its_settings_and_creates_its_spider() -> None:
    crawler = get_crawler(Shop, {"REQUEST_FINGERPRINTER_CLASS": _Fixed, "MARK": b"mine"})
    assert crawler.request_fingerprinter.fingerprint(Request("http://one.example/")) == b"mine"
    spider = crawler._create_spider(category="poetry")
    assert isinstance(spider, Shop)
    assert (spider.category, spider.crawler) == ("poetry", crawler)  # type: ignore[attr-defined]


@pytest.mark.parametrize("convert", [to_bytes, to_unicode])
def test_only_strings_and_bytes_are_converted(convert: Any) -> None:
    with pytest.raises(TypeError, match="str or bytes"):
        convert(3)


def test_settings_are_made_and_changed_as_in_scrapy() -> None:
    settings = Settings({"SHOP_SIZE": "3"}, priority="cmdline")
    assert (settings.getint("SHOP_SIZE"), settings["NOPE"], settings.getint("RETRY_TIMES")) == (3, None, 2)
    other = settings.copy()
    other.setdict({"RETRY_TIMES": 5})
    other["LOG_LEVEL"] = "ERROR"
    assert dict(other) == {"SHOP_SIZE": "3", "RETRY_TIMES": 5, "LOG_LEVEL": "ERROR"}
    assert (dict(settings), len(Settings())) == ({"SHOP_SIZE": "3"}, 0)


def test_data_is_kept_below_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "scrapy.cfg").touch()
    (tmp_path / "shop/pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / "shop")
    assert data_path("seen", createdir=True) == str(tmp_path / ".scrapy/seen")
    assert (tmp_path / ".scrapy/seen").is_dir()
    assert data_path("/a/b") == "/a/b"


def test_the_callback_of_a_fetched_request_is_never_called() -> None:
    assert Request("http://a.example/", callback=NO_CALLBACK).callback is NO_CALLBACK
    with pytest.raises(RuntimeError, match="only fetched"):
        NO_CALLBACK()


def test_a_copy_of_a_test_crawls_settings_has_every_given_value() -> None:
    settings = get_crawler(settings_dict={"DOWNLOAD_DELAY": 5, "SHOP_SIZE": 3}).settings
    assert isinstance(settings, Settings)
    for each in (settings, settings.copy(), dict(settings)):
        assert (each["DOWNLOAD_DELAY"], each["SHOP_SIZE"], "DOWNLOAD_DELAY" in each) == (5, 3, True)


def test_a_response_is_opened_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    assert open_in_browser(HtmlResponse("http://a.example/b", body=b"<head></head>x"))
    (file,) = tmp_path.iterdir()
    assert opened == [file.as_uri()]
    assert file.read_bytes() == b'<head><base href="http://a.example/b"></head>x'
