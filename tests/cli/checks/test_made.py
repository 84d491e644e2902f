"""`trawl check` reports each class that a crawl would refuse to make, all of them at once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trawl.cli import main

PARTS = """
import trawl


class NoMethods:
    pass


class NeedsArguments:
    def __init__(self, database):
        pass

    def process_item(self, item):
        return item


class Fails:
    def __init__(self):
        raise KeyError("DB_URL")

    def process_item(self, item):
        return item


class Exits(Fails):
    def __init__(self):
        exit()


class Misspelled:
    def process_requst(self, request):
        pass


class Extension:
    def __init__(self, crawler):
        pass


class Watcher:
    def __init__(self, crawl):
        pass


class Exporter:
    def __init__(self, file):
        pass


class Manager:
    def __init__(self):
        1 / 0


class ScopeManager:
    pass


class TakesNothing:
    def process_request(self):
        pass


class TakesTooMuch:
    def process_spider_input(self, response, spider, more):
        pass


def of_one(response):
    return False


async def not_middleware(request):
    return request


class Works:
    @classmethod
    def from_crawler(cls, crawler):
        assert crawler.spider.name
        return cls()

    def open_spider(self):
        raise AssertionError("a check opens nothing")

    def process_item(self, item):
        return item


"""

SPIDER = """
class One(trawl.Spider):
    name = "one"
    start_urls = ["http://a.example/"]
    custom_settings = {settings}
{more}
    def parse(self, response):
        yield {{}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def checked(settings: str, capsys: pytest.CaptureFixture[str], more: str = "", name: str = "made_parts") -> list[str]:
    Path(f"{name}.py").write_text(PARTS + SPIDER.format(settings=settings, more=more), "utf-8")
    status = main(["check", f"{name}.py"])
    lines = capsys.readouterr().out.splitlines()
    assert (status == 0) is (lines == ["1 spider: nothing wrong"])
    return [] if status == 0 else lines


def test_every_class_that_a_crawl_refuses_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    settings = """{
        "DOWNLOADER_MIDDLEWARES": {Misspelled: 1, not_middleware: 2},
        "EXTENSIONS": {Extension: 1},
        "FEEDS": {"x.own": {"format": "own"}},
        "FEED_EXPORTERS": {"own": Exporter},
        "ITEM_PIPELINES": {NoMethods: 1, NeedsArguments: 2, Fails: 3, Exits: 4, Works: 5},
        "SPIDER_MIDDLEWARES": {NoMethods: 1},
        "THROTTLING_MANAGER": Manager,
        "THROTTLING_SCOPES": {"a.example": {"manager": ScopeManager}, "b.example": {"delay": 1}},
        "WATCHERS": {Watcher: 1},
    }"""
    lines = checked(settings, capsys)
    starts = [
        "THROTTLING_MANAGER: made_parts.py, line",
        "DOWNLOADER_MIDDLEWARES: Misspelled is not middleware",
        "DOWNLOADER_MIDDLEWARES: not_middleware is not middleware",
        "EXTENSIONS: Extension can't be made: ",
        "ITEM_PIPELINES: NoMethods has no process_item",
        "ITEM_PIPELINES: NeedsArguments can't be made: ",
        "ITEM_PIPELINES: Fails can't be made: made_parts.py, line",
        "ITEM_PIPELINES: Exits can't be made: made_parts.py, line",
        "SPIDER_MIDDLEWARES: NoMethods is not a hook",
        "WATCHERS: Watcher can't be made: ",
        "THROTTLING_SCOPES: TypeError: ScopeManager() takes no arguments",
        "feed x.own: its exporter Exporter",
    ]
    assert len(lines) == len(starts), lines
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)
    assert list(Path().iterdir()) == [Path("made_parts.py")] or not Path("x.own").exists()


def test_functions_and_methods_that_take_other_arguments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    settings = """{
        "DOWNLOADER_MIDDLEWARES": {TakesNothing: 1}, "SPIDER_MIDDLEWARES": {TakesTooMuch: 1},
        "RETRY_PREDICATE": of_one, "SOFT_BLOCK_DETECTOR": of_one, "FRONTIER": Manager,
    }"""
    assert [line.partition(":")[0] for line in checked(settings, capsys, name="made_arguments")] == [
        "RETRY_PREDICATE", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "FRONTIER",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "more", "sentence"),
    [
        ('{"WARC_FILE": "x.txt"}', "", "WARC_FILE must end in .warc.gz or .warc"),
        ('{"JOB_DIR": "redis://h"}', "", "job redis://h: a part is missing or wrong"),
        ('{"DEFAULT_REQUEST_HEADERS": {"A b": "x"}}', "", "DEFAULT_REQUEST_HEADERS: 'A b' is not a header name"),
        ("{}", "    http_user = 'me'", "http_user and http_pass need http_auth_domain"),
    ],
)
def test_settings_that_a_crawl_refuses_only_when_it_opens_what_they_name_are_told(
    settings: str, more: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = checked(settings, capsys, more, "made_opened")
    assert line.startswith(sentence)


def test_files_that_can_not_be_written_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    settings = """{
        "FEEDS": {"file/out.jsonl": {}, "folder": {"format": "csv"}, "new/a/out.jsonl": {}, "-": {"format": "csv"}},
        "LOG_FILE": "file/crawl.log", "COOKIES_FILE": "folder", "WARC_FILE": "file/crawl.warc.gz",
        "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "file", "JOB_DIR": "file/job",
    }"""
    lines = [line for line in checked(settings, capsys, name="made_files") if "can't be written" in line]
    assert [line.partition(" can't be written: ")[0] for line in lines] == [
        "FEEDS: 'file/out.jsonl'", "FEEDS: 'folder'", "LOG_FILE: 'file/crawl.log'", "COOKIES_FILE: 'folder'",
        "WARC_FILE: 'file/crawl.warc.gz'", "HTTPCACHE_DIR: 'file'", "JOB_DIR: 'file/job'",
    ]  # fmt: skip
    assert lines[0].endswith("/file' is no folder")
    assert lines[1].endswith("/folder' is a folder")
    monkeypatch.setattr("os.access", lambda path, mode: "folder" not in str(path))
    [line] = checked('{"FEEDS": {"folder/new/out.jsonl": {}}}', capsys, name="made_denied")
    assert "this user may not write" in line


def test_parts_that_work_are_made_and_nothing_is_opened(capsys: pytest.CaptureFixture[str]) -> None:
    settings = """{
        "ITEM_PIPELINES": {Works: 1}, "FEEDS": {"out.jsonl": {}}, "JOB_DIR": "job", "HTTPCACHE_ENABLED": True,
        "COOKIES_FILE": "cookies.json",
    }"""
    assert checked(settings, capsys, name="made_working") == []
    assert not [path for path in Path().iterdir() if path.name in {"out.jsonl", "job", "cookies.json", "httpcache"}]


def test_a_spider_that_can_not_be_made_is_told_and_its_parts_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    more = "\n    def __init__(self):\n        raise OSError('no list')\n"
    lines = checked('{"ITEM_PIPELINES": {NeedsArguments: 1}}', capsys, more, "made_failing")
    assert lines[0].endswith("One can't be made: OSError: no list")
    assert lines[1].startswith("ITEM_PIPELINES: NeedsArguments can't be made: ")


def test_a_spider_that_takes_arguments_is_no_error_and_its_parts_are_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = "\n    def __init__(self, city):\n        super().__init__()\n"
    [line] = checked('{"ITEM_PIPELINES": {NeedsArguments: 1}}', capsys, more, "made_asking")
    assert line.startswith("ITEM_PIPELINES: NeedsArguments can't be made: ")


BROWSERS = """import trawl

try:
    from playwright.sync_api import sync_playwright
    from selenium import webdriver
except ImportError:
    pass


class Browsers(trawl.Spider):
    name = "browsers"
    start_urls = ["http://a.example/{page}"]

    def parse(self, response):
        self.driver.get(response.url)
        driver = webdriver.Chrome()
        with sync_playwright() as playwright:
            page = playwright.chromium.launch().new_page()
            page.goto(response.url)
        yield trawl.Request("http://a.example/list/{page}")
        yield response.follow("/list/{}".format(driver))

    async def later(self, response, page):
        await page.goto(response.url)
"""


def test_browsers_that_block_and_names_in_braces_are_told_with_their_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("made_browsers.py").write_text(BROWSERS, "utf-8")
    assert main(["check", "made_browsers.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" blocks ")[0] for line in lines if "blocks" in line] == [
        "made_browsers.py:15: self.driver.get()",
        "made_browsers.py:16: webdriver.Chrome()",
        "made_browsers.py:17: sync_playwright()",
        "made_browsers.py:19: page.goto()",
    ]
    assert [line.partition(": the URL has {page}")[0] for line in lines if "put an f" in line] == [
        "made_browsers.py:12",
        "made_browsers.py:20",
    ]


def test_a_check_leaves_the_loggers_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("trawl.settings")
    monkeypatch.setattr(logger, "propagate", False)
    (tmp_path / "a.py").write_text("import trawl\nclass A(trawl.Spider):\n    name = 'a'\n", "utf-8")
    main(["check", str(tmp_path / "a.py")])
    assert logger.propagate is False
