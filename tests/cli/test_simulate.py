"""The command ``trawl simulate``."""

from __future__ import annotations

import io
import math
import re
import sys
from pathlib import Path

import attrs
import pytest
from rich.console import Console

from tests.cli.simulated import FOLLOWER
from trawl.cli import main
from trawl.cli.simulate import comparison_table, fit_words, rates_table
from trawl.testing import RateLimit, Send, Simulation
from trawl.testing.warc import HostFit

WEB = """
[hosts."a.example"]
latency = 0.1
limit = { rate = 1, burst = 3 }
site = { pages = 5 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pages.py").write_text(FOLLOWER)
    (tmp_path / "web.toml").write_text(WEB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells(line: str) -> list[str]:
    return [cell for cell in line.strip().split("  ") if cell]


def test_it_tells_how_long_how_fast_and_what_limits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "DOWNLOAD_DELAY=2", "--set", "RANDOMIZE_DOWNLOAD_DELAY=false", "--set", "ROBOTSTXT_OBEY=false"]
    assert main(["simulate", "pages.py", "--web", "web.toml", *options, "--timeline"]) == 0
    output = capsys.readouterr().out
    assert "http://a.example/4" in output
    row = next(line for line in output.splitlines() if "finished" in line and "DOWNLOAD_DELAY=2" in line)
    assert [cell.strip() for cell in cells(row)[1:6]] == ["8.1 s", "5", "0.62/s", "5", "0"]
    assert "delay" in row
    scope = next(line for line in output.splitlines() if line.strip().startswith("a.example") and "/s" in line)
    assert "0.5/s" in scope


def test_groups_of_settings_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--set", "DOWNLOAD_DELAY={} DOWNLOAD_DELAY_PER_SLOT=0 ROBOTSTXT_OBEY=false"]
    options = [text.format(delay) for delay in (0, 2) for text in common]
    assert main(["simulate", "pages.py", "--web", "web.toml", *options, "--svg", "out.svg"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "finished" in line]
    assert [("DOWNLOAD_DELAY=0" in row, "backoff" in row) for row in rows] == [(True, True), (False, False)]
    assert sorted(path.name for path in folder.glob("*.svg")) == ["out-1.svg", "out-2.svg"]
    assert "DOWNLOAD_DELAY=2" in (folder / "out-2.svg").read_text()


@pytest.mark.parametrize(
    ("width", "titles", "reason"),
    [
        (150, ["settings", "429s", "no answer", "at once", "waited", "ended"], "finished"),
        (88, ["settings", "429s", "at once"], "finished"),
        (80, ["settings", "429s"], "finished"),
        (80, ["settings", "429s", "ended"], "timeout"),
    ],
)
def test_a_narrow_terminal_gets_whole_settings_and_fewer_columns(width: int, titles: list[str], reason: str) -> None:
    told = "RANDOMIZE_DOWNLOAD_DELAY=false DOWNLOAD_DELAY=2"
    row = {"settings": told, "time": "5.3 s", "sends": "11", "rate": "2.1/s", "items": "18", "429s": "0"}
    row |= {"no answer": "0", "at once": "1", "waited": "4.5 s for delay, 0.3 s for robots.txt", "ended": reason}
    console = Console(width=width, file=io.StringIO())
    console.print(comparison_table([row], width))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "RANDOMIZE_DOWNLOAD_DELAY=false" in console.file.getvalue()
    assert max(map(len, lines)) <= width
    all_titles = ["settings", "429s", "no answer", "at once", "waited", "ended"]
    assert [title for title in all_titles if f" {title} " in lines[1]] == titles


def test_what_settings_warn_of_is_told_once_for_all_groups(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAWL_TELNETCONSOLE_ENABLED", "1")
    groups = ["--set", "DOWNLOAD_DELAY=1", "--set", "DOWNLOAD_DELAY=2", "--set", "STATSMAILER_RCPTS=[]"]
    assert main(["simulate", "pages.py", "--web", "web.toml", *groups]) == 0
    said = capsys.readouterr().err
    assert said.count("TELNETCONSOLE_ENABLED (in TRAWL_TELNETCONSOLE_ENABLED) is Scrapy's and has no effect") == 1
    assert said.count("STATSMAILER_RCPTS (in --set) is Scrapy's and has no effect") == 1


def test_one_run_is_drawn_under_the_name_given(folder: Path) -> None:
    assert main(["simulate", "pages.py", "--web", "web.toml", "--svg", "out.svg"]) == 0
    assert (folder / "out.svg").read_text().startswith("<svg")


def test_the_rates_of_each_group_are_drawn(folder: Path) -> None:
    groups = ["--set", "DOWNLOAD_DELAY=1", "--set", "DOWNLOAD_DELAY=2"]
    assert main(["simulate", "pages.py", "--web", "web.toml", *groups, "--plot", "rates.svg"]) == 0
    assert sorted(path.name for path in folder.glob("*.svg")) == ["rates-1.svg", "rates-2.svg"]
    second = (folder / "rates-2.svg").read_text()
    assert "DOWNLOAD_DELAY=2" in second
    assert "the server&#x27;s limit" in second


def test_the_rates_are_drawn_as_png(folder: Path) -> None:
    assert main(["simulate", "pages.py", "--web", "web.toml", "--plot", "rates.png"]) == 0
    assert (folder / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_the_summary_shows_the_rate_of_each_scope_against_its_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "web.toml").write_text(WEB.replace("pages = 5", "pages = 40"))
    setting = 'THROTTLING_SCOPES={"a.example": {"delay": 0.5, "delay_per_slot": 0, "concurrency": 8}}'
    assert main(["simulate", "pages.py", "--web", "web.toml", "--set", setting]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(place for place, line in enumerate(lines) if "full bar" in line) + 2
    assert re.fullmatch(r" a\.example +█[▁▂▃▄▅▆▇█]+ +limit 1\.0/s *", lines[row])
    assert re.fullmatch(r" +![! ]*", lines[row + 1])


def test_a_terminal_without_block_characters_gets_other_bars() -> None:
    sends = [Send(time=at, finished=at, url="http://a/", host="a", scopes={"a": 1.0}) for at in (0.0, 0.1, 9.0, 10.0)]
    sim = Simulation(sends=tuple(sends), items=[], stats={}, reason="finished", elapsed=10.0)
    console = Console(file=io.StringIO(), width=60)
    console.print(rates_table(sim, 60, is_ascii=True))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "#" in printed
    assert not set("▁▂▃▄▅▆▇█") & set(printed)
    assert "!" not in printed


def test_only_the_busiest_of_many_scopes_are_in_the_summary() -> None:
    sends = [Send(time=0.0, finished=0.0, url="http://a/", host=f"{place}.example") for place in range(40)]
    sim = Simulation(sends=tuple(sends), items=[], stats={}, reason="finished", elapsed=10.0)
    table = rates_table(sim, 80)
    assert table is not None
    assert table.row_count == 16
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert "and 25 more" in console.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_sent_is_nothing_to_show() -> None:
    assert rates_table(Simulation(sends=(), items=[], stats={}, reason="finished", elapsed=0.0), 80) is None


@pytest.mark.parametrize("name", ["rates.png", "rates.jpg"])
def test_a_picture_that_can_not_be_made_is_refused_before_the_crawl(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    (folder / "pages.py").write_text("open('loaded', 'w')\n" + FOLLOWER)
    assert main(["simulate", "pages.py", "--web", "web.toml", "--plot", name]) == 2
    told = capsys.readouterr().err
    assert ("trawl-crawler[png]" if name.endswith("png") else "ends in .svg or .png") in told
    assert not (folder / "loaded").exists()
    assert not (folder / name).exists()


def test_no_feed_is_written(folder: Path) -> None:
    setting = 'FEEDS={"items.jsonl": {"format": "jsonl"}}'
    assert main(["simulate", "pages.py", "--web", "web.toml", "--set", setting]) == 0
    assert not (folder / "items.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["pages.py", "--web", "none.toml"], 2, "none.toml: can't be read"),
        (["none.py", "--web", "web.toml"], 2, "none.py: no such file"),
        (["pages.py", "--web", "web.toml", "--set", "DOWNLOAD_DELEY=1"], 2, "did you mean DOWNLOAD_DELAY"),
        (["pages.py", "--web", "web.toml", "--set", "DOWNLOAD_DELAY"], 2, "--set takes NAME=VALUE"),
        (["pages.py", "--web", "web.toml", "--svg", "none/out.svg"], 2, "can't write the picture"),
        (["pages.py", "--web", "web.toml", "--plot", "none/out.svg"], 2, "can't write the picture"),
        (["pages.py"], 2, "--web"),
    ],
)
def test_i03_what_is_wrong_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, told: str
) -> None:
    assert main(["simulate", *arguments]) == status
    errors = capsys.readouterr().err
    assert told in errors
    assert "Traceback" not in errors


def test_a_crawl_that_reaches_for_the_world_ends_with_status_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reaching = FOLLOWER.replace(
        "        yield {", "        import socket; socket.create_connection(('127.0.0.1', 9))\n        yield {"
    )
    (folder / "pages.py").write_text(reaching)
    assert main(["simulate", "pages.py", "--web", "web.toml"]) == 1
    errors = capsys.readouterr().err
    assert "would use a real DNS lookup (127.0.0.1)" in errors


def test_a_recording_is_simulated_with_other_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "web.toml").write_text(WEB.replace("pages = 5", "pages = 30"))
    run = ["simulate", "pages.py", "-s", "ROBOTSTXT_OBEY=false", "-s", "RANDOMIZE_DOWNLOAD_DELAY=false"]
    assert main([*run, "--web", "web.toml", "-s", "DOWNLOAD_DELAY=2", "-s", "WARC_FILE=crawl.warc.gz"]) == 0
    assert "recorded" not in capsys.readouterr().out
    assert main([*run, "--web", "crawl.warc.gz", "-s", "DOWNLOAD_DELAY=4"]) == 0
    output = capsys.readouterr().out
    assert "\nrecorded: 58 s and 0 refusals\n" in output
    assert "DOWNLOAD_DELAY=4: 1 min 56 s and 0 refusals\n" in output
    assert "\nfit of a.example: no limit seen; latency changes by 0% with the load\n" in output


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.warc.gz", None, "x.warc.gz: can't be read: No such file or directory"),
        ("x.warc", "hello", "x.warc is not a WARC file"),
        ("x.warc", "", "x.warc: no request was found in it"),
    ],
)
def test_a_recording_that_can_not_be_read_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (folder / name).write_text(content)
    assert main(["simulate", "pages.py", "--web", name]) == 2
    error = capsys.readouterr().err
    assert words in " ".join(error.split())
    assert len(error.splitlines()) == 1


def test_the_words_of_a_fit_say_what_is_not_sure() -> None:
    fit = HostFit(
        host="a.example",
        sends=1000,
        refusals=40,
        limit=RateLimit(2, 5),
        rates=(1.5, 2.5),
        misjudged=3,
        left_out=7,
        drift=0.042,
    )
    assert fit_words(fit) == (
        "fit of a.example: limit 1.5/s to 2.5/s, 5 at once; explains all but 3 of 1,000 responses; latency changes by "
        "4% with the load; 7 earlier responses of the same requests not replayed"
    )
    assert "limit 1.5/s or more, 5 at once" in fit_words(attrs.evolve(fit, rates=(1.5, math.inf)))
    assert "no limit, 40 refusals" in fit_words(attrs.evolve(fit, limit=None))


URLS = "# pages\n\n" + "".join(f"http://a.example/{number}\n" for number in range(10)) + "http://b.example/\n"


def test_a_plan_says_when_each_host_ends_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "urls.txt").write_text(URLS)
    exact = ["-s", "RANDOMIZE_DOWNLOAD_DELAY=false ROBOTSTXT_OBEY=false"]
    slower = ["-s", "RANDOMIZE_DOWNLOAD_DELAY=false ROBOTSTXT_OBEY=false DOWNLOAD_DELAY=60"]
    assert main(["plan", "pages.py", "--urls", "urls.txt", *exact, *slower]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [cells(line) for line in lines if line.startswith(" a.example") or line.startswith(" b.example")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["a.example", "10", "9.5 s", "delay"],
        ["b.example", "1", "0.5 s"],
        ["a.example", "10", "9 min", "delay"],
        ["b.example", "1", "0.5 s"],
    ]
    assert lines[-1].endswith("DOWNLOAD_DELAY=60: 11 requests end in 9 min, last a.example (delay)")


def test_a_plan_shows_the_effect_of_a_setting(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "urls.txt").write_text(URLS)
    assert main(["plan", "pages.py", "--urls", "urls.txt", "-s", "DOWNLOAD_DELAY=60"]) == 0
    output = capsys.readouterr().out
    assert "unchanged: 11 requests end in" in output
    assert "DOWNLOAD_DELAY=60: 11 requests end in" in output


def test_a_plan_says_if_a_setting_ends_the_crawl_early(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "urls.txt").write_text(f"\ufeff{URLS}", "utf-8")
    exact = ["-s", "RANDOMIZE_DOWNLOAD_DELAY=false ROBOTSTXT_OBEY=false CLOSESPIDER_PAGECOUNT=3"]
    assert main(["plan", "pages.py", "--urls", "urls.txt", *exact, *exact]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1].endswith(": ends with closespider_pagecount in 1.5 s, after 3 sends")
    )


def test_a_plan_runs_no_watcher(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "urls.txt").write_text(URLS)
    assert main(["plan", "pages.py", "--urls", "urls.txt", "-s", 'WATCHERS={"os.getcwd": 0}']) == 0
    assert "11 requests end in" in capsys.readouterr().out


def test_a_plan_of_a_job_covers_its_pending_requests(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = FOLLOWER.replace('["http://a.example/"]', "[f'http://a.example/{n}' for n in range(30)]")
    (folder / "pages.py").write_text(start)
    stop = ["-s", "JOB_DIR=job", "-s", "CLOSESPIDER_PAGECOUNT=10", "-s", "ROBOTSTXT_OBEY=false"]
    (folder / "web.toml").write_text('[hosts."a.example"]\nlatency = 0.1')
    assert main(["simulate", "pages.py", "--web", "web.toml", *stop]) in {0, 3}
    capsys.readouterr()
    before = sorted(path.stat().st_mtime_ns for path in (folder / "job").iterdir())
    assert main(["plan", "pages.py", "--job", "job", "--web", "web.toml", "-s", "ROBOTSTXT_OBEY=false"]) == 0
    assert "unchanged: 20 requests end in" in capsys.readouterr().out
    assert sorted(path.stat().st_mtime_ns for path in (folder / "job").iterdir()) == before


POSTING = """
import trawl


class Pages(trawl.Spider):
    name = "pages"

    async def start(self):
        for number in range(30):
            yield trawl.Request("http://a.example/search", method="POST", body=f"page={number}")

    def parse(self, response):
        yield {"url": response.url}
"""


def test_a_plan_of_a_job_sends_each_pending_post_to_one_url(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pages.py").write_text(POSTING)
    stop = ["-s", "JOB_DIR=job", "-s", "CLOSESPIDER_PAGECOUNT=10", "-s", "ROBOTSTXT_OBEY=false"]
    (folder / "web.toml").write_text('[hosts."a.example"]\nlatency = 0.1')
    assert main(["simulate", "pages.py", "--web", "web.toml", *stop]) in {0, 3}
    capsys.readouterr()
    assert main(["plan", "pages.py", "--job", "job", "--web", "web.toml", "-s", "ROBOTSTXT_OBEY=false"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {cells(line)[1].strip() for line in lines if line.startswith(" a.example")} == {
        "20",
        "21",  # and robots.txt, with unchanged settings
    }


def test_a_plan_that_sends_nothing_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "urls.txt").write_text("http://a.example/\n")
    (folder / "web.toml").write_text('[hosts."a.example"]\nconnect_error = "ConnectFailed"')
    settings = ["-s", "ROBOTSTXT_OBEY=false RETRY_TIMES=0"]
    assert main(["plan", "pages.py", "--urls", "urls.txt", "--web", "web.toml", *settings]) == 1
    assert ": nothing was sent: errors in downloads: 1 (ConnectFailed: 1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "a plan needs --urls FILE or --job DIR"),
        (["--urls", "urls.txt", "--job", "x"], "a plan needs --urls FILE or --job DIR"),
        (["--urls", "none.txt"], "--urls none.txt: can't be read: No such file or directory"),
        (["--urls", "bad.txt"], "--urls bad.txt, line 2: "),
        (["--urls", "empty.txt"], "empty.txt: nothing is pending"),
        (["--job", "none"], "none"),
    ],
)
def test_a_plan_of_nothing_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    (folder / "bad.txt").write_text("http://a.example/\nnowhere\n")
    (folder / "empty.txt").write_text("# nothing\n")
    assert main(["plan", "pages.py", *words]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert len(said.splitlines()) == 1
