from __future__ import annotations

import io
import re
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
from rich.console import Console

from trawl.cli import main
from trawl.cli.settings import print_all, spelled
from trawl.settings import assignments, definitions, load


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_every_setting_is_printed_with_its_source(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nLOG_FILE = 'x'\n")
    monkeypatch.setenv("TRAWL_LOG_ENABLED", "false")
    assert main(["settings", "-s", "LOGSTATS_INTERVAL=5"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition("=")[0] for line in lines] == [definition.name for definition in definitions()]
    assert f"LOG_FILE=x  # {tmp_path / 'pyproject.toml'}" in lines
    assert "LOG_ENABLED=false  # TRAWL_LOG_ENABLED" in lines
    assert "LOGSTATS_INTERVAL=5.0  # -s" in lines
    assert "LOG_LEVEL=INFO  # default" in lines


def test_one_setting_is_printed_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--get", "LOGSTATS_INTERVAL"]) == 0
    assert capfd.readouterr() == ("60.0\n", "")


def test_an_unknown_setting_is_refused_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--get", "LOGSTATS_INTERVL"]) == 2
    assert capfd.readouterr() == ("", "trawl: unknown setting LOGSTATS_INTERVL; did you mean LOGSTATS_INTERVAL?\n")


def test_one_of_scrapys_says_what_takes_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--get", "BOT_NAME"]) == 2
    said = "trawl: BOT_NAME is Scrapy's and has no effect: there are no projects; USER_AGENT names the crawler\n"
    assert capfd.readouterr() == ("", said)
    assert main(["settings", "--get", "JOBDIR", "-s", "JOBDIR=a"]) == 0
    assert capfd.readouterr() == ("a\n", "")


def test_a_spiders_own_settings_are_counted_in(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spider = "import trawl.spiders\nclass One(trawl.spiders.Spider):\n    name = 'one'\n"
    (tmp_path / "myshown.py").write_text(f"{spider}    custom_settings = {{'LOG_FILE': 'y'}}\n")
    assert main(["settings", "myshown.py", "--get", "LOG_FILE"]) == 0
    assert capfd.readouterr().out == "y\n"
    assert main(["settings", "nowhere.py"]) == 2


def test_a_setting_in_the_place_of_a_spider_is_told_how_to_print_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "LOG_FILE"]) == 2
    assert capfd.readouterr().err == "trawl: LOG_FILE is a setting, not a spider: use `trawl settings --get LOG_FILE`\n"


SECRETS = {
    "JOB_DIR": "redis://me:se/cr@et@store.example/books",
    "ROTATING_PROXY_LIST": '["http://me:secret@one.example:3128", "http://two.example:3128"]',
    "HTTP_AUTH": '{"https://a.example": {"user": "me", "password": "se\\"cret"}, "b.example": {"token": "secret"}}',
    "DEFAULT_REQUEST_HEADERS": '{"Authorization": "Bearer secret", "Cookie": "sid=secret", "Accept": "*/*"}',
    "MEDIA_STORE_OPTIONS": '{"key": "k", "client_token": "secret"}',
}
SHOWN = {
    "JOB_DIR": "redis://me:***@store.example/books",
    "ROTATING_PROXY_LIST": '["http://me:***@one.example:3128","http://two.example:3128"]',
    "HTTP_AUTH": '{"https://a.example":{"user":"me","password":"***"},"b.example":{"token":"***"}}',
    "DEFAULT_REQUEST_HEADERS": '{"Authorization":"***","Cookie":"***","Accept":"*/*"}',
    "MEDIA_STORE_OPTIONS": '{"key":"k","client_token":"***"}',
}


def test_passwords_and_tokens_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    given = [word for name, value in SECRETS.items() for word in ("-s", f"{name}={value}")]
    assert main(["settings", *given]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line for name, value in SHOWN.items() if (line := f"{name}={value}  # -s") not in lines] == []
    for name, value in SHOWN.items():
        assert main(["settings", *given, "--get", name]) == 0
        assert capfd.readouterr().out == f"{value}\n"
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=140)
    print_all(load(assignments([f"{name}={value}" for name, value in SECRETS.items()])), console)
    assert isinstance(console.file, io.StringIO)
    assert not re.search("se.?cret", console.file.getvalue())


def test_of_ones_own_settings_the_name_tells_which_are_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spider = "import trawl\nclass One(trawl.Spider):\n    name = 'one'\n"
    own = "{'SIGNING_SECRET': 'hush', 'API_TOKEN': '', 'TOKENS': 3}"
    (tmp_path / "myown.py").write_text(f"{spider}    own_settings = {own}\n")
    assert main(["settings", "myown.py"]) == 0
    lines = [line.partition("  #")[0] for line in capfd.readouterr().out.splitlines()]
    assert {"SIGNING_SECRET=***", "API_TOKEN=", "TOKENS=3"} <= {*lines}


def test_a_terminal_gets_a_table_by_section() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=140)
    print_all(load(assignments(["LOG_FILE=x"])), console)
    assert isinstance(console.file, io.StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["LOG_FILE", "x", "-s"] in rows
    assert ["LOGSTATS_INTERVAL", "60.0", "s"] in rows
    assert ["Log", "and", "progress"] in rows


def test_values_are_spelled_as_s_takes_them() -> None:
    assert spelled("text") == "text"
    assert spelled(None) == "null"
    assert spelled((1, 2)) == "[1,2]"
    assert spelled({"a": OrderedDict}) == '{"a":"collections.OrderedDict"}'
    assert spelled([len]) == '["<built-in function len>"]'


def test_the_version_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capfd.readouterr().out.startswith("trawl 0.")
