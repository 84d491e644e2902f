"""A simulation whose spider fails raises, so that a green test means a working spider."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import trawl
from trawl.cli import main
from trawl.exceptions import ItemLost, NameNotResolved
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, SimulationFailed, simulate
from trawl.tracebacks import UserExit

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Fails(trawl.Spider):
    name = "fails"
    start_urls: Any = ("http://a.example/1", "http://a.example/2")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        raise KeyError(response.url)


class Works(Fails):
    name = "works"

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


def web() -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("a.example")
    return made


def test_what_callbacks_raised_is_raised_with_their_requests() -> None:
    site = web()
    with pytest.raises(SimulationFailed, match="Fails failed in the simulation, 2 errors") as raised:
        simulate(Fails, site, FREE)
    assert isinstance(raised.value, AssertionError)
    assert [type(error) for error in raised.value.exceptions] == [KeyError, KeyError]
    message = str(raised.value)
    assert "<GET http://a.example/1>: the callback failed: test_errors.py, line" in message
    assert 'errors="collect"' in message
    assert site.latest is not None
    assert site.latest.errors == raised.value.exceptions
    # The traceback starts at the spider's line.
    error = raised.value.exceptions[0]
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_name == "parse"


async def test_so_does_the_crawl_of_a_web(autojump_clock: MockClock) -> None:
    with pytest.raises(SimulationFailed):
        await web().crawl(Fails, FREE)
    assert len((await web().crawl(Fails, FREE, errors="collect")).errors) == 2


def test_errors_are_collected_if_wanted() -> None:
    run = simulate(Fails, web(), FREE, errors="collect")
    assert [type(error) for error in run.errors] == [KeyError, KeyError]
    assert run.errors[0].__notes__ == ["<GET http://a.example/1>: the callback failed"]
    assert simulate(Works, web(), FREE).errors == ()


def test_only_these_two_words_are_known() -> None:
    with pytest.raises(ValueError, match=r'use "raise" or "collect"'):
        simulate(Works, web(), FREE, errors="ignore")  # type: ignore[arg-type]


def test_they_are_found_without_a_log() -> None:
    logger = logging.getLogger("trawl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with pytest.raises(SimulationFailed, match="2 errors"):
            simulate(Fails, web(), FREE)
    finally:
        logger.setLevel(level)


def test_a_host_that_is_not_on_the_web_is_an_error_once() -> None:
    class Elsewhere(Works):
        start_urls = ("http://b.example/1", "http://b.example/2", "http://a.example/1")

    for settings in (FREE, {**FREE, "ROBOTSTXT_OBEY": True}):
        with pytest.raises(SimulationFailed, match=r"named 'b.example'") as raised:
            simulate(Elsewhere, web(), settings)
        assert [type(error) for error in raised.value.exceptions] == [NameNotResolved]


@pytest.mark.parametrize("obeys", [False, True])
def test_a_host_that_is_not_on_the_web_is_no_error_if_errbacks_handled_all_its_failures(obeys: bool) -> None:
    class Survey(Works):
        with_errback: tuple[str, ...] = ("1", "2")

        async def start(self) -> Any:
            for path in ("1", "2"):
                errback = self.failed if path in self.with_errback else None
                yield Request(f"http://b.example/{path}", errback=errback)

        def failed(self, error: Any) -> Any:
            yield {"failed": error.request.url}

    class Misses(Survey):
        with_errback = ("2",)

    class Raises(Survey):
        def failed(self, error: Any) -> Any:
            raise KeyError("no such thing")

    settings = {**FREE, "ROBOTSTXT_OBEY": obeys}
    sim = simulate(Survey, web(), settings)
    assert (len(sim.items), sim.errors) == (2, ())
    with pytest.raises(SimulationFailed, match=r"named 'b.example'"):
        simulate(Misses, web(), settings)
    with pytest.raises(SimulationFailed, match=r"no such thing"):
        simulate(Raises, web(), settings)


class Breaks:
    def process_item(self, item: Any) -> Any:
        raise RuntimeError("no database")


class Drops:
    def process_item(self, item: Any) -> Any:
        raise trawl.DropItem("not wanted")


def test_an_item_that_a_pipeline_lost_is_an_error_and_a_dropped_one_is_not() -> None:
    with pytest.raises(SimulationFailed, match="no database"):
        simulate(Works, web(), {**FREE, "ITEM_PIPELINES": {Breaks: 1}})
    assert simulate(Works, web(), {**FREE, "ITEM_PIPELINES": {Drops: 1}}).items == []


def test_an_item_that_a_feed_refused_is_an_error(tmp_path: Path) -> None:
    class Deep(Works):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"x": object()}

    with pytest.raises(SimulationFailed) as raised:
        simulate(Deep, web(), {**FREE, "FEEDS": {str(tmp_path / "out.jsonl"): {}}})
    assert {type(error) for error in raised.value.exceptions} == {ItemLost}


def test_a_start_and_an_output_that_fail_are_errors_and_a_middleware_costs_its_request() -> None:
    class Starts(Works):
        async def start(self) -> Any:
            yield Request("http://a.example/1")
            raise RuntimeError("no list")

    class Outputs(Works):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield 5

    def around(fetch: Any) -> Any:
        async def send(request: Request) -> Any:
            raise RuntimeError("no session")

        return send

    with pytest.raises(SimulationFailed, match="no list"):
        simulate(Starts, web(), FREE)
    with pytest.raises(SimulationFailed, match="give requests, items"):
        simulate(Outputs, web(), FREE)
    sim = simulate(Works, web(), {**FREE, "DOWNLOADER_MIDDLEWARES": {around: 1}})
    assert [str(error) for error in sim.errors] == ["no session"] * len(sim.errors) != []


def test_exit_in_a_callback_is_one_of_them() -> None:
    class Exits(Works):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            raise SystemExit(0)

    with pytest.raises(SimulationFailed) as raised:
        simulate(Exits, web(), FREE)
    assert {type(error) for error in raised.value.exceptions} == {UserExit}


def test_expected_ends_are_no_errors() -> None:
    class Handles(Works):
        async def start(self) -> Any:
            for path in ("1", "missing"):
                yield Request(f"http://a.example/{path}", errback=self.failed)

        def failed(self, error: Any) -> Any:
            yield {"failed": error.request.url}

    site = web()
    site.add_page("http://a.example/missing", status=404)
    assert len(simulate(Handles, site, FREE).items) == 2


SPIDER = """import trawl


class Fails(trawl.Spider):
    name = "fails"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        raise KeyError("title")
"""


def test_the_command_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fails.py").write_text(SPIDER, "utf-8")
    Path("web.toml").write_text('[hosts."a.example"]\n', "utf-8")
    assert main(["simulate", "fails.py", "--web", "web.toml"]) == 1
    out, err = capfd.readouterr()
    assert "finished" in out
    assert "trawl: 1 error in the spider: KeyError: 'title'" in err
