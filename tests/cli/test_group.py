"""The help of the command: words in groups, examples under each, and nothing imported for it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trawl.cli import COMMANDS, OPTIONS, main, overview
from trawl.cli.app import app


def words_of(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*before, name), command
        if hasattr(command, "commands"):
            yield from words_of(command, *before, name)


WORDS = dict(words_of(get_command(app)))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_help_of_every_word_ends_in_examples(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    _, found, examples = capsys.readouterr().out.partition("\n  Examples:\n")
    assert found
    lines = examples.splitlines()
    assert lines
    for line in lines:
        parts = shlex.split(line.partition(">")[0])
        assert tuple(parts[: len(words) + 1]) == ("trawl", *words)


@pytest.mark.parametrize("words", [(), *WORDS], ids=" ".join)
def test_the_help_of_every_word_fits_a_terminal_of_80_columns_with_nothing_cut_off(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80
        assert not line.endswith("...") or "Usage:" in line
        assert "[[" not in line


def test_alone_it_lists_the_words_in_groups(capfd: pytest.CaptureFixture[str]) -> None:
    main([])
    captured = capfd.readouterr()
    lines = (captured.out or captured.err).splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Start:", "Crawl:", "Try out:", "About trawl:"]
    assert "  fetch       Fetch a URL as a crawl would, with robots.txt and throttling," in lines


@pytest.mark.parametrize(
    ("typed", "said", "where"),
    [
        ("fech", "No such command 'fech'. Did you mean 'fetch'?", "trawl"),
        ("xyzzy", "No such command 'xyzzy'", "trawl"),
        ("quotes.py -O a.csv", "No such command 'quotes.py'; use `trawl crawl quotes.py`", "trawl"),
        ("runspider a.py", "No such command 'runspider'; use `trawl crawl FILE.py`", "trawl"),
        ("startproject shop", "No such command 'startproject'; use `trawl new project DIR`", "trawl"),
        ("--nonsense", "No such option: --nonsense", "trawl"),
        ("crawl --nonsense", "No such option: --nonsense", "trawl crawl"),
        ("crawl a.py --quite", "No such option: --quite (Possible options: --quiet)", "trawl crawl"),
        ("crawl a.py -L INFO", "No such option: -L; use --log-level LEVEL", "trawl crawl"),
        ("crawl a.py --logfile=x", "No such option: --logfile; use --log-file FILE", "trawl crawl"),
        ("crawl a.py --output x", "No such option: --output; use -o FILE", "trawl crawl"),
        ("parse x --spider a.py -c b", "No such option: -c; use --callback NAME", "trawl parse"),
        ("crawl a.py -d 3", "No such option: -d", "trawl crawl"),  # what parse has in its place crawl has not
        ("--nolog crawl a.py", "No such option: --nolog; use --log-level CRITICAL", "trawl"),
        ("parse", "Missing argument 'URL'", "trawl parse"),
        ("version x", "Got unexpected extra argument(s) (x)", "trawl version"),
        ("crawl a.py --job", "Option '--job' requires an argument", "trawl crawl"),
        ("crawl a.py --quiet=1", "Option '--quiet' does not take a value", "trawl crawl"),
        ("parse http://a.example/", "Missing option '--spider'", "trawl parse"),
        ("new spider books", "Missing argument 'DOMAIN'", "trawl new spider"),
    ],
)
def test_what_was_typed_wrong_is_told_in_one_line_with_where_to_read_of_it(
    typed: str, said: str, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert capfd.readouterr() == ("", f"trawl: {said} (see '{where} --help')\n")


@pytest.mark.parametrize("depth", ["two", "0"])
def test_a_number_that_is_none_is_told_in_one_line_too(depth: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "x", "--spider", "a.py", "--depth", depth]) == 2
    told = capfd.readouterr().err
    assert re.fullmatch(r"trawl: Invalid value for '--depth': .+ \(see 'trawl parse --help'\)\n", told)  # typer's words


@pytest.mark.parametrize("typed", ["crawl a.py -s DELAY", "crawl a.py -a tag", "fetch x -s =1", "settings -s x"])
def test_an_assignment_without_its_parts_is_refused_by_its_name(typed: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    option, _, entry = typed.rpartition(" ")
    assert capfd.readouterr() == ("", f"trawl: {option[-2:]} takes NAME=VALUE, not {entry!r}\n")


def test_a_word_of_another_package_that_can_not_be_loaded_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    meta = tmp_path / "broken-0.1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n", "utf-8")
    (meta / "entry_points.txt").write_text("[trawl.commands]\nbreak = no_such_module:app\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["break"]) == 2
    assert capfd.readouterr().err.startswith("trawl: 'break' of the package broken can't be loaded: ModuleNotFound")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["--help", "crawl"]])
def test_the_overview_is_the_same_however_it_is_asked_for(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"{overview()}\n"


def test_the_overview_has_every_command_with_the_first_words_of_its_own_help() -> None:
    texts = {name: text for commands in COMMANDS.values() for name, text in commands.items()}
    helps = {name: " ".join(command.help.split()) for name, command in get_command(app).commands.items()}  # type: ignore[attr-defined]
    assert texts.keys() == helps.keys()
    for name, text in texts.items():
        assert re.split(r"[:;.] |[:.]$", helps[name], maxsplit=1)[0] == text


def test_the_overview_has_every_option_that_goes_before_a_command() -> None:
    command = get_command(app)
    context = command.make_context("trawl", ["version"], help_option_names=["-h", "--help"])
    known = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    assert list(OPTIONS.items()) == known


def test_the_overview_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = overview()
    monkeypatch.setenv("COLUMNS", "70")
    narrow = overview()
    assert max(map(len, wide.splitlines())) > 70 > max(map(len, narrow.splitlines()))
    assert narrow.split() == wide.split()


def test_the_overview_ends_in_the_commands_of_other_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = tmp_path / "other-0.1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0.1\n", "utf-8")
    (meta / "entry_points.txt").write_text("[trawl.commands]\ninspect-all = no_such_module:app\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "\nFrom other packages:\n  inspect-all\n\n  Examples:\n" in told
    assert "\n  job          Show the state of a job\n" in told  # all names are as wide as the longest


def test_the_overview_does_not_wait_for_typer() -> None:
    program = "import sys, trawl.cli; trawl.cli.main(['--help']); print('typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_overview_ends_without_a_word_when_its_reader_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "trawl", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_help_imports_no_part_of_a_crawl() -> None:
    program = (
        "import sys, trawl.cli; trawl.cli.main(['shell', '--help']); trawl.cli.main(['--help']);"
        " heavy = {'trio', 'httpx', 'lxml', 'msgspec', 'trawl._run'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_is_printed_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_TRAWL_COMPLETE" in capsys.readouterr().out


def test_completion_for_another_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "no completion for 'tcsh'" in capsys.readouterr().err


def test_a_shell_is_told_the_words_that_begin_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"_TRAWL_COMPLETE": "complete_bash", "COMP_WORDS": "trawl s", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert capsys.readouterr().out.split() == ["settings", "simulate", "shell"]
    assert os.environ["_TRAWL_COMPLETE"]
