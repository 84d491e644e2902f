from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.simulated import crawl_on
from trawl.cli import main
from trawl.testing import SimulatedWeb


def test_python_m_trawl_is_the_command() -> None:
    # A process of its own: pytest's import hook, which loads what brings a plugin, knows no runpy.
    done = subprocess.run([sys.executable, "-m", "trawl", "version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trawl 0.")


def test_a_reader_of_standard_error_that_leaves_changes_no_exit_status(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(
        "import trawl\n\nclass Nothing(trawl.Spider):\n    name = 'nothing'\n    start_urls = []\n"
    )
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "trawl", "crawl", "nothing.py"]
    try:
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=write, check=False, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stdout) == (0, "")


def test_python_m_trawl_takes_no_module_of_the_working_directory_for_an_installed_one(tmp_path: Path) -> None:
    for name in ("typer", "resource", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')\n")
    command = [sys.executable, "-m", "trawl", "version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_standard_streams_do_no_harm_and_give_no_file_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["version"]) == 0
    assert main(["job", "none"]) == 2
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        stream.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("words", [["version"], ["list", "."], ["settings"], ["--help"]])
def test_a_full_standard_output_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text("import trawl\nclass One(trawl.Spider):\n    name = 'one'\n")
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words) == 1
        assert capsys.readouterr().err == "trawl: standard output can't be written: No space left on device\n"
        sys.stdout.close()
        with suppress(OSError):
            full.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_fetched_page_on_a_full_standard_output_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    web = SimulatedWeb()
    web.add_page("http://a.example/", body="<p>hello")
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["fetch", "http://a.example/"], crawl_with=crawl_on(web)) == 1
        assert capsys.readouterr().err == "trawl: standard output can't be written: No space left on device\n"
        sys.stdout.close()
        with suppress(OSError):
            full.close()


def test_another_error_of_the_system_is_not_taken_for_one_of_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "a/file")

    monkeypatch.setattr("trawl.cli.show_overview", fail)
    with pytest.raises(OSError, match="a/file"):
        main(["--help"])
