"""Scrapy's settings.py as TOML: what it says is what it said, and what can't be said stands in a comment."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.cli.settings import to_toml
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb


class Pipeline:
    """Named by a setting."""


def read(values: dict[str, object]) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(to_toml(values))["tool"]["trawl"]
    assert table.pop("SCRAPY_COMPAT") is True
    return table


def test_what_it_says_is_what_it_said() -> None:
    values: dict[str, object] = {
        "USER_AGENT": 'a "quoted" \\ name\n\x7fé',
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0.5,
        "RETRY_TIMES": 3,
        "RETRY_HTTP_CODES": [500, 502],
        "FEEDS": {"out/%(name)s.json": {"format": "json", "overwrite": True, "fields": ["a", "b"]}},
        "ITEM_PIPELINES": {"shop.pipelines.Price": 300},
    }
    assert read(values) == values
    load(Layer("x", read(values)))


def test_a_name_of_the_users_own_is_declared_apart() -> None:
    table = read({"DOWNLOAD_DELAY": 1, "MONGO_URI": "mongodb://", "SIZES": ({1, 2}, ()), "HERE": Path("/a")})
    assert table == {"DOWNLOAD_DELAY": 1, "own": {"MONGO_URI": "mongodb://", "SIZES": [[1, 2], []], "HERE": "/a"}}
    values = {name: value for name, value in table.items() if name != "own"}
    assert load(Layer("x", values, own=table["own"]))["MONGO_URI"] == "mongodb://"


def test_a_path_is_text() -> None:
    assert read({"IMAGES_STORE": Path("/a") / "images"}) == {"IMAGES_STORE": "/a/images"}


def test_what_has_no_effect_is_a_comment_that_says_why() -> None:
    text = to_toml({"BOT_NAME": "shop", "JOBDIR": "jobs/a", "SCHEDULER": "a.B"})
    assert "# BOT_NAME: there are no projects; USER_AGENT names the crawler" in text.splitlines()
    assert "# SCHEDULER: " in text
    assert read({"SCHEDULER": None, "MAIL_PASS": "x", "JOBDIR": "jobs/a"}) == {"JOBDIR": "jobs/a"}


def test_what_has_no_effect_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    table = read({"BOT_NAME": "shop", "SPIDER_MODULES": ["shop.spiders"], "CONCURRENT_ITEMS": 50})
    settings = load(Layer("x", {"SCRAPY_COMPAT": True}, own=table.pop("own")))
    assert (table, caplog.messages) == ({}, [])
    assert settings["BOT_NAME"] == settings.get("BOT_NAME") == "shop"
    assert settings.getint("CONCURRENT_ITEMS") == 50
    assert settings.getlist("SPIDER_MODULES") == ["shop.spiders"]


def test_none_is_left_out_and_told() -> None:
    feeds = {"a.json": {"format": "json", "fields": None}}
    values: dict[str, object] = {
        "DNS_RESOLVER": None,
        "FEEDS": feeds,
    }
    assert read(values) == {"FEEDS": {"a.json": {"format": "json"}}}
    text = to_toml(values)
    for told in ("# DNS_RESOLVER = None: ", "# FEEDS: a.json, fields = None"):
        assert told in text


@pytest.mark.parametrize("name", ["DOWNLOADER_MIDDLEWARES", "EXTENSIONS", "ITEM_PIPELINES", "SPIDER_MIDDLEWARES"])
def test_none_for_a_part_is_said_as_false(name: str) -> None:
    table = read({name: {"a.B": None, Pipeline: None, "c.D": 5}})
    path = f"{Pipeline.__module__}.Pipeline"
    assert table == {name: {"a.B": False, path: False, "c.D": 5}}
    assert load(Layer("x", table))[name] == {"a.B": None, path: None, "c.D": 5}


def test_none_for_a_middleware_that_a_setting_stands_for_sets_that() -> None:
    robots = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
    table = read({"DOWNLOADER_MIDDLEWARES": {robots: None, "c.D": 5}})
    assert table == {"ROBOTSTXT_OBEY": False, "DOWNLOADER_MIDDLEWARES": {"c.D": 5}}
    both = read({"DOWNLOADER_MIDDLEWARES": {robots: None}, "ROBOTSTXT_OBEY": True})
    assert both == {"DOWNLOADER_MIDDLEWARES": {}, "ROBOTSTXT_OBEY": False}  # which nothing reads then, as in Scrapy
    assert load(Layer("x", {"DOWNLOADER_MIDDLEWARES": {robots: False}}))["ROBOTSTXT_OBEY"] is False


def test_a_key_of_a_feed_that_only_scrapy_has_is_a_comment_and_the_feed_stays() -> None:
    feed = {"format": "json", "postprocessing": ["a.Gzip"], "item_export_kwargs": {"delimiter": ";"}}
    values: dict[str, object] = {"FEEDS": {"a.json": feed}}
    assert read(values) == {"FEEDS": {"a.json": {"format": "json", "item_export_kwargs": {"delimiter": ";"}}}}
    load(Layer("x", read(values)))
    said = to_toml(values)
    assert "# FEEDS: a.json, postprocessing = ['a.Gzip'] is left out: a path that ends in .gz" in said


def test_what_does_not_fit_or_toml_can_not_say_is_a_comment() -> None:
    values: dict[str, object] = {"DOWNLOAD_DELAY": "fast", "ODD": object(), "RETRY_TIMES": 1}
    assert read(values) == {"RETRY_TIMES": 1, "own": {}}
    text = to_toml(values)
    assert "# DOWNLOAD_DELAY = 'fast'\n# is left out: DOWNLOAD_DELAY must be a number" in text
    assert "# is left out: TOML can't express object" in text


def test_a_default_that_is_not_scrapys_is_told_where_nothing_sets_it() -> None:
    assert "# DOWNLOAD_DELAY is 1.0 by default; Scrapy's is 0\n" in to_toml({})
    assert "# ROBOTSTXT_OBEY is true by default; Scrapy's is false\n" in to_toml({})
    fast = to_toml({"DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "ROBOTSTXT_OBEY": True})
    assert [line for line in fast.splitlines() if "Scrapy's is" in line] == [
        "# DOWNLOAD_VERIFY_CERTIFICATES is true by default; Scrapy's is false",
        "# DOWNLOAD_DELAY_PER_SLOT is 1.0 by default; Scrapy's is 0",
    ]
    assert "PER_SLOT" not in to_toml({"DOWNLOAD_DELAY": 2})


def test_what_may_be_a_secret_says_where_else_it_may_be() -> None:
    said = to_toml({"SHOP_API_KEY": "abc", "SHOP_NAME": "abc"})
    assert said.count("# a secret? TRAWL_SHOP_API_KEY in the environment") == 1
    assert "TRAWL_SHOP_NAME" not in said


def test_what_has_no_import_path_is_a_comment_with_its_line_and_what_to_write(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import re, functools, json\nRETRY_PREDICATE = lambda request, error: True\nMINE = {'a': lambda x: x}\n"
        "PATTERN = re.compile('a')\nPART = functools.partial(int, 2)\n\nDUMPS = json.dumps\n"
    )
    (tmp_path / "settings.py").write_text(text, "utf-8")
    assert main(["settings", "--move", str(tmp_path / "settings.py")]) == 0
    said = capfd.readouterr().out
    table = tomllib.loads(said)["tool"]["trawl"]
    assert table == {"SCRAPY_COMPAT": True, "own": {"DUMPS": "json.dumps"}}
    comments = [line for line in said.splitlines() if line.startswith("# is left out")]
    write = "it has no import path; define it in a module, and write its import path here"
    assert comments == [
        f"# is left out (line 2): {write}",
        f"# is left out (line 3): {write}",
        "# is left out (line 4): TOML can't express Pattern; set it in custom_settings or update_settings()",
        "# is left out (line 5): TOML can't express partial; set it in custom_settings or update_settings()",
    ]


def test_a_class_is_written_as_its_path() -> None:
    table = read({"ITEM_PIPELINES": {Pipeline: 1}})
    assert table == {"ITEM_PIPELINES": {f"{__name__}.Pipeline": 1}}


def test_the_command_prints_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "settings.py"
    path.write_text("import os\nfrom pathlib import Path\nDOWNLOAD_DELAY = 2\n_x = 1\nMINE = str(3)\n", "utf-8")
    assert main(["settings", "--move", str(path)]) == 0
    said = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("#")]
    assert said == ["[tool.trawl]", "SCRAPY_COMPAT = true", "DOWNLOAD_DELAY = 2", "", "[tool.trawl.own]", 'MINE = "3"']
    path.write_text("", "utf-8")
    assert main(["settings", "--move", str(path)]) == 0
    assert capfd.readouterr().out.startswith("[tool.trawl]\nSCRAPY_COMPAT = true\n")
    path.write_text("x = 1 / 0\n", "utf-8")
    assert main(["settings", "--move", str(path)]) == 1
    assert capfd.readouterr().err == "trawl: settings.py, line 1: ZeroDivisionError: division by zero\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Scrapy project with one spider."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n", "utf-8")
    (tmp_path / "shop" / "settings.py").write_text("DOWNLOAD_DELAY = 2\n", "utf-8")
    head = "import trawl\nclass One(trawl.Spider):\n    name = 'one'\n    start_urls = ['http://a.example/']\n"
    spider = head + "    def parse(self, response):\n        yield {'url': response.url}\n"
    (tmp_path / "shop" / "only_one.py").write_text(spider, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def web() -> SimulatedWeb:
    """What the project's spider crawls."""
    web = SimulatedWeb()
    web.add_page("http://a.example/")
    return web


def test_a_project_whose_settings_were_not_moved_is_told_so(
    project: Path, web: SimulatedWeb, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["crawl", "shop/only_one.py", "--quiet", *QUICK], crawl_with=crawl_on(web)) == 0
    assert "shop/settings.py is not read; " in (said := capfd.readouterr().err)
    assert "`trawl move . --write` converts them" in said
    (project / "pyproject.toml").write_text("[tool.trawl]\nDOWNLOAD_DELAY = 2\n", "utf-8")
    assert main(["crawl", "shop/only_one.py", "--quiet", *QUICK], crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("config", ["[settings]\ndefault = other.settings\n", "[deploy]\n", "settings\n"])
def test_one_that_has_no_settings_file_is_left_alone(
    project: Path, web: SimulatedWeb, config: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "scrapy.cfg").write_text(config, "utf-8")
    assert main(["crawl", "shop/only_one.py", "--quiet", *QUICK], crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr().err == ""


def test_a_path_instead_of_a_module_and_an_unreadable_file_are_no_settings(
    project: Path, web: SimulatedWeb, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "settings"
    elsewhere.with_suffix(".py").touch()
    (project / "scrapy.cfg").write_text(f"[settings]\ndefault = {elsewhere}\n", "utf-8")
    (project / "shop" / "settings.py").chmod(0)
    assert main(["crawl", "shop/only_one.py", "--quiet", *QUICK], crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("values", "feeds"),
    [
        ({"FEED_URI": "a.csv", "FEED_FORMAT": "csv"}, {"a.csv": {"format": "csv"}}),
        ({"FEED_URI": Path("a.x")}, {"a.x": {"format": "jsonlines"}}),
        (
            {"FEED_URI": "a.x", "FEEDS": {"b.xml": {"format": "xml"}}},
            {"a.x": {"format": "jsonlines"}, "b.xml": {"format": "xml"}},
        ),
        ({"FEED_URI": None, "FEED_FORMAT": "csv"}, None),
    ],
)
def test_the_feed_of_old_settings_is_a_feed_after_the_move_too(values: dict[str, object], feeds: object) -> None:
    for each in (values, read(values)):
        loaded = load(Layer("x", {"SCRAPY_COMPAT": True, **each}))
        assert {path: {"format": feed["format"]} for path, feed in loaded["FEEDS"].items()} == (feeds or {})
