"""``trawl new``: what it writes runs as it is, and its tests pass."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.cli.new import SPIDERS, TESTS
from trawl.testing import SimulatedWeb

ROOT = Path(__file__).parents[2]


ODD = [
    ("quotes", "quotes.toscrape.com", "basic"),
    ("my quotes", "localhost:8000", "basic"),
    ("class", "http://[::1]:8000/a/about?x=1&y=2#z", "sitemap"),
    ("bücher-2", "münchen.example", "crawl"),
    ("1st", "127.0.0.1", "basic"),
    ("json", "JSON.example.", "basic"),
    ('a "b" $c', "shop.example:8443/sale", "crawl"),
]
"""Names and domains that a newcomer types, and that no Python file can have as they are."""


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_project_with_a_spider_of_each_kind_passes_its_own_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["new", "project", "my books"]) == 0
    assert "spiders/example.py" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "my books")
    for kind in SPIDERS:
        assert main(["new", "spider", f"a_{kind}", f"https://{kind}.example/x", "--template", kind]) == 0
    for name, domain, kind in ODD:
        assert main(["new", "spider", name, domain, "-t", kind]) == 0
    # A reader has pytest and no plugin of it, and is told of no option that is not known.
    alone = ["-p", "no:trio", "-W", "error::pytest.PytestConfigWarning"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *alone]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0, done.stdout
    assert f"{2 * (len(SPIDERS) + len(ODD) + 1)} passed" in done.stdout
    written = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    assert written["project"]["name"] == "my-books"
    # Either delay alone would hide the other when it is changed.
    assert {"DOWNLOAD_DELAY", "DOWNLOAD_DELAY_PER_SLOT"} <= written["tool"]["trawl"].keys()
    capsys.readouterr()
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len(SPIDERS) + len(ODD) + 1
    assert all(any(line.startswith(f"{name} ") for line in listed) for name, _, _ in ODD)
    assert main(["check", *(str(path) for path in Path("spiders").glob("[a-z]*.py"))]) == 0


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_first_spider_crawls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "project", "."]) == 0
    web = SimulatedWeb()
    web.add_page("https://example.com/", body="<title>Example</title>")
    capfd.readouterr()
    words = ["crawl", "spiders/example.py", "-O", "-:jsonl", "--quiet", *QUICK]
    assert main(words, crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr().out == '{"url":"https://example.com/","title":"Example"}\n'


def test_without_folders_for_them_spider_and_test_stand_side_by_side(tmp_path: Path) -> None:
    assert main(["new", "spider", "quotes", "quotes.toscrape.com"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quotes.py", "test_quotes.py"]
    assert "from quotes import QuotesSpider" in (tmp_path / "test_quotes.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("domain", "start"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("localhost", "http://localhost/"),
        ("https://localhost:8443/x", "https://localhost:8443/x"),
        ("localhost.example", "https://localhost.example/"),
    ],
)
def test_a_site_on_ones_own_machine_is_asked_without_tls(domain: str, start: str, tmp_path: Path) -> None:
    assert main(["new", "spider", "mine", domain]) == 0
    assert f'start_urls = ["{start}"]' in (tmp_path / "mine.py").read_text("utf-8")


def test_nothing_is_overwritten(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_quotes.py").write_text("mine", "utf-8")
    assert main(["new", "spider", "quotes", "a.example"]) == 2
    assert capfd.readouterr().err == "trawl: test_quotes.py exists already; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["test_quotes.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop/prices", "a.example"], "'shop/prices' is a path; give a name"),
        (["--", "--", "a.example"], "'--' can't name a spider"),
        (["quotes", "a b"], "is not a domain"),
        (["quotes", "ftp://a.example"], "is not a domain; give a host such as example.com"),
        (["quotes", "https://me:secret@a.example"], "is not a domain"),
        (["quotes", "a.example", "-t", "sitemp"], "did you mean sitemap"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], said: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["new", "spider", *words]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_each_kind_has_its_test() -> None:
    assert SPIDERS.keys() == TESTS.keys()
