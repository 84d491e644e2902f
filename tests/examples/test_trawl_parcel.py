"""examples/plugin/trawl_parcel.py, installed as pip would, and used by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trawl
from tests.cli.simulated import QUICK, crawl_on
from tests.examples.installed import install, install_parcel
from trawl.cli import main
from trawl.errors import FeedError, SettingsError
from trawl.plugins import load_plugin, plugin_names
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate


class Pages(trawl.Spider):
    name = "pages"
    start_urls = ("http://a.example/",)

    def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
        yield {"url": response.url, "asked": response.text}


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: SimulatedResponse(body=str(request.headers.get("X-Parcel")), headers={}),
    )
    return web


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    install_parcel(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    sys.modules.pop("trawl_parcel", None)


@pytest.mark.usefixtures("site")
def test_its_parts_are_found_by_name_and_do_their_work(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "DOWNLOADER_MIDDLEWARES": {"parcel": 450},
        "FRONTIER": "counting",
        "FEEDS": {"seen.urls": {"overwrite": True}},
        "WATCHERS": {"tally": 0},
    }
    assert "trawl_parcel" not in sys.modules
    sim = simulate(Pages, a_web(), settings)
    assert sim.items == [{"url": "http://a.example/", "asked": "1"}]
    assert (tmp_path / "seen.urls").read_text("utf-8") == "http://a.example/\n"
    assert sim.stats["parcel/200"] == 1


@pytest.mark.usefixtures("site")
def test_its_word_is_one_of_trawls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "From other packages:\n  parcel" in capsys.readouterr().out
    assert "trawl_parcel" not in sys.modules
    assert main(["parcel", "--name", "me"]) == 0
    assert capsys.readouterr().out == "a middleware, a format, a frontier, a watcher and a word, for me\n"


@pytest.mark.usefixtures("site")
def test_the_command_takes_its_format(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pages.py").write_text(
        "import trawl\nclass Pages(trawl.Spider):\n    name = 'pages'\n    start_urls = ['http://a.example/']\n"
        "    def parse(self, response):\n        return {'url': response.url}\n",
        "utf-8",
    )
    words = ["crawl", "pages.py", "-O", "-:urls", "--quiet", *QUICK]
    assert main(words, crawl_with=crawl_on(a_web())) == 0
    assert capfd.readouterr().out == "http://a.example/\n"


@pytest.mark.usefixtures("site")
def test_a_name_that_nobody_declares_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"has a trawl\.frontiers named 'redis': there is counting"):
        simulate(Pages, a_web(), {"FRONTIER": "redis"})
    with pytest.raises(SettingsError, match=r"use one of .*retry.*parcel"):
        simulate(Pages, a_web(), {"DOWNLOADER_MIDDLEWARES": {"parcle": 1}})
    with pytest.raises(FeedError, match="did you mean 'urls'"):
        simulate(Pages, a_web(), {"FEEDS": {"a.x": {"format": "url"}}})


def test_what_can_not_be_loaded_names_its_package(site: Path) -> None:
    install(site, "broken-parcel", {"trawl.watchers": {"broken": "no_such_module:it"}})
    with pytest.raises(SettingsError, match="of the package broken-parcel can't be loaded: ModuleNotFoundError"):
        load_plugin("trawl.watchers", "broken")


def test_two_packages_with_one_name_are_told_apart_by_nobody(site: Path) -> None:
    install(site, "other-parcel", {"trawl.watchers": {"tally": "other:tally"}})
    assert plugin_names("trawl.watchers") == ["tally"]
    with pytest.raises(SettingsError, match="other-parcel and trawl-parcel both have"):
        load_plugin("trawl.watchers", "tally")


@pytest.mark.parametrize(
    ("frontier", "said"),
    [("no.such", "can't be imported"), (3, "must be a function"), (dict, "which is not a frontier")],
)
def test_what_is_no_frontier_is_refused(frontier: object, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        simulate(Pages, a_web(), {"FRONTIER": frontier})


def test_a_job_has_a_frontier_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be used with JOB_DIR"):
        simulate(Pages, a_web(), {"FRONTIER": "counting", "JOB_DIR": str(tmp_path / "job")})
