"""The files under examples/deploy: systemd takes trawl.service, and Containerfile does what the README says."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.engine import EngineSettings
from trawl.engine.run import CLOSE_GRACE
from trawl.settings import assignments, load
from trawl.testing import SimulatedWeb

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples" / "deploy" / "trawl.service"
CONTAINER = ROOT / "examples" / "deploy" / "Containerfile"
CRONTAB = ROOT / "examples" / "deploy" / "crontab"
LOGROTATE = ROOT / "examples" / "deploy" / "logrotate"
MOST_CLOSING = 6
"""Steps of closing that may each take all of their time: pipelines, feeds, what was in flight, spider, wire, job."""


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions and what stands behind them."""
    lines = CONTAINER.read_text(encoding="utf-8").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line and not line.startswith("#")]


def test_the_unit_waits_as_long_as_a_drain_may_take_and_tells_the_exit_statuses_apart() -> None:
    service = unit()["Service"]
    longest = EngineSettings().shutdown_timeout + MOST_CLOSING * CLOSE_GRACE
    assert int(service["TimeoutStopSec"]) >= longest
    assert service["SuccessExitStatus"] == "130"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["Restart"] == "on-failure"


def test_what_the_unit_starts_is_a_crawl_of_an_example_with_settings_that_there_are() -> None:
    words = shlex.split(unit()["Service"]["ExecStart"])
    assert words[:2] == ["/opt/trawl/.venv/bin/trawl", "crawl"]
    assert (ROOT / Path(words[2]).relative_to("/opt/trawl")).is_file()
    load(assignments([words[at + 1] for at, word in enumerate(words) if word == "-s"]))


def test_a_good_night_of_the_crontab_prints_nothing_and_its_log_is_what_logrotate_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    *_, line = CRONTAB.read_text(encoding="utf-8").splitlines()
    assert "%" not in line  # cron ends the line there
    words = shlex.split(line.replace("||", " || ").replace("&&", " && "))
    folder = Path(words[words.index("cd") + 1])
    typed = words[words.index("crawl") : words.index("||")]
    spider = "import trawl\n\nclass Books(trawl.Spider):\n    name = 'books'\n    start_urls = ['http://a.example/']\n"
    (tmp_path / "books.py").write_text(f"{spider}    def parse(self, response):\n        yield {{'n': 1}}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    web = SimulatedWeb()
    web.add_host("a.example")
    assert main([*typed, *QUICK], crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr() == ("", "")
    log = typed[typed.index("--log-file") + 1]
    assert "1 items written as csv" in (tmp_path / log).read_text("utf-8")
    rotated = LOGROTATE.read_text(encoding="utf-8")
    assert f"\n{folder / log} {{" in rotated
    assert "copytruncate" not in rotated.partition("{")[2]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not here")
    path = tmp_path / "trawl-books.service"
    path.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/trawl/.venv/bin/trawl", "/bin/true"), "utf-8")
    done = subprocess.run([verify, "verify", "--man=no", path], capture_output=True, text=True, check=False)
    about_it = [line for line in done.stderr.splitlines() if path.name in line]
    assert about_it == []


def test_the_image_is_made_as_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"^```sh\n(.*?)^```$", readme, re.M | re.S)
    assert said is not None
    make, install, crawl = said[1].splitlines()
    runs = [text.replace(" --no-cache-dir", "") for name, text in instructions() if name == "RUN"]
    assert runs[:2] == [make, install]
    told = CONTAINER.read_text(encoding="utf-8").replace("/trawl/examples", "examples")
    assert crawl.removeprefix(".venv/bin/") in told


def test_the_crawl_is_the_first_process_of_its_container() -> None:
    given = dict(instructions())
    assert json.loads(given["ENTRYPOINT"]) == ["/trawl/.venv/bin/trawl"]  # a list: no shell before it
    assert json.loads(given["CMD"]) == ["--help"]
    assert given["STOPSIGNAL"] == "SIGTERM"
    assert given["USER"] == "crawler"
    assert given["WORKDIR"] == "/data"
