"""Which project's settings count: those nearest to the spider's file, from whatever folder it is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.simulated import FOLLOWER, QUICK, crawl_on
from trawl.cli import main
from trawl.http import Request
from trawl.testing import SimulatedResponse, SimulatedWeb

PROJECT = "[tool.trawl]\nUSER_AGENT = 'books/1'\n"


@pytest.fixture
def spider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A spider in a project, with the working directory elsewhere."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "books" / "spiders").mkdir(parents=True)
    (tmp_path / "books" / "pyproject.toml").write_text(PROJECT, "utf-8")
    file = tmp_path / "books" / "spiders" / "books.py"
    file.write_text(FOLLOWER, "utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return file


def agents_of(spider: Path, *words: str) -> set[str | None]:
    """What a crawl of the spider calls itself."""
    web = SimulatedWeb()
    seen: set[str | None] = set()

    def answer(request: Request) -> SimulatedResponse:
        seen.add(request.headers.get("User-Agent"))
        return SimulatedResponse()

    web.add_host("a.example", handler=answer)
    main(["crawl", str(spider), *words, *QUICK], crawl_with=crawl_on(web))
    return seen


def test_a_spider_run_from_another_folder_has_its_projects_settings(
    spider: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert agents_of(spider) == {"books/1"}
    said = f"INFO: settings come from {spider.parents[1] / 'pyproject.toml'}, the nearest to the spider\n"
    assert capfd.readouterr().err.count(said) == 1
    assert agents_of(Path("../books/spiders/books.py"), "-q") == {"books/1"}


def test_of_two_projects_the_spiders_counts_and_the_other_is_named(
    spider: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("pyproject.toml").write_text("[tool.trawl]\nUSER_AGENT = 'here/1'\n", "utf-8")
    assert agents_of(spider, "-q") == {"books/1"}
    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert f"{Path.cwd() / 'pyproject.toml'}, nearest to the working directory, is not used" in warnings[0]


def test_a_spider_without_a_project_has_the_settings_of_the_working_directory(spider: Path) -> None:
    (spider.parents[1] / "pyproject.toml").write_text("[project]\nname = 'books'\n", "utf-8")
    Path("pyproject.toml").write_text("[tool.trawl]\nUSER_AGENT = 'here/1'\n", "utf-8")
    assert agents_of(spider) == {"here/1"}


def test_nothing_is_said_where_there_is_one_project(
    spider: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(spider.parent)
    assert agents_of(Path("books.py")) == {"books/1"}
    assert "settings come from" not in capfd.readouterr().err


@pytest.mark.parametrize("words", [["check"], ["settings", "--get", "USER_AGENT"], ["parse", "http://a.example/"]])
def test_every_word_of_the_command_reads_the_same_project(
    spider: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (spider.parents[1] / "pyproject.toml").write_text("[tool.trawl]\nDOWNLOAD_DELEY = 1\n", "utf-8")
    named = ["--spider", str(spider)] if words[0] == "parse" else [str(spider)]
    assert main([*words, *named]) in (1, 2)
    captured = capfd.readouterr()
    assert "did you mean DOWNLOAD_DELAY?" in captured.out + captured.err


def test_what_lies_beside_the_projects_pyproject_toml_can_be_imported(spider: Path) -> None:
    (spider.parents[1] / "beside_it.py").write_text("AGENT = 'beside/1'\n", "utf-8")
    spider.write_text(f"import beside_it\n{FOLLOWER}    user_agent = beside_it.AGENT\n", "utf-8")
    (spider.parents[1] / "pyproject.toml").write_text("[tool.trawl]\n", "utf-8")
    assert agents_of(spider) == {"beside/1"}


def test_a_program_run_from_another_folder_has_its_projects_settings(spider: Path) -> None:
    program = f"{FOLLOWER}\nif __name__ == '__main__':\n    trawl.run(Pages)\n"
    spider.write_text(program, "utf-8")
    (spider.parents[1] / "pyproject.toml").write_text("[tool.trawl]\nDOWNLOAD_DELEY = 1\n", "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(spider)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "did you mean DOWNLOAD_DELAY?" in done.stderr
