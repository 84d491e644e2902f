"""Mistakes of a beginner on the command line, each with one sentence that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.testing import SimulatedWeb


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "HTTPS://a.example", "www.a.example/list"])
@pytest.mark.parametrize("command", [["crawl"], ["check"], ["simulate", "--web", "web.toml"]])
def test_a_url_in_place_of_a_spider_is_told(url: str, command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Path("web.toml").write_text('[hosts."a.example"]\n', "utf-8")
    assert main([*command, url]) == 2
    said = "".join(capfd.readouterr())
    assert f"{url!r} is a URL; crawl takes a spider. To look at a page: trawl fetch URL or trawl shell URL" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("name = 5", "S.name must be a string, not 5"),
        ("name = ['s']", "S.name must be a string, not ['s']"),
        ("name = 's'; start_urls = 5", "s: start_urls must be a list of URLs, not 5"),
        ("name = 's'; start_urls = 'http://a.example/'", "s: start_urls must be a list of URLs, not a string"),
        ("name = 's'; allowed_domains = 5", "s: allowed_domains must be a list of domains, not 5"),
        ("name = 's'; custom_settings = ['x']", "custom_settings must be a mapping, not list"),
    ],
)
def test_an_attribute_of_the_wrong_type_is_told(body: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("mistaken.py").write_text(f"import trawl\nclass S(trawl.Spider):\n    {body}\n", "utf-8")
    assert main(["crawl", "mistaken.py"], crawl_with=crawl_on(SimulatedWeb())) == 2
    assert words in capfd.readouterr().err
    assert main(["check", "mistaken.py"]) != 0


@pytest.mark.parametrize("arguments", [["-v"], ["-V"], ["--verbose"], ["crawl", "x.py", "-v"], ["crawl", "-vv"]])
def test_an_option_for_more_words_says_which_it_is(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    err = capfd.readouterr().err
    assert "`trawl version` shows the version, `trawl crawl SPIDER --log-level DEBUG` more messages" in err


SPIDER = """import trawl


class One(trawl.Spider):
    name = "one"
    start_urls = ["http://a.example/", "http://b.example/"]

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("command", ["job", "top", "export"])
def test_the_address_of_no_job_is_refused(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "https://me:HUSH@a.example/job"]) == 2
    err = capfd.readouterr().err
    assert err.endswith("must be a directory, or start with redis://, rediss://, redis+unix://; not https://\n")


@pytest.mark.usefixtures("virtual_clock")
def test_no_line_ends_with_blanks_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example", latency=3.0)
    Path("one.py").write_text(SPIDER, "utf-8")
    Path("web.toml").write_text('[hosts."a.example"]\n[hosts."b.example"]\n', "utf-8")
    main(["crawl", "one.py", *QUICK], crawl_with=crawl_on(web))
    main(["simulate", "one.py", "--web", "web.toml"])
    main(["settings", "one.py"])
    said = "".join(capfd.readouterr())
    assert "finished" in said
    assert re.findall(r".*[ \t]\n", said) == []


@pytest.mark.parametrize(
    "body",
    [
        "def check(self): exit()",
        "start_urls = property(lambda self: exit())",
        "def __init__(self): raise SystemExit(0)",
        "exit()",
    ],
)
def test_exit_before_the_crawl_is_an_error_with_its_line(body: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("exiting.py").write_text(f"import trawl\nclass S(trawl.Spider):\n    name = 's'\n    {body}\n", "utf-8")
    assert main(["crawl", "exiting.py"], crawl_with=crawl_on(SimulatedWeb())) == 1
    err = capfd.readouterr().err
    assert "exiting.py, line 4" in err
    assert "SystemExit" in err
