"""What the user's own code raises while a part of a crawl is made is told with the user's own lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.errors import IgnoreRequest, WrittenForScrapy
from trawl.middleware.factory import make_instance
from trawl.testing import SimulatedWeb
from trawl.tracebacks import check_part_imports, describe_error, user_code, user_frames, user_place, user_traceback

SPIDER = """
import trawl

class One(trawl.Spider):
    name = "one"
    start_urls = ["http://a.example/"]
    custom_settings = {"%s": %r}

    def parse(self, response):
        yield {"a": 1}
"""
PARTS = """
class Failing:
    @classmethod
    def from_crawler(cls, crawler):
        return cls({})

    def __init__(self, options):
        self.wanted = options["wanted"]

    def process_item(self, item, spider):
        return item

    process_request = process_spider_output = process_item
"""


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def crawl(setting: str, value: object) -> int:
    Path("one.py").write_text(SPIDER % (setting, value), "utf-8")
    web = SimulatedWeb()
    web.add_page("http://a.example/", body="x")
    return main(["crawl", "one.py", "--quiet", *QUICK], crawl_with=crawl_on(web))


@pytest.mark.parametrize("setting", ["ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "WATCHERS"])
def test_a_part_whose_own_code_fails_is_named_after_the_lines_that_lead_there(
    setting: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("myparts.py").write_text(PARTS, "utf-8")
    assert crawl(setting, {"myparts.Failing": 1}) == 1
    lines = capfd.readouterr().err.splitlines()
    files = [line.split(", line ")[0].rpartition("/")[2] for line in lines if line.startswith("  File ")]
    assert files == ['myparts.py"', 'myparts.py"']
    where = "myparts.py, line 8: KeyError: 'wanted'"
    assert lines[-1] == f"trawl: {setting}: myparts.Failing can't be made: {where}"


@pytest.mark.parametrize("setting", ["ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "WATCHERS"])
def test_a_part_whose_module_fails_is_told_with_the_line(setting: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("mybroken.py").write_text("\n\nundefined\n", "utf-8")
    assert crawl(setting, {"mybroken.Part": 1}) == 1
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"trawl: {setting}")
    assert said.endswith("can't be imported: mybroken.py, line 3: NameError: name 'undefined' is not defined\n")


@pytest.mark.parametrize("setting", ["ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "WATCHERS"])
def test_a_part_that_imports_scrapy_is_told_what_to_write(setting: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("myold.py").write_text("from scrapy.exceptions import DropItem\nclass Part: pass\n", "utf-8")
    assert crawl(setting, {"myold.Part": 1}) == 2
    assert 'to "from trawl.exceptions import DropItem"' in capfd.readouterr().err


def test_a_class_that_can_not_be_made_so_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    Path("myneeding.py").write_text("class Part:\n    def __init__(self, what): pass\n", "utf-8")
    assert crawl("ITEM_PIPELINES", {"myneeding.Part": 1}) == 2
    assert "myneeding.Part can't be made: " in capfd.readouterr().err


def test_the_lines_of_python_and_of_libraries_are_not_the_users() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert [frame.filename for frame in user_frames(caught.value)] == [__file__]
    assert user_place(caught.value).startswith("test_frames.py, line ")
    assert user_place(ValueError()) == ""
    assert (describe_error(KeyError("a")), describe_error(ValueError())) == ("KeyError: 'a'", "ValueError")


def test_errors_of_trawls_pass_as_they_are() -> None:
    with pytest.raises(IgnoreRequest, match="mine"), user_code("x"):
        raise IgnoreRequest("mine")


def test_with_scrapy_installed_a_part_that_imports_it_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    Path("scrapy.py").write_text("class DropItem(Exception): pass\n", "utf-8")
    Path("mymixed.py").write_text("from scrapy import DropItem\nclass Part: pass\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from mymixed import Part  # type: ignore[import-not-found]

    check_part_imports(Part, "ITEM_PIPELINES: mymixed.Part")
    assert 'mymixed.py is written for Scrapy: line 1: change "from scrapy import DropItem"' in caplog.text


def test_with_twisted_installed_a_part_that_imports_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "twisted" / "enterprise").mkdir(parents=True)
    (tmp_path / "twisted" / "enterprise" / "__init__.py").write_text("adbapi = None\n", "utf-8")
    (tmp_path / "mytwisted.py").write_text(
        "\nfrom twisted.enterprise import adbapi\nclass Part:\n    pool = adbapi\n", "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WrittenForScrapy, match=r"ITEM_PIPELINES: mytwisted\.Part: mytwisted\.py .* line 2: ") as raised:
        make_instance("mytwisted.Part", "ITEM_PIPELINES", None)
    assert "await trio.to_thread.run_sync(function, *arguments)" in str(raised.value)
    assert raised.value.places[0][:2] == (str(tmp_path / "mytwisted.py"), 2)


def test_a_spider_whose_update_settings_fails_is_told_with_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    method = "    @classmethod\n    def update_settings(cls, settings):\n        cls.nothing\n"
    Path("mine.py").write_text(f"import trawl\nclass One(trawl.Spider):\n    name = 'one'\n{method}", "utf-8")
    assert main(["crawl", "mine.py"]) == 1
    said = "trawl: update_settings() of One failed: mine.py, line 6: AttributeError: "
    assert capfd.readouterr().err.startswith(said)


def test_a_pipeline_that_can_not_be_opened_is_told_with_the_users_lines_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    parts = "class Part:\n    def open_spider(self, spider):\n        self.connect()\n\n"
    Path("mydb.py").write_text(f"{parts}    def connect(self):\n        raise OSError('no database')\n", "utf-8")
    assert crawl("ITEM_PIPELINES", {"mydb.Part": 1}) == 1
    said = capfd.readouterr().err
    files = [line.split('"')[1].rpartition("/")[2] for line in said.splitlines() if line.startswith("  File")]
    assert files == ["simulated.py", "mydb.py", "mydb.py"]  # the first is the test's, in the place of the network
    assert said.endswith("OSError: no database\nin open_spider of the item pipeline Part\n")
    main(["crawl", "one.py", "--log-level", "DEBUG", *QUICK])
    assert "trawl/cli/crawl.py" in capfd.readouterr().err


def test_without_lines_of_the_users_a_traceback_is_whole() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    whole = caught.value.__traceback__
    assert whole is not None
    caught.value.__traceback__ = whole.tb_next  # without this file
    assert user_traceback(caught.value) is whole.tb_next
