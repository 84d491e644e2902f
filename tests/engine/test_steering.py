"""Orders to a running crawl: what they say, what they do, and the socket in the job's directory."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair

import trawl
from trawl.engine import Crawl
from trawl.engine.steering import (
    IDLE,
    SOCKET,
    Add,
    Drop,
    Observer,
    Order,
    Pause,
    Resume,
    SetLimits,
    Stop,
    _listed,
    _serve,
    ask,
    effect_of,
    execute,
    limits_from,
    order_from,
    stored_form,
)
from trawl.errors import JobError, SettingsError, UsageError
from trawl.events import ItemScraped, Steered
from trawl.frontier import MemoryFrontier
from trawl.frontier.inspect import inspect_job
from trawl.frontier.sections import statistics_so_far
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, Simulation, simulate

SETTINGS = {
    "DOWNLOAD_DELAY": 1.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
}


class Pages(trawl.Spider[Any]):
    name = "pages"

    async def start(self) -> AsyncIterator[Request]:
        for number in range(20):
            yield Request(f"http://a.example/{number}")
            yield Request(f"http://b.example/{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


def steered(steer: Callable[[Crawl], Any], settings: dict[str, Any] | None = None) -> Simulation:
    """Run a crawl of 20 pages of each of two hosts, and steer it after 5.5 s. An exception of ``steer`` is raised."""
    failures: list[BaseException] = []

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(5.5)
        try:
            await steer(crawl)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(error)

    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_host(host, latency=0.1)
    run = simulate(Pages, web, {**SETTINGS, **(settings or {}), "WATCHERS": {watch: 0}})
    for failure in failures:
        raise failure
    return run


def test_pause_and_resume() -> None:
    said: list[str] = []

    async def steer(crawl: Crawl) -> None:
        said.append(await execute(crawl, Pause(), "panel"))
        await trio.sleep(100.0)
        said.append(await execute(crawl, Resume(), "panel"))

    run = steered(steer)
    assert not [send for send in run.sends if 6.0 < send.time < 105.0]
    assert len(run.sends) == 40
    assert said == [
        "28 pending requests will wait until the crawl is resumed; 0 in flight finish",
        "28 pending requests will be sent again",
    ]


def test_stop_ends_the_crawl_as_a_first_ctrl_c_does() -> None:
    async def steer(crawl: Crawl) -> None:
        await execute(crawl, Stop(), "panel")

    run = steered(steer)
    assert (run.reason, len(run.sends)) == ("stopped", 12)


def test_a_limit_shows_its_effect_and_is_obeyed_on_the_wire() -> None:
    said: list[str] = []

    async def steer(crawl: Crawl) -> None:
        order = SetLimits("a.example", {"delay": 3.0})
        said.append(effect_of(crawl, order))
        assert crawl.report()[0].delay == 1.0
        await execute(crawl, order, "panel")

    run = steered(steer)
    times = [send.time for send in run.sends if send.host == "a.example"]
    assert [round(later - sooner, 3) for sooner, later in pairwise(times[6:])] == [3.0] * 13
    assert said == ["a.example: 1.0/s before, 0.33/s after; its 14 pending requests would end in 42 s"]


def test_the_effect_is_the_end_that_comes_true() -> None:
    ends: list[float] = []

    async def steer(crawl: Crawl) -> None:
        crawl.throttling.set("b.example", delay=0.1)
        _, after, count = crawl.throttling.preview("a.example", delay=2.0)
        crawl.throttling.set("a.example", delay=2.0)
        ends.append(crawl.elapsed + after.lasts(count))

    run = steered(steer)
    assert run.sends[-1].time == pytest.approx(ends[0], abs=0.01)


@pytest.mark.parametrize(
    "limits",
    [
        {"dealy": 2},
        {"delay": -1},
        {"concurrency": "many"},
        {"scope": 1},
        {"self": 1},
        # A compiled function has no positional-only parameters, so it raises a TypeError.
        pytest.param({"now": 1}, marks=pytest.mark.interpreted),
        pytest.param({"scope_id": 1}, marks=pytest.mark.interpreted),
    ],
)
def test_a_limit_that_does_not_fit_is_refused_with_the_message_of_the_settings(limits: dict[str, Any]) -> None:
    async def steer(crawl: Crawl) -> None:
        with pytest.raises(SettingsError) as expected:
            crawl.throttling.set("a.example", **limits)
        with pytest.raises(SettingsError) as raised:
            await execute(crawl, SetLimits("a.example", limits), "panel")
        assert str(raised.value) == str(expected.value)

    assert len(steered(steer).sends) == 40


def test_added_requests_are_sent_and_bad_urls_are_named() -> None:
    async def steer(crawl: Crawl) -> None:
        assert await execute(crawl, Add(["http://a.example/new"]), "panel") == (
            "1 request will be added to 28 pending requests"
        )
        with pytest.raises(UsageError, match="'not a url' can't be added"):
            await execute(crawl, Add(["http://a.example/other", "not a url"]), "panel")

    run = steered(steer)
    assert [send.url for send in run.sends if "new" in send.url or "other" in send.url] == ["http://a.example/new"]


def test_dropped_pages_of_a_host_are_not_sent_and_those_found_later_are() -> None:
    async def steer(crawl: Crawl) -> None:
        assert await execute(crawl, Drop("a.example"), "panel") == (
            "14 pending pages of a.example will be dropped, and its pages that wait for a time of their own"
        )
        assert crawl.stats.count("dropped_by_hand") == 14
        await crawl.add(Request("http://a.example/later"))

    run = steered(steer)
    assert [send.url for send in run.sends if send.host == "a.example"][6:] == ["http://a.example/later"]
    assert len([send for send in run.sends if send.host == "b.example"]) == 20
    assert run.reason == "finished"


def test_a_page_goes_at_once_when_the_page_for_which_its_scope_is_reserved_is_dropped() -> None:
    # F12: "kept" may use p only when it can't delay "dropped", which waits for q until second 65.5
    async def steer(crawl: Crawl) -> None:
        await crawl.add(Request("http://b.example/first", meta={"throttling_scopes": ["q"]}))
        await trio.sleep(1.0)
        await crawl.add(Request("http://a.example/dropped", meta={"throttling_scopes": ["p", "q"]}))
        await trio.sleep(1.0)
        scheduler = crawl._scheduler
        (lane,) = [lane for lane in scheduler.lanes.values() if len(lane.scopes) == 2]
        scheduler.queues.reserve(lane, trio.current_time())
        await crawl.add(Request("http://b.example/kept", meta={"throttling_scopes": ["p"]}))
        await trio.sleep(1.0)
        await crawl.drop("a.example")

    run = steered(steer, {"THROTTLING_SCOPES": {"p": {"delay": 100.0}, "q": {"delay": 60.0}}})
    assert [send.time for send in run.sends if "kept" in send.url] == [pytest.approx(8.5)]


@pytest.mark.parametrize("obeys", [True, False], ids=["a lane of each host", "one lane of all hosts"])
def test_dropped_pages_have_left_the_job_when_the_order_is_executed(tmp_path: Path, obeys: bool) -> None:
    """A copy of the job, as a kill right after the order would leave it. # C1"""
    job, killed = tmp_path / "job", tmp_path / "killed"
    count = 15 + obeys  # a robots.txt takes the time of a page

    async def steer(crawl: Crawl) -> None:
        crawl.pause()
        await crawl.add(Request("http://a.example/later", meta={"delay": 60}))
        await crawl.add(Request("http://b.example/later", meta={"delay": 60}))
        await execute(crawl, Drop("a.example"), "panel")
        shutil.copytree(job, killed)
        queued = crawl.queued
        crawl.pause(is_paused=False)
        assert queued == count

    run = steered(steer, {"JOB_DIR": str(job), "ROBOTSTXT_OBEY": obeys})
    report = inspect_job(killed)
    assert report.scopes == [("b.example", count)]
    assert statistics_so_far(report)["dropped_by_hand"] == count
    assert run.stats["dropped_by_hand"] == count
    again = steered(no_order, {"JOB_DIR": str(killed), "ROBOTSTXT_OBEY": obeys})
    assert {send.host for send in again.sends if "robots" not in send.url} == {"b.example"}


def test_pages_that_can_not_be_dropped_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, because the job can't be read."""

    async def fail(*_: object) -> int:
        await trio.lowlevel.checkpoint()
        raise JobError("job: its request 7 can't be used")

    monkeypatch.setattr(MemoryFrontier, "drop", fail)

    async def steer(crawl: Crawl) -> None:
        with pytest.raises(JobError, match="request 7"):
            await execute(crawl, Drop("a.example"), "panel")

    run = steered(steer)
    assert (run.reason, len(run.sends)) == ("finished", 40)


async def no_order(crawl: Crawl) -> None:
    """Give no order."""
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("host", ["", "a b", "http://", "a/b"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    async def steer(crawl: Crawl) -> None:
        with pytest.raises(UsageError, match="is not a host"):
            await execute(crawl, Drop(host), "panel")

    steered(steer)


def test_each_order_is_logged_and_told_to_readers_of_events(caplog: pytest.LogCaptureFixture) -> None:
    found: list[Steered] = []

    async def steer(crawl: Crawl) -> None:
        with crawl.events(Steered) as events:
            await execute(crawl, Drop("b.example"), "socket")
            async for event in events:
                found.append(event)
                break

    with caplog.at_level(logging.WARNING, "trawl.steering"):
        steered(steer)
    (event,) = found
    assert (event.order, event.source) == ("drop", "socket")
    assert caplog.messages == [f"drop, by the socket: {event.effect}"]


def test_limits_set_by_hand_are_kept_by_a_resumed_job(tmp_path: Path) -> None:
    async def steer(crawl: Crawl) -> None:
        await execute(crawl, SetLimits("a.example", {"delay": 4.0}), "panel")
        await execute(crawl, SetLimits("a.example", {"rate": 0.25}), "panel")
        await execute(crawl, SetLimits("b.example", {"delay": 0.5, "concurrency": 3}), "panel")
        crawl.shutdown("stopped")

    async def look(crawl: Crawl) -> None:
        found.update({scope.scope: (scope.delay, scope.concurrency) for scope in crawl.report()})

    found: dict[str, Any] = {}
    job = {"JOB_DIR": str(tmp_path / "job")}
    steered(steer, job)
    steered(look, job)
    assert found == {"a.example": (4.0, inf), "b.example": (0.5, 3.0)}


def test_orders_are_read_from_json_and_limits_from_the_command_line() -> None:
    assert order_from(b'{"order":"drop","host":"a.example"}') == Drop("a.example")
    for text in (b"{}", b"pause", b'{"order":"burn"}', b'{"order":"set","scope":1,"limits":{}}', b"\xff"):
        with pytest.raises(UsageError, match="not an order"):
            order_from(text)
    assert limits_from(["delay=2.5", "jitter=[0.5, 1.5]", "backoff=x"]) == {
        "delay": 2.5,
        "jitter": [0.5, 1.5],
        "backoff": "x",
    }
    for wrong in ("delay", "=2"):
        with pytest.raises(UsageError, match="is not KEY=VALUE"):
            limits_from([wrong])


def test_the_stores_list_of_orders_is_split_at_line_feeds_only() -> None:
    first = SetLimits("a\u2028b\x85c", {"delay": 1.0})
    text = "\n".join(stored_form(each)[1] for each in (first, Pause()))
    assert [order for _, order, _ in _listed(text)] == [first, Pause()]
    assert list(_listed("")) == []


# -- the socket


async def with_job(job: Path, use: Callable[[], Any]) -> Any:
    """Run ``use`` in a thread while a real crawl of a job waits for its next page."""
    found: list[Any] = []

    async def watch(crawl: Crawl) -> None:
        with trio.fail_after(60.0):
            while not (job / SOCKET).exists() or crawl.queued < 10:  # noqa: ASYNC110 - no event says so
                await trio.sleep(0.01)
            found.append(await trio.to_thread.run_sync(use))
        crawl.cancel()

    class Slow(trawl.Spider[Any]):
        name = "slow"
        start_urls = tuple(f"http://127.0.0.1:9/{number}" for number in range(30))

    settings = {**SETTINGS, "JOB_DIR": str(job), "WATCHERS": {watch: 0}, "DOWNLOAD_DELAY": 60.0, "RETRY_ENABLED": False}
    await trawl.crawl(Slow, settings)
    return found[0]


@pytest.mark.parametrize("depth", [0, 3], ids=["short", "longer than a socket's path may be"])
async def test_the_socket_is_for_its_user_alone_and_answers(tmp_path: Path, depth: int) -> None:
    job = tmp_path.joinpath(*["x" * 60] * depth, "job")

    def use() -> tuple[Any, ...]:
        mode = stat.S_IMODE(os.stat(job / SOCKET).st_mode)
        status = ask(job, status=True).crawl_status()
        why = ask(job, why="http://127.0.0.1:9/20").words
        preview = ask(job, preview=SetLimits("127.0.0.1:9", {"delay": 120})).words
        ask(job, order=SetLimits("127.0.0.1:9", {"delay": 120}))
        with pytest.raises(UsageError, match="delay"):
            ask(job, order=SetLimits("127.0.0.1:9", {"dealy": 1}))
        return mode, status, why, preview

    mode, status, why, preview = await with_job(job, use)
    assert mode == 0o600
    assert status.spider == "slow"
    assert "127.0.0.1:9" in why
    assert re.match(r"127.0.0.1:9: 0.0\d+/s before, 0.00\d+/s after; its \d+ pending requests would end in ", preview)
    assert not (job / SOCKET).exists()


async def test_the_socket_survives_garbage_and_vanished_readers(tmp_path: Path) -> None:
    job = tmp_path / "job"

    def use() -> list[Any]:
        replies = []
        for line in (b"garbage\n", b'{"order":{"order":"burn"}}\n', b"\xff\xfe\n", b'{"unknown":1}\n'):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(job / SOCKET))
                connection.sendall(line)
                replies.append(msgspec.json.decode(connection.makefile("rb").readline())["error"])
        for line in (b"", b'{"status":', b"x" * (1 << 21)):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(job / SOCKET))
                with suppress(OSError):
                    connection.sendall(line)
        replies.append(ask(job, status=True).crawl_status() is not None)
        return replies

    *errors, is_alive = await with_job(job, use)
    assert is_alive
    assert all(error.startswith("the request can't be read") for error in errors)


def test_items_are_collected_only_while_somebody_views_the_crawl_through_the_socket() -> None:
    collected: list[bool] = []

    async def steer(crawl: Crawl) -> None:
        observer = Observer(crawl)
        crawl.pause()  # so it does not end
        async with trio.open_nursery() as nursery:
            for seconds in (IDLE - 1.0, IDLE - 1.0, IDLE + 1.0):
                mine, its = memory_stream_pair()
                nursery.start_soon(_serve, observer, its)
                await mine.send_all(b'{"view":{}}\n')
                await mine.receive_some(1)
                await mine.aclose()
                await trio.sleep(seconds)
                collected.append(ItemScraped in crawl._context.events.wanted)
        crawl.pause(is_paused=False)

    steered(steer)
    assert collected == [True, True, False]


def test_a_stale_socket_is_said_to_be_of_no_process(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    with pytest.raises(UsageError, match="no process works on it now"):
        ask(tmp_path, status=True)


def test_a_process_that_ends_or_is_late_before_it_replies_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(str(tmp_path / SOCKET))
        listening.listen()
        for reads in (False, True):
            asking = pool.submit(ask, tmp_path, order=Pause())
            with listening.accept()[0] as connection:
                if reads:
                    connection.makefile("rb").readline()
            with pytest.raises(UsageError, match="its process ended before it replied"):
                asking.result()
        monkeypatch.setattr("trawl.engine.steering.PATIENCE", 0.01)
        with pytest.raises(UsageError, match="its process may still execute it"):
            ask(tmp_path, order=Pause())


async def test_a_stale_socket_is_replaced_and_a_file_of_that_name_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = tmp_path / "job"
    await with_job(job, lambda: None)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(job / SOCKET))

    def use() -> str:
        order: Order = Pause()
        return ask(job, order=order).words

    assert "will wait until the crawl is resumed" in await with_job(job, use)
    (job / SOCKET).write_text("mine")
    await with_job(job, lambda: None)
    assert (job / SOCKET).read_text() == "mine"
    assert "its socket can't be opened" in caplog.text


async def test_a_socket_that_fails_leaves_the_crawl_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    class Nothing(trawl.Spider[Any]):
        name = "nothing"
        start_urls = ()

    monkeypatch.setattr("trawl.engine.steering.listen", fail)
    result = await trawl.crawl(Nothing, {**SETTINGS, "JOB_DIR": str(tmp_path / "job")})
    assert result.reason == "finished"
    assert "failed; the crawl goes on without it" in caplog.text


def test_no_socket_without_a_job() -> None:
    async def steer(crawl: Crawl) -> None:
        assert crawl._context.open_job.watchers(is_simulated=False) == []

    steered(steer)
