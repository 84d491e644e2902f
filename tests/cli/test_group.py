"""The help of the command: words in groups, examples under each, and nothing imported for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from trawl.cli import app, main


def words_of(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*before, name), command
        if hasattr(command, "commands"):
            yield from words_of(command, *before, name)


WORDS = dict(words_of(get_command(app)))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_help_of_every_word_ends_in_examples_that_can_be_typed(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    _, found, examples = capsys.readouterr().out.partition("\n  Examples:\n")
    assert found
    lines = examples.splitlines()
    assert lines
    for line in lines:
        parts = shlex.split(line.partition(">")[0])
        assert tuple(parts[: len(words) + 1]) == ("trawl", *words)
        command, given = WORDS[words], parts[len(words) + 1 :]
        if hasattr(command, "commands"):
            continue
        with command.make_context(words[-1], given):  # refuses what it does not take
            pass


def test_alone_it_lists_the_words_in_groups(capfd: pytest.CaptureFixture[str]) -> None:
    main([])
    captured = capfd.readouterr()
    lines = (captured.out or captured.err).splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Begin:", "Crawl:", "Try out:", "About trawl:"]
    assert "  fetch       Fetch a URL as a crawl would, robots.txt and throttle included" in lines


def test_a_word_that_there_is_not_is_refused_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fech"]) == 2
    assert "Did you mean 'fetch'" in capfd.readouterr().err


def test_the_help_imports_no_part_of_a_crawl() -> None:
    program = (
        "import sys, trawl.cli; trawl.cli.main(['shell', '--help']); trawl.cli.main(['--help']);"
        " heavy = {'trio', 'httpx', 'lxml', 'msgspec', 'trawl.crawl'}; print(sorted(heavy & set(sys.modules)))"
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
