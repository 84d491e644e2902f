from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import trio
from rich.console import Console

import trawl
from trawl.cli.logs import Logs, is_expected
from trawl.engine.callbacks import CallbackOutputs, Shields, consume
from trawl.errors import DownloadError, UsageError
from trawl.http import Request
from trawl.observe import ObserveSettings
from trawl.tracebacks import UserExit, contained

logger = logging.getLogger("test.logs")
PLAIN = "%(levelname)s %(message)s"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logs(stream: io.StringIO) -> Iterator[Logs]:
    with Logs(Console(file=stream, force_terminal=False)) as logs:
        logs.apply(ObserveSettings(log_format=PLAIN))
        yield logs


def test_control_characters_of_a_page_never_reach_the_log(logs: Logs, stream: io.StringIO) -> None:
    logger.info("title: %s", "\x1b[2J\x1b]0;owned\x07\r\u202eevil")
    assert stream.getvalue() == "INFO title: \\x1b[2J\\x1b]0;owned\\x07\\r\\u202eevil\n"


def test_a_page_cannot_forge_an_entry(logs: Logs, stream: io.StringIO) -> None:
    logger.info("%s", "x\nERROR all is lost")
    assert stream.getvalue() == "INFO x\n    ERROR all is lost\n"


@pytest.mark.usefixtures("logs")
def test_a_bug_in_a_callback_keeps_its_traceback(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("a \x1b[31mbug")
    except RuntimeError:
        logger.exception("callback failed")
    assert "Traceback (most recent call last)" in stream.getvalue()
    assert stream.getvalue().endswith("RuntimeError: a \\x1b[31mbug\n")


@pytest.mark.usefixtures("logs")
def test_an_expected_error_is_one_line(stream: io.StringIO) -> None:
    try:
        raise DownloadError("timed out", url="http://a.example/")
    except DownloadError as error:
        logger.error("given up", exc_info=error)  # as the engine does
    line = re.sub(r"line \d+", "line N", stream.getvalue())
    assert line == "ERROR given up: GET http://a.example/: timed out (test_logs.py, line N)\n"


@pytest.mark.usefixtures("logs")
def test_a_traceback_starts_at_the_users_code_also_if_that_calls_exit(stream: io.StringIO, tmp_path: Path) -> None:
    own = tmp_path / "own_exit.py"
    own.write_text("def parse():\n    exit()\n")
    made: dict[str, Any] = {}
    exec(compile(own.read_text(), str(own), "exec"), made)
    crawl = {"__name__": "trawl.crawl", "parse": made["parse"], "contained": contained}  # as in a module of trawl
    exec(compile("def call():\n    with contained:\n        parse()", trawl.__file__, "exec"), crawl)
    try:
        crawl["call"]()
    except UserExit as error:
        logger.error("it failed", exc_info=error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    lines = stream.getvalue().splitlines()
    assert next(line.strip() for line in lines if "File " in line).startswith(f'File "{own}", line 2')


def test_an_expected_error_has_its_traceback_at_debug(logs: Logs, stream: io.StringIO) -> None:
    logs.apply(ObserveSettings(log_format=PLAIN, log_level="DEBUG"))
    assert logs.is_debug
    logger.error("given up", exc_info=DownloadError("timed out"))
    assert stream.getvalue() == "ERROR given up\ntrawl.errors.DownloadError: timed out\n"


@pytest.mark.interpreted
@pytest.mark.parametrize("given", [5, "http://a.example/"])
def test_an_output_that_is_none_is_expected_too(given: object) -> None:
    outputs = CallbackOutputs(SimpleNamespace(), SimpleNamespace(), 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"or None, not {type(given).__name__}: {given!r}$") as caught:
        trio.run(consume, [given], outputs, Shields())
    assert is_expected(caught.value)


def test_a_refused_url_is_expected_and_other_value_errors_are_not() -> None:
    with pytest.raises(ValueError, match="no url") as caught:
        Request("no url")
    assert is_expected(caught.value)
    with pytest.raises(ValueError, match="invalid literal") as other:
        int("x")
    assert not is_expected(other.value)


def test_quiet_lets_warnings_through_only(logs: Logs, stream: io.StringIO) -> None:
    logs.apply(ObserveSettings(log_format=PLAIN), is_quiet=True)
    logger.info("one")
    logger.warning("two")
    assert stream.getvalue() == "WARNING two\n"


def test_a_log_file_takes_the_place_of_standard_error(
    logs: Logs,
    stream: io.StringIO,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for handler in logging.getLogger().handlers:  # what pytest captures goes over a pipe that takes no lone surrogate
        if isinstance(handler, type(caplog.handler)):
            monkeypatch.setattr(handler, "emit", lambda record: None)
    path = tmp_path / "log"
    path.write_text("before\n")
    logs.apply(ObserveSettings(log_format=PLAIN, log_file=str(path)), is_quiet=True)
    logger.info("héllo \ud800")
    logs.apply(ObserveSettings())
    assert path.read_text("utf-8") == "before\nINFO héllo \\ud800\n"
    assert stream.getvalue() == ""
    logs.apply(ObserveSettings(log_format=PLAIN, log_file=str(path), log_file_append=False))
    logs.apply(ObserveSettings())
    assert path.read_text() == ""


def test_a_forgotten_await_is_told_with_what_to_do_and_other_warnings_are_pythons(
    stream: io.StringIO, recwarn: pytest.WarningsRecorder
) -> None:
    with Logs(Console(file=stream, force_terminal=False)) as logs:
        logs.apply(ObserveSettings(log_format=PLAIN))
        warnings.warn_explicit("coroutine 'sleep' was never awaited\nmore", RuntimeWarning, __file__, 7)
        told = "WARNING test_logs.py:7: coroutine 'sleep' was never awaited: write `await` before the call\n"
        assert stream.getvalue() == told
        warnings.warn("another", RuntimeWarning, stacklevel=1)
    assert [str(each.message) for each in recwarn] == ["another"]


def test_a_log_file_that_was_moved_is_opened_anew(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    logs.apply(ObserveSettings(log_format=PLAIN, log_file=str(path)))
    logging.getLogger("a").warning("before")
    path.rename(tmp_path / "crawl.log.1")
    logging.getLogger("a").warning("after")
    assert "before" in (tmp_path / "crawl.log.1").read_text("utf-8")
    assert path.read_text("utf-8").count("after") == 1
    assert "before" not in path.read_text("utf-8")


def test_a_log_file_that_can_not_be_opened_anew_loses_entries_and_fails_nobody(
    logs: Logs, tmp_path: Path, stream: io.StringIO
) -> None:
    path = tmp_path / "logs" / "crawl.log"
    path.parent.mkdir()
    logs.apply(ObserveSettings(log_format=PLAIN, log_file=str(path)))
    path.parent.rename(tmp_path / "kept")
    logger.warning("lost")
    told = f"trawl: the log file {path} can't be written (No such file or directory): entries are lost\n"
    assert stream.getvalue() == told
    path.parent.mkdir()
    logger.warning("after")
    assert path.read_text("utf-8") == "WARNING after\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_reported_once_and_fails_nobody(
    logs: Logs, stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.apply(ObserveSettings(log_format=PLAIN, log_file="/dev/full"))
    for number in range(1000):
        logger.warning("lost %d", number)
    logs.apply(ObserveSettings(log_format=PLAIN))  # closes the file
    told = "trawl: the log file /dev/full can't be written (No space left on device): entries are lost\n"
    assert stream.getvalue() == told
    assert capsys.readouterr().err == ""


def test_a_log_can_be_switched_off(logs: Logs, stream: io.StringIO) -> None:
    logs.apply(ObserveSettings(log_enabled=False))
    logger.error("nobody hears this")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ObserveSettings(log_file="/no/such/dir/log"),
            "can't write the log file '/no/such/dir/log': No such file",
        ),
        (ObserveSettings(log_file="x", log_encoding="utf-99"), "can't write the log file 'x': unknown encoding"),
        (ObserveSettings(log_format="%(nonsense"), "LOG_FORMAT is not a valid format"),
        (ObserveSettings(log_format="%(nonsense)s"), "LOG_FORMAT is not a valid format: .*'nonsense'"),
        (ObserveSettings(log_format="%(message)d"), "LOG_FORMAT is not a valid format"),
    ],
)
def test_a_log_that_cannot_be_written_is_refused(
    logs: Logs, settings: ObserveSettings, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        logs.apply(settings)


def test_a_terminal_gets_times_and_colours_but_no_markup() -> None:
    colours: Literal["standard"] | None
    for colours in ("standard", None):
        stream = io.StringIO()
        with Logs(Console(file=stream, force_terminal=True, color_system=colours, width=100)) as logs:
            logs.apply(ObserveSettings())
            logger.warning("[red]not markup[/red] http://a.example/")
        assert ("\x1b[" in stream.getvalue()) == bool(colours)
    assert "WARNING  [test.logs] [red]not markup[/red] http://a.example/" in stream.getvalue()


def test_on_a_terminal_a_traceback_has_its_whole_width_and_still_forges_no_entry() -> None:
    stream = io.StringIO()
    with Logs(Console(file=stream, force_terminal=True, color_system=None, width=72)) as logs:
        logs.apply(ObserveSettings())
        try:
            raise ValueError("a page said\n12:00:00 ERROR    forged")
        except ValueError:
            logger.exception("the callback failed")
        logger.warning("two\n12:00:00 ERROR    forged")
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[0].endswith("ERROR    [test.logs] the callback failed")
    assert lines[1] == "  Traceback (most recent call last):"
    assert lines[2].startswith("    File")  # the path of a checkout may be longer than a line
    assert lines[-1] == "      12:00:00 ERROR    forged"
    assert all(line.startswith(" ") for line in lines if "[test.logs]" not in line)


def test_logging_is_left_as_it_was_found() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.getLogger("httpx").level)
    with Logs(Console(file=io.StringIO())) as logs:
        logs.apply(ObserveSettings(log_level=5))
        assert root.level == 5
    assert (list(root.handlers), root.level, logging.getLogger("httpx").level) == before
