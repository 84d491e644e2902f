"""``trawl job`` with ``--workers``, ``--why``, ``--pause``, ``--resume`` and ``--stop``, and ``trawl top``."""

from __future__ import annotations

import io
import os
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from tests.jobs.site import Runs, all_urls, site
from tests.simulated_store import SimulatedStore
from trawl.blocking import InlineBlocking
from trawl.cli import main
from trawl.cli.job import DirectoryLink, ServerLink, waiting_lines, workers_table
from trawl.engine import Crawl
from trawl.engine.steering import SOCKET, Add, Drop, Order, Pause, Reply, Resume, SetLimits, Stop, View, stored_form
from trawl.errors import UsageError
from trawl.events import ItemScraped, Steered
from trawl.frontier.inspect import JobReport, SessionReport
from trawl.frontier.redis import report
from trawl.frontier.redis.client import Address, Call
from trawl.frontier.redis.layout import Keys
from trawl.frontier.sqlite import open_job
from trawl.observe import CrawlStatus, Estimate, encode_status
from trawl.observe.status import OTHER_VERSION, Rate, Rates, WaitingGroup

URL = "redis://store/job"
SLOW = {"a.example": {"delay": 1.0, "concurrency": 1}, "b.example": {"delay": 1.0, "concurrency": 1}}
SETTINGS = {"JOB_DIR": URL, "THROTTLING_SCOPES": SLOW, "RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    """A server with a job; what looks at it from outside runs as part of the crawl."""
    made = SimulatedStore(latency=0.01)
    for name in ("client.connect", "startup.connect_server"):
        monkeypatch.setattr(f"trawl.frontier.redis.{name}", made.connect)
    return made


def tell(store: SimulatedStore, order: Order) -> None:
    """Give the processes of the job an order, as ``trawl job`` does, without a crawl's loop."""
    store.run("order", ["{job}:job"], list(stored_form(order)))


async def test_a_paused_job_sends_nothing_until_it_is_resumed(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(20), settings=SETTINGS)
    sent: list[int] = []
    words: list[str] = []

    async def watch(crawl: Crawl) -> None:
        tell(store, Pause())
        await trio.sleep(5.0)  # a quarter of the lease, and what is in flight
        sent.append(crawl.stats.count("request_count"))
        await trio.sleep(60.0)
        sent.append(crawl.stats.count("request_count"))
        words.extend([one.reason.text(trio.current_time()) for one in crawl.waiting(1)])
        tell(store, Resume())

    result = await runs.run(watchers=[watch])
    assert result.reason == "finished"
    assert runs.urls == all_urls(20)
    assert sent[0] == sent[1]
    assert "paused, until `trawl job JOB --resume`" in words[0]


async def test_a_job_whose_crawl_is_full_is_resumed_although_an_earlier_order_waits_to_add_requests(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.crawl.MAX_PENDING", 1)
    runs = Runs(tmp_path, site(20), settings=SETTINGS)

    async def watch(crawl: Crawl) -> None:
        for order in (Pause(), Add(["http://a.example/added"]), Resume()):
            tell(store, order)
            await trio.sleep(5.0)

    with trio.fail_after(100.0):
        assert (await runs.run(watchers=[watch])).reason == "finished"
    assert runs.sent["http://a.example/added"] == 1


async def test_an_order_that_fails_ends_neither_the_crawl_nor_the_orders_after_it(
    tmp_path: Path,
    autojump_clock: MockClock,
    store: SimulatedStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("trawl.engine.Crawl.drop", fail)
    runs = Runs(tmp_path, site(40), settings=SETTINGS)

    async def watch(crawl: Crawl) -> None:
        for order in (Drop("a.example"), SetLimits("a.example", {"dealy": 1})):
            tell(store, order)
        await trio.sleep(5.0)
        tell(store, Stop())

    assert (await runs.run(watchers=[watch])).reason == "stopped"
    messages = [record.message for record in caplog.records if record.name == "trawl.steering"]
    assert messages[0] == "an order in the job's store failed"
    assert messages[1].startswith("an order in the job's store was not executed: ")


async def test_a_stopped_job_ends_its_crawl_and_the_next_until_it_is_resumed(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=SETTINGS)

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(10.0)
        tell(store, Stop())

    assert (await runs.run(watchers=[stop])).reason == "stopped"
    count = len(runs.urls)
    assert (await runs.run()).reason == "stopped"
    assert len(runs.urls) <= count + 5
    tell(store, Resume())
    assert (await runs.run()).reason == "finished"
    assert runs.urls == all_urls(40)


async def test_a_crawl_says_how_it_is_with_its_renewals(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    found: list[SessionReport] = []

    async def ask(call: Call) -> Any:
        await trio.lowlevel.checkpoint()
        return store.run(*call)

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(20.0)
        found.extend((await report._report(ask, Keys("job"), Address.parse(URL), has_scopes=False)).sessions)

    runs = Runs(tmp_path, site(40), settings=SETTINGS)
    await runs.run(watchers=[watch])
    (session,) = found
    assert (session.number, session.works, session.exports, session.parts) == (1, True, True, 1024)
    assert session.status is not None
    assert session.status.pages > 5
    assert 0.5 < session.status.rates.pages.minute < 3.0
    assert "a.example delay" in session.status.waiting[0].words
    assert session.status.estimate is not None
    assert session.status.estimate.scope in SLOW
    assert 0.0 < session.lease_left <= 15.0


SESSIONS = [
    SessionReport(
        number=1,
        name="a:7",
        parts=512,
        status=CrawlStatus(at=61.0, pages=1200, rates=Rates(pages=Rate(minute=3.0)), estimate=Estimate(seconds=90.0)),
    ),
    SessionReport(
        number=2,
        name="b:\x1b8",
        parts=512,
        lease_left=-1.0,
        status=CrawlStatus(pages=300, waiting=[WaitingGroup(40, "a.example delay")]),
    ),
    SessionReport(number=3, name="c:9", works=False, exports=True, lease_left=3.0, is_other_version=True),
]


def test_the_table_has_a_row_a_process_and_a_sum() -> None:
    console = Console(width=140, file=io.StringIO())
    console.print(workers_table(SESSIONS))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"1 +a:7 +1 min 1 s +512/1024 +1,200 +3.0/s .* 1 min 30 s", text)
    assert re.search(r"2 +b:\\x1b8 \(late\)", text)
    assert re.search(r"3 +c:9 \(export\)", text)
    assert re.search(r"all +1,500", text)


def test_the_lines_below_it_say_what_is_waited_for_when_it_ends_and_who_has_another_version() -> None:
    assert waiting_lines(SESSIONS) == [
        "       40  a.example delay (session 2)",
        "pending ends in 1 min 30 s",
        "session 3 (c:9): its status is of another version of trawl",
    ]


@pytest.mark.parametrize("words", [["--why"], ["--json"]])
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(status=encode_status(CrawlStatus(version=99))), "its status is of another version of trawl"),
        (Reply(status=b"\xc1"), "its status is of another version of trawl"),
        (Reply(error="the request can't be read"), "the request can't be read"),
        ({"words": 1}, "the reply of its process is of another version of trawl"),
    ],
)
def test_a_job_of_another_version_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], reply: object, said: str
) -> None:
    job = tmp_path / "job"
    trio.run(lambda: open_and_close(job))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(job / SOCKET))
        listening.listen()
        answering = threading.Thread(target=answer_once, args=(listening, msgspec.json.encode(reply)))
        answering.start()
        assert main(["job", str(job), *words]) == 2
        answering.join()
    assert capsys.readouterr() == ("", f"trawl: job {job}: {said}\n")


async def open_and_close(job: Path) -> None:
    """Make a job without content."""
    await (await open_job(job, InlineBlocking())).aclose()


def answer_once(listening: socket.socket, reply: bytes) -> None:
    """Answer the first question with a reply."""
    with listening.accept()[0] as connection:
        connection.makefile("rb").readline()
        connection.sendall(reply + b"\n")


async def test_a_process_that_does_not_reply_is_not_taken_for_none(tmp_path: Path) -> None:
    job = await open_job(tmp_path / "job", InlineBlocking())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "job" / SOCKET))
        listening.listen()
        answering = threading.Thread(target=answer_once, args=(listening, b'{"error":"it is busy"}'))
        answering.start()
        with pytest.raises(UsageError, match="it is busy"):
            DirectoryLink(str(tmp_path / "job")).look(View())
        answering.join()
    (tmp_path / "job" / SOCKET).unlink()
    link = DirectoryLink(str(tmp_path / "job"))
    assert (
        link.look(View()).status.state == f"no process replies: running, process {os.getpid()}"
    )  # it is just starting
    await job.aclose()
    assert link.look(View()).status.state == "no process works on it: new"


@pytest.mark.parametrize(
    ("lease_left", "said"),
    [(30.0, "no process has replied yet: try again"), (-1.0, "no process works on it now")],
)
def test_a_process_that_has_not_replied_yet_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, lease_left: float, said: str
) -> None:
    """With a long lease, a process alone looks for questions rarely."""
    sessions = [SessionReport(number=1, name="here", lease_left=lease_left)]
    monkeypatch.setattr(report, "ask_processes", lambda *_: sessions)
    link = ServerLink(URL)
    assert link.why("a.example") == (said, [])
    assert link.effect_of(Drop("a.example")) == said


KILLED = SessionReport(number=1, name="here:1", lease_left=-9.0, status=CrawlStatus(pages=7))
NO_PROCESS = "no process works on it now"
NO_REPORT = "no process has reported yet: try again"


@pytest.mark.parametrize(
    ("session", "of_reasons", "of_json", "status"),
    [
        (KILLED, NO_PROCESS, NO_PROCESS, 0),
        (SessionReport(number=1, name="here:1", works=False, exports=True, lease_left=9.0), NO_PROCESS, NO_PROCESS, 0),
        (SessionReport(number=1, name="here:1", lease_left=9.0), NO_REPORT, NO_REPORT, 0),
        (SessionReport(number=1, name="here:1", lease_left=9.0, is_other_version=True), "", OTHER_VERSION, 2),
    ],
    ids=["killed", "it only exports", "no report yet", "of another version"],
)
def test_without_the_status_of_a_process_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    session: SessionReport,
    of_reasons: str,
    of_json: str,
    status: int,
) -> None:
    """The server keeps the last report of a process that was killed."""
    monkeypatch.setattr(report, "inspect_job", lambda *_, **__: SimpleNamespace(sessions=[session]))
    assert main(["job", URL, "--json"]) == 2
    assert capsys.readouterr() == ("", f"trawl: job {Address.parse(URL).shown}: {of_json}\n")
    assert main(["job", URL, "--why"]) == status
    assert capsys.readouterr().out.startswith(of_reasons)
    assert main(["job", URL, "--workers"]) == 0
    assert "here:1" in (said := capsys.readouterr().out)
    assert (NO_PROCESS in said) == (of_reasons == NO_PROCESS)


def test_the_panel_of_a_killed_job_shows_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "ask_processes", lambda *_: [KILLED])
    numbers: dict[str, Any] = dict.fromkeys(("leased", "failed", "given_up", "seen", "items"), 0)
    stored = JobReport(name=URL, owner=None, last_error="", pending=3, oldest_lease=None, scopes=[], kept={}, **numbers)
    monkeypatch.setattr(report, "inspect_job", lambda *_: stored)
    look = ServerLink(URL).look(View())
    assert (look.status.state, look.status.queued) == ("no process works on it: new", 3)


def test_a_panel_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    async def show(_: object, name: str, __: object) -> None:
        await trio.lowlevel.checkpoint()
        shown.append(name)

    monkeypatch.setattr("trawl.panel.Panel.show_job", show)
    monkeypatch.setattr(ServerLink, "look", lambda *_: None)
    assert main(["panel", "redis://user:secret@store/job", "--listen", "0"]) == 0
    assert len(shown) == 1
    assert "secret" not in shown[0]


@pytest.mark.parametrize("words", [["--add", "http://a.example/100"], ["--set", "a.example", "delay=2"]])
@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (-1, "too many orders wait for a process: give all URLs to one `--add -`"),
        (0, "there is no job of this name"),
    ],
)
def test_without_a_process_an_order_to_a_full_list_or_no_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], reply: int, told: str
) -> None:
    calls: list[Call] = []

    async def refuse(call: Call) -> int:
        await trio.lowlevel.checkpoint()
        calls.append(call)
        return reply

    monkeypatch.setattr(report, "_asked", lambda url, read: trio.run(read, refuse, Keys("job"), Address.parse(url)))
    monkeypatch.setattr(report, "ask_processes", lambda *_: [KILLED])
    monkeypatch.setattr(report, "inspect_job", lambda *_, **__: SimpleNamespace(sessions=[KILLED]))
    assert main(["job", URL, *words]) == 2
    assert told in capsys.readouterr().err
    assert calls[0][2][2] == 0


def test_a_view_that_was_not_asked_for_a_while_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server still has the old reply to the old question."""
    asked: list[str] = []
    now = [1000.0]

    def ask(_: str, id: str, *__: object) -> list[SessionReport]:
        asked.append(id)
        return [SessionReport(number=1, name="here", lease_left=30.0)]

    monkeypatch.setattr(report, "ask_processes", ask)
    monkeypatch.setattr("trawl.cli.job.time", SimpleNamespace(monotonic=lambda: now[0]))
    link = ServerLink(URL)
    for elapsed in (0.0, 1.0, 9.0, 600.0):
        now[0] += elapsed
        link.look(View())
    assert len(set(asked[:3])) == 1
    assert asked[3] != asked[2]


def test_a_job_in_a_directory_without_a_process_takes_no_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--workers"], ["--why"], ["--json"], ["--pause"], ["--drop", "a.example"], ["--add", "http://a/"]):
        assert main(["job", str(tmp_path), *words]) == 2
        assert capsys.readouterr().err == (
            f"trawl: job {tmp_path}: no process works on it now, so start its crawl first\n"
        )


async def test_orders_reach_a_process_that_joins_later(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=SETTINGS)

    async def steer(crawl: Crawl) -> None:
        await trio.sleep(5.0)
        tell(store, SetLimits("a.example", {"delay": 1.5}))
        tell(store, Add(["http://a.example/added"]))
        await trio.sleep(25.0)
        tell(store, Stop())

    result = await runs.run(watchers=[steer])
    assert result.reason == "stopped"
    assert runs.sent["http://a.example/added"] == 1
    tell(store, Resume())
    tell(store, Drop("a.example"))  # before the second run, which drops only pages of this time
    tell(store, Add(["http://a.example/acknowledged"]))  # no process has executed it
    delays: list[float] = []

    async def look(crawl: Crawl) -> None:
        with crawl.stay_open():
            await trio.sleep(5.0)
        delays.extend(scope.delay for scope in crawl.report() if scope.scope == "a.example")

    before = len(runs.sent)
    result = await runs.run(watchers=[look])
    assert delays == [1.5]
    assert [runs.sent[f"http://a.example/{page}"] for page in ("added", "acknowledged")] == [1, 1]
    assert result.stats["dropped_by_hand"] > 1
    assert len(runs.sent) == before + 1


async def test_a_dropped_host_has_left_the_store_when_the_order_is_executed(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=SETTINGS)
    left: list[int] = []

    async def steer(crawl: Crawl) -> None:
        await trio.sleep(10.0)
        with crawl.events(Steered) as events:
            tell(store, Drop("a.example"))
            async for _ in events:
                left.append(len(store.content[b"{job}:q"]) - crawl.in_flight)
                break

    result = await runs.run(watchers=[steer])
    assert (result.reason, left) == ("finished", [0])
    assert result.stats["dropped_by_hand"] > 1


async def test_items_are_collected_and_replies_stored_only_while_a_view_is_asked_for(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=SETTINGS)
    collected: list[tuple[bool, bool]] = []

    async def look(crawl: Crawl) -> None:
        store.run("ask", ["{job}:job"], ["id", '{"view":{}}', "10000000"])
        for seconds in (8.0, 20.0):
            await trio.sleep(seconds)
            replies = store.content[Keys("job").sessions.encode()][b"1 replies"]
            collected.append((ItemScraped in crawl._context.events.wanted, b"id" in replies))

    await runs.run(watchers=[look])
    assert collected == [(True, True), (False, False)]


async def test_the_list_of_orders_keeps_the_last_state_and_one_line_for_the_same_limits(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.run("head", ["{job}:job"], ["1", "format", "1"])
    for order in (Pause(), SetLimits("a", {"delay": 1}), Resume(), SetLimits("a", {"delay": 2}), Add(["http://a/"])):
        tell(store, order)
    flat = store.run("head", ["{job}:job"], ["0"])
    lines = dict(zip(flat[::2], flat[1::2], strict=True))[b"orders"].decode().split("\n")
    assert [line.split("\t")[2] for line in lines] == [
        '{"order":"resume"}',
        '{"order":"set","scope":"a","limits":{"delay":2}}',
        '{"order":"add","urls":["http://a/"]}',
    ]
    for number in range(150):
        tell(store, Add([f"http://a/{number}"]))
    flat = store.run("head", ["{job}:job"], ["0"])
    lines = dict(zip(flat[::2], flat[1::2], strict=True))[b"orders"].decode().split("\n")
    assert (len(lines), lines[0].split("\t")[1]) == (100, "state")
    of_no_process = [*stored_form(Add(["http://a/late"])), "0"]
    assert store.run("order", ["{job}:job"], of_no_process) == -1  # it must not push out another
    assert store.run("head", ["{job}:job"], ["0"]) == flat
    assert store.run("order", ["{job}:job"], [*stored_form(Resume()), "0"]) == 1  # it replaces the last state


def test_of_a_job_that_is_not_there_this_is_said(store: SimulatedStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", URL, "--pause"]) == 2
    assert main(["top", URL]) == 2
    assert capsys.readouterr().err.count("there is no job of this name") == 2


def test_of_a_directory_that_is_not_there_this_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["top"], ["job", "--why"], ["job"]):
        assert main([*words, str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("there is no job in this directory") == 3


def test_a_job_in_a_directory_is_refused_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["top"],):
        assert main([*words, str(tmp_path)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"trawl: job {tmp_path}: it is in a directory, so one process works on it: `trawl job ")
