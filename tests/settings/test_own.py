"""Settings that a spider or a project declares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import trawl
from trawl.cli import main
from trawl.errors import SettingsError
from trawl.settings import Layer, assignments, load, of_environment, of_project, of_spider
from trawl.testing import SimulatedWeb, simulate


class Prices(trawl.Spider):
    name = "prices"
    start_urls = ("http://a.example/",)
    own_settings: ClassVar[Any] = {"CURRENCY": "EUR", "LIMIT": 1.5, "SKIP": [], "ANY": None}
    custom_settings: ClassVar[Any] = {"SKIP": ["a"]}

    def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[object]:
        yield {name: self.settings[name] for name in self.own_settings}


def test_they_are_read_like_all_others() -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=[])
    sim = simulate(Prices, web, {"LIMIT": 2, "ANY": {"x": 1}})
    assert sim.items == [{"CURRENCY": "EUR", "LIMIT": 2.0, "SKIP": ["a"], "ANY": {"x": 1}}]


def test_each_source_may_set_them_and_is_named() -> None:
    environment = of_environment({"TRAWL_LIMIT": "3", "TRAWL_CURRENCY": "5"})
    settings = load(environment, of_spider(Prices), assignments(["SKIP=b,c"]))
    assert (settings["LIMIT"], settings["CURRENCY"], settings["SKIP"]) == (3.0, "5", ["b", "c"])
    assert [settings.source(name) for name in ("LIMIT", "SKIP", "ANY")] == ["TRAWL_LIMIT", "-s", "default"]
    assert dict(settings.own) == {"CURRENCY": "5", "LIMIT": 3.0, "SKIP": ["b", "c"], "ANY": None}
    assert settings.getint("LIMIT") == 3


def test_a_project_declares_them_for_all_its_spiders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nDEPTH_LIMIT = 2\n[tool.trawl.own]\nAPI = 'a.example'\n")
    settings = load(of_project(tmp_path), assignments(["API=b.example"]))
    assert (settings["API"], settings["DEPTH_LIMIT"]) == ("b.example", 2)
    monkeypatch.chdir(tmp_path)
    assert main(["settings", "--get", "API"]) == 0
    assert main(["settings"]) == 0
    assert "API=a.example  # default" in capfd.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"CURENCY": "CHF"}, r"unknown setting CURENCY \(in test\); did you mean CURRENCY\?"),
        (
            {"COUNT_ENABLED": 1},
            r"did you mean LOG_ENABLED\? \(declare your own settings in own_settings of the spider, or in \[tool",
        ),
        ({"QQQQQQ": 1}, r"unknown setting QQQQQQ \(in test\); declare your own settings in own_settings"),
        ({"CURRENCY": 5}, r"CURRENCY must be a string, not 5 \(in test\)"),
        ({"SKIP": "a"}, "SKIP must be a list"),
    ],
)
def test_what_is_not_declared_or_does_not_fit_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(of_spider(Prices), Layer("test", given))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"DOWNLOAD_DELAY": 1}, "is a setting of trawl's; set it"),
        ({"BOT_NAME": "x"}, "is a setting of Scrapy's"),
        ({"currency": "x"}, "write it in upper case"),
        ({"A B": "x"}, "can't be the name"),
        (["CURRENCY"], "must be a mapping"),
    ],
)
def test_what_can_not_be_declared_is_refused(own: object, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(Layer("test", {}, own=own))


def test_check_knows_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "import trawl\nclass Own(trawl.Spider):\n    name = 'own'\n    own_settings = {'CURRENCY': 'EUR'}\n"
    (tmp_path / "own_prices.py").write_text(text + "    custom_settings = {'CURRENCY': 'CHF'}\n    parse = print\n")
    main(["check", str(tmp_path / "own_prices.py")])
    assert "CURRENCY" not in capfd.readouterr().out
