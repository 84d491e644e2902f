from __future__ import annotations

import gc
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.fake_crawl import FakeCrawl, FakeEngine
from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.cli.crawl import crawl_command, short_collections
from trawl.cli.crawl_entry import CrawlOptions
from trawl.cli.summary import scopes_table
from trawl.errors import FeedError
from trawl.http import Times
from trawl.observe import Stats
from trawl.testing import SimulatedWeb
from trawl.throttling import ScopeReport

SPIDER = "import trawl.spiders\nclass One(trawl.spiders.Spider):\n    name = 'one'\n"


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("TRAWL_LOG_LEVEL", "TRAWL_LOG_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "myone.py").write_text(SPIDER)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def run(engine: FakeEngine, *arguments: str) -> int:
    return main(["crawl", *arguments], crawl_with=engine)


def test_of_a_page_that_robots_txt_forbids_it_is_told_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /")
    assert main(["fetch", "http://a.example/x", *QUICK], crawl_with=crawl_on(web)) == 1
    advice = "robots.txt forbids it (-s ROBOTSTXT_OBEY=false, for a site of your own)"
    assert capfd.readouterr() == ("", f"trawl: <GET http://a.example/x>: {advice}\n")


def test_a_crawl_is_given_everything_that_was_typed() -> None:
    engine = FakeEngine()
    status = run(
        engine,
        "myone.py",
        "-a",
        "tag=x=y",
        "-s",
        "LOGSTATS_INTERVAL=5",
        "-o",
        "a.jsonl",
        "-O",
        "-:csv",
        "--log-level",
        "debug",
    )
    assert status == 0
    assert engine.spider_cls is not None
    assert engine.settings is not None
    assert engine.spider_cls.name == "one"
    assert engine.spider_args == {"tag": "x=y"}
    assert engine.handles_signals
    assert engine.settings["FEEDS"] == {"a.jsonl": {"overwrite": False}, "-": {"overwrite": True, "format": "csv"}}
    assert (engine.settings["LOGSTATS_INTERVAL"], engine.settings["LOG_LEVEL"]) == (5.0, "DEBUG")


@pytest.mark.usefixtures("garbage_collector")
def test_objects_that_a_long_collection_has_left_are_not_looked_at_again() -> None:
    before, thresholds = gc.callbacks.copy(), gc.get_threshold()
    takes = 0.009
    clock = 0.0

    def seconds() -> float:
        nonlocal clock
        clock += takes
        return clock

    with short_collections(seconds):
        assert gc.get_threshold() == (5000, 1, thresholds[2])
        imported = gc.get_freeze_count()
        grown = [[i] for i in range(100_000)]  # many: of what was frozen before, some may be freed meanwhile
        gc.collect()
        assert gc.get_freeze_count() <= imported
        takes = 0.011
        gc.collect()
        assert gc.get_freeze_count() >= imported + 0.9 * len(grown)
    assert gc.get_freeze_count() == 0
    assert (gc.callbacks, gc.get_threshold()) == (before, thresholds)


@pytest.mark.usefixtures("garbage_collector")
def test_a_threshold_that_was_set_to_0_or_higher_stays() -> None:
    for thresholds in ((0, 10, 10), (50_000, 20, 20)):
        gc.set_threshold(*thresholds)
        with short_collections():
            assert gc.get_threshold() == thresholds
        assert gc.get_threshold() == thresholds


class Frozen:
    """A ``crawl_with`` that notes how the garbage collector is set."""

    callbacks = 0
    frozen = 0

    async def __call__(self, *arguments: object, **options: object) -> object:
        self.callbacks, self.frozen = len(gc.callbacks), gc.get_freeze_count()
        return await FakeEngine()(*arguments, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("garbage_collector")
def test_the_command_alone_sets_the_garbage_collector() -> None:
    before = len(gc.callbacks)
    noted = Frozen()
    assert main(["crawl", "myone.py"], crawl_with=noted) == 0  # type: ignore[arg-type]
    assert (noted.callbacks, noted.frozen > 1000) == (before + 1, True)
    assert (len(gc.callbacks), gc.get_freeze_count()) == (before, 0)


def test_custom_settings_are_weaker_than_s_and_stronger_than_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = "    custom_settings = {'LOG_FORMAT': '%(name)s', 'LOG_DATEFORMAT': 'custom'}\n"
    (tmp_path / "myone.py").write_text(SPIDER + custom)
    monkeypatch.setenv("TRAWL_LOG_DATEFORMAT", "environ")
    monkeypatch.setenv("TRAWL_LOGSTATS_INTERVAL", "7")
    engine = FakeEngine()
    assert run(engine, "myone.py", "-s", "LOG_FORMAT=%(message)s") == 0
    assert engine.settings is not None
    values = [engine.settings[name] for name in ("LOG_FORMAT", "LOG_DATEFORMAT", "LOGSTATS_INTERVAL")]
    assert values == ["%(message)s", "custom", 7.0]


@pytest.mark.parametrize(
    ("reason", "status"),
    [("finished", 0), ("enough", 0), ("start_error", 1), ("feed_error", 1), ("shutdown", 130), ("cancelled", 130)],
)
def test_the_exit_status_says_how_the_crawl_ended(reason: str, status: int) -> None:
    assert run(FakeEngine(reason=reason), "myone.py") == status


def test_ctrl_c_before_signals_are_handled_is_an_interruption() -> None:
    assert run(FakeEngine(error=KeyboardInterrupt()), "myone.py") == 130
    assert run(FakeEngine(error=BaseExceptionGroup("nursery", [KeyboardInterrupt()])), "myone.py") == 130


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["nowhere.py"], 2, "trawl: nowhere.py: no such file"),
        (["myone.py:Two"], 2, "trawl: myone.py: no class 'Two' in it; it has One"),
        (
            ["myone.py", "-s", "LOG_FILEE=1"],
            2,
            "trawl: unknown setting LOG_FILEE (in -s); did you mean LOG_FILE?",
        ),
        (
            ["myone.py", "-s", "LOGSTATS_INTERVAL=x"],
            2,
            "trawl: LOGSTATS_INTERVAL must be a number, at least 0, not 'x' (in -s)",
        ),
        (["myone.py", "-s", "LOG_FILE"], 2, "trawl: -s takes NAME=VALUE, not 'LOG_FILE'"),
        (["myone.py", "-a", "x"], 2, "trawl: -a takes NAME=VALUE, not 'x'"),
        (["myone.py", "-o", "a", "-o", "a"], 2, "trawl: the feed 'a' is given twice"),
        (
            ["myone.py", "--log-level", "loud"],
            2,
            "trawl: LOG_LEVEL must be one of CRITICAL, ERROR, WARNING, INFO, DEBUG or a whole number, not 'LOUD'"
            " (in --log-level)",
        ),
        (
            ["myone.py", "--log-file", "no/log"],
            2,
            "trawl: can't write the log file 'no/log': No such file or directory",
        ),
    ],
)
def test_bad_input_is_one_line_on_standard_error(
    arguments: list[str], status: int, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """I03, and the table of bad input."""
    assert run(FakeEngine(), *arguments) == status
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"{line}\n")


def test_an_argument_that_the_spider_does_not_take_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "myone.py").write_text(f"{SPIDER}    def __init__(self, tag): super().__init__()\n")
    assert run(FakeEngine(), "myone.py", "-a", "tga=1") == 2
    assert capfd.readouterr().err == "trawl: -a does not fit One(): missing a required argument: 'tag'\n"


def test_a_constructor_that_fails_is_one_line_and_with_debug_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "myone.py").write_text(f"{SPIDER}    def __init__(self): self.limit = int('x')\n")
    told = "One can't be made: ValueError: invalid literal for int() with base 10: 'x'\n"
    assert main(["crawl", "myone.py"]) == 1
    err = capfd.readouterr().err
    assert err.startswith("trawl: myone.py, line ")
    assert err.endswith(told)
    assert err.count("\n") == 1
    assert main(["crawl", "myone.py", "--log-level", "DEBUG"]) == 1
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert err.endswith(told)


def test_a_bug_on_the_way_is_told_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(FakeEngine(error=RuntimeError("a \x1b[31mbug")), "myone.py") == 1
    err = capfd.readouterr().err
    assert "CRITICAL: the crawl failed\nTraceback" in err
    assert err.endswith("RuntimeError: a \\x1b[31mbug\n")
    assert run(FakeEngine(error=ExceptionGroup("nursery", [RuntimeError("two")])), "myone.py") == 1
    with pytest.raises(BaseExceptionGroup, match="nursery"):  # noqa: ASYNC401 - Trio raises none here
        run(FakeEngine(error=BaseExceptionGroup("nursery", [GeneratorExit()])), "myone.py")


def test_a_feed_that_cannot_be_opened_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(FakeEngine(error=FeedError("the feed '/x' can't be written: \x1b[31mno", "/x")), "myone.py") == 2
    assert capfd.readouterr().err == "trawl: the feed '/x' can't be written: \\x1b[31mno\n"


def test_at_debug_bad_input_has_its_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mybroken.py").write_text("def f(:\n")
    assert run(FakeEngine(), "mybroken.py", "--log-level", "DEBUG") == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "trawl: mybroken.py, line 1: SyntaxError: invalid syntax"


def test_wrong_usage_ends_with_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["crawl"]) == 2
    assert main(["crawl", "myone.py", "--nonsense"]) == 2
    assert main(["nonsense"]) == 2
    assert "Traceback" not in capfd.readouterr().err


def test_the_summary_goes_to_standard_error_without_colours(capfd: pytest.CaptureFixture[str]) -> None:
    stats = Stats()
    stats.inc("response_count", 120)
    crawl = FakeCrawl(
        stats=stats, elapsed=60.0, reports=(ScopeReport(scope="a.example", sends=120, rate=2.0, allowed=2.5),)
    )
    assert run(FakeEngine(crawl=crawl), "myone.py") == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "\x1b" not in err
    words = [line.split() for line in err.splitlines()]
    assert ["ended", "finished"] in words
    assert ["rate", "2.0/s"] in words
    assert ["a.example", "120", "2.0/s", "2.5/s", "0", "0"] in words


def test_quiet_says_nothing_at_all(capfd: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    assert run(engine, "myone.py", "--quiet") == 0
    assert capfd.readouterr() == ("", "")
    assert engine.watchers == 2  # the deadline, and the count of repeated entries


def test_no_progress_is_logged_where_its_interval_is_0() -> None:
    engine = FakeEngine()
    assert run(engine, "myone.py", "-s", "LOGSTATS_INTERVAL=0") == 0
    assert engine.watchers == 2
    assert run(engine, "myone.py") == 0
    assert engine.watchers == 3


def test_on_a_terminal_the_panel_gives_way_to_the_summary(tmp_path: Path) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=80, _environ={"TERM": "xterm"}
    )
    assert crawl_command(CrawlOptions(targets=("myone.py",)), FakeEngine(), console) == 0
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.index("quotes") < text.index("finished")
    assert "\x1b[1;32mfinished" in text


def test_the_busiest_scopes_are_shown_and_the_others_counted() -> None:
    reports = [
        ScopeReport(
            scope=f"{n}.example",
            sends=100 - n,
            limited={"delay": 90.0, "concurrency": 1.0, "quota": 0.5},
            hints=2,
            last_hint="Retry-After: 7 of \x1b/x",
        )
        for n in range(20)
    ]
    table = scopes_table(reports)
    assert table is not None
    console = Console(file=io.StringIO(), width=150)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "0.example" in text
    assert "15.example" not in text
    assert "and 5 more" in text
    assert "1 min 30 s for delay, 1.0 s for concurrency" in text
    assert "2: Retry-After: 7 of \\x1b/x" in text
    assert scopes_table([ScopeReport(scope="idle")]) is None


def test_c12_a_wide_terminal_gets_what_took_the_time_of_a_scopes_requests() -> None:
    times = Times(queued=600.0, throttled=4.0, connecting=0.1, fetching=0.3)
    table = scopes_table([ScopeReport(scope="a.example", sends=9, times=times)], 120)
    assert table is not None
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    assert "throttled 4.0 s, fetching 0.3 s" in console.file.getvalue()


def test_a_narrow_terminal_gets_fewer_columns_that_can_be_read() -> None:
    limited = {"delay": 30.0, "quota": 0.01}
    report = ScopeReport(scope="127.0.0.1:8099", sends=528, rate=17.3, triggers=3, limited=limited, hints=2)
    lines = {}
    for width in (100, 60):
        console = Console(file=io.StringIO(), width=width)
        table = scopes_table([report], width)
        assert table is not None
        console.print(table)
        assert isinstance(console.file, io.StringIO)
        lines[width] = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["scope", "sends", "rate", "allowed", "triggers", "steps", "waited", "hints"] in lines[100]
    assert ["scope", "sends", "rate", "triggers", "waited"] in lines[60]
    assert ["127.0.0.1:8099", "528", "17.3/s", "3", "30", "s", "for"] in lines[60]


@pytest.mark.parametrize(
    ("body", "arguments", "status", "words"),
    [
        ("    start_urls = ['a.example']\n", [], 2, "start_urls[0]: 'a.example' is not an absolute URL"),
        ("    start_urls = ()\n", ["-O", "out.foo"], 2, "trawl: feed out.foo: unknown format 'foo'"),
        (
            "    start_urls = ()\n",
            ["-s", "AUTOTHROTTLE_TARGET_CONCURRENCY=0"],
            2,
            "must be a number, above 0, not 0 (in -s)",
        ),
        ("    start_urls = ()\n", ["-O", "out.jsonl"], 0, "finished"),
    ],
)
def test_the_real_engine_is_told_and_tells(
    body: str, arguments: list[str], status: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The table of bad input, through the engine, as far as no wire is needed."""
    (tmp_path / "myone.py").write_text(SPIDER + body)
    assert main(["crawl", "myone.py", *arguments]) == status
    err = capfd.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_a_setting_without_effect_is_told_in_check_in_the_first_lines_and_in_the_table(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "DOWNLOAD_DELAY = 0.1 has no effect: DOWNLOAD_DELAY_PER_SLOT (1 s, one slot) decides"
    text = SPIDER + "    custom_settings = {'DOWNLOAD_DELAY': 0.1}\n    start_urls = ['http://a.example/']\n"
    (tmp_path / "myhidden.py").write_text(
        text + "    def parse(self, response):\n        yield {'url': response.url}\n"
    )
    assert main(["check", "myhidden.py"]) == 0
    out, err = capfd.readouterr()
    assert f"one: {words}" in err
    assert "nothing wrong" in out
    web = SimulatedWeb()
    web.add_page("http://a.example/")
    assert main(["crawl", "myhidden.py"], crawl_with=crawl_on(web)) == 0
    err = capfd.readouterr().err
    log, table = err.split(" ended ")
    assert words in log
    assert "DOWNLOAD_DELAY = 0.1 has no effect" in " ".join(table.split())
    assert main(["crawl", "myhidden.py", "-s", "DOWNLOAD_DELAY_PER_SLOT=0.1"], crawl_with=crawl_on(web)) == 0
    assert "no effect" not in capfd.readouterr().err
