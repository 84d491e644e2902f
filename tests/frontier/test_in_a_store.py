"""A job in a server that is simulated: the scripts are the real ones, each loss and each kill is deterministic."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from coredis.exceptions import NoScriptError
from coredis.parser import Parser
from trio.testing import MockClock

from tests.jobs.site import Linked, Runs, all_urls, site
from tests.jobs.test_every_step import ITEMS, items_of, runs_in
from tests.simulated_store import SimulatedStore
from trawl.blocking import InlineBlocking
from trawl.clock import WallClock
from trawl.engine import Crawl
from trawl.errors import JobError, SettingsError, UsageError
from trawl.feeds import FeedsSettings
from trawl.feeds.outbox import open_outbox
from trawl.frontier import JobSettings
from trawl.frontier.base import Record
from trawl.frontier.job import SessionLease
from trawl.frontier.job_frontier import open_frontier
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer, _mapped, connect
from trawl.frontier.redis.layout import Keys, key_of, mark_of, place_of
from trawl.frontier.redis.report import export_pending, failures, inspect_job, requeue_failed
from trawl.frontier.redis.startup import open_job
from trawl.frontier.running_callbacks import RunningCallbacks, state_folder
from trawl.http import Request, fingerprint
from trawl.testing import SimulatedWeb

pytestmark = pytest.mark.usefixtures("few_parts")

URL = "redis://user:secret@store/job"
HERE = Address.parse(URL)
QUICK = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "JOB_DIR": URL}
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "ROBOTSTXT_OBEY": False, "JOB_DIR": URL}
LEASE = 15.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    made = SimulatedStore(latency=0.01)
    for name in ("client.connect", "startup.connect_server"):
        monkeypatch.setattr(f"trawl.frontier.redis.{name}", made.connect)
    return made


def everything(folder: Path) -> Runs:
    runs = runs_in(folder)
    runs.settings = {**runs.settings, "JOB_DIR": URL}
    return runs


async def test_c1_a_crawl_that_is_stopped_again_and_again_visits_every_page_once(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=QUICK)
    reasons = []
    for _ in range(20):
        result = await runs.run(stop_after=0.5)
        reasons.append(result.reason)
        if result.reason == "finished":
            break
    assert reasons == [*["shutdown"] * (len(reasons) - 1), "finished"]
    assert len(reasons) > 2
    assert runs.urls == all_urls(40)
    assert {url for url, times in runs.sent.items() if times > 1} <= {"http://a.example/robots.txt"}
    assert result.stats["item_scraped_count"] == result.stats["response_status_count/200"] == 40
    assert result.stats["job_run_count"] == len(reasons)


@pytest.mark.long
async def test_c1_c7_killed_at_any_round_trip_nothing_is_lost_and_nothing_is_twice(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = everything(tmp_path)
    pictures: list[tuple[Any, bytes]] = []

    def photograph(number: int) -> None:
        pictures.append((store.saved(), runs.feed.read_bytes() if runs.feed.exists() else b""))

    store.fault = photograph
    assert (await runs.run()).reason == "finished"
    assert items_of(runs) == ITEMS
    store.fault = lambda number: None
    assert len(pictures) > 20
    for content, feed in pictures:
        store.restart(content)
        runs.feed.write_bytes(feed)
        again = everything(tmp_path)
        again.down(1.0)
        result = await again.run()
        assert result.reason == "finished"
        assert items_of(again) == ITEMS
        assert result.stats["item_scraped_count"] == len(ITEMS)


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
async def test_c1_c7_a_round_trip_that_is_lost_is_made_again_and_counts_once(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, fault: str
) -> None:
    # The first six round trips open the job; without an answer there it can't be opened.
    store.fault = lambda number: fault if number > 6 and number % 3 == 0 else None
    runs = everything(tmp_path)
    result = await runs.run()
    assert result.reason == "finished"
    assert items_of(runs) == ITEMS
    assert result.stats["item_scraped_count"] == len(ITEMS)
    assert result.stats["job_run_count"] == 1


async def test_a_reading_whose_answer_was_lost_does_not_bring_what_its_step_stored_twice(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    def record(path: str) -> Record:
        return Record(Request(f"http://a.example/{path}"), (("a.example", None),), "http://a.example")

    wall = WallClock.started(trio.current_time())
    async with open_job(HERE) as job:
        await (await open_frontier(job, Linked(), wall)).push_many([record("1"), record("2")])
    async with open_job(HERE) as job:
        frontier = await open_frontier(job, Linked(), wall)
        (lane,) = frontier.lanes()
        (first,) = await frontier.lease_many(lane, 1)
        taken: list[Record] = []

        async def take() -> None:
            taken.extend(await frontier.lease_many(lane, 3))

        lost = store.round_trips + 1
        store.fault = lambda number: "unanswered" if number == lost else None
        async with trio.open_nursery() as nursery:  # both go in one round trip
            nursery.start_soon(take)
            nursery.start_soon(frontier.acknowledge, first, [record("3")])
        assert store.round_trips == lost + 1
        while more := await frontier.lease_many(lane, 3):
            taken += more
        assert [each.request.url for each in taken] == ["http://a.example/2", "http://a.example/3"]
        assert frontier.statistics().pending == 0


async def test_while_the_store_is_away_nothing_is_sent_after_the_lease_and_then_all_goes_on(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="trawl.frontier")
    runs = Runs(tmp_path, site(40), settings={**EXACT, "DOWNLOAD_DELAY": 1.0})
    said: list[str] = []

    async def go_away(crawl: Crawl) -> None:
        await trio.sleep(5.0)
        store.is_away = True
        await trio.sleep(30.0)
        said.append(crawl.waiting()[0].reason.text(trio.current_time()))
        reason = crawl.why("a.example")
        assert reason is not None
        said.append(reason.limit)
        await trio.sleep(30.0)
        store.is_away = False

    result = await runs.run([go_away])
    assert result.reason == "finished"
    assert runs.urls == all_urls(40)
    assert set(runs.sent.values()) == {1}
    times = [time for time, _ in runs.times]
    assert not [time for time in times if 5.0 + 0.9 * LEASE < time < 65.0]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1.0 - 1e-9
    assert said == ["store (away for 30 s, nothing is sent: connection refused)", "store"]
    assert "its server is away (connection" in caplog.text
    assert "its server is back after" in caplog.text
    assert "secret" not in caplog.text


async def test_a_page_that_killed_three_processes_is_not_sent_any_more(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    poison = "http://a.example/3"
    folder = state_folder(HERE.shown)
    running = RunningCallbacks(folder)
    running.begin(fingerprint(Request(url=poison)), poison)
    (file,) = folder.iterdir()
    for n in range(3):  # as three killed processes leave it: not locked
        (folder / f"callbacks.{n}").write_bytes(file.read_bytes())
    running.close()
    runs = Runs(tmp_path, site(15), settings=QUICK)
    result = await runs.run()
    assert result.reason == "finished"
    assert [url for url in all_urls(15) if url not in runs.urls] == [f"http://a.example/{n}" for n in (3, 7, 8)]
    assert runs.sent[poison] == 0
    assert list(folder.iterdir()) == []
    assert (result.stats["process_death_count"], result.stats["fatal_callback_count"]) == (3, 1)


def test_a_store_is_away_since_the_first_call_without_a_response() -> None:
    lease = SessionLease()
    lease.asked_at = 5.0
    assert [lease.went_away(10.0, "no response within 5 s"), lease.went_away(12.0, "connection refused")] == [
        True,
        False,
    ]
    assert lease.why(12.0) == "away for 7 s, nothing is sent: connection refused"


async def test_a_store_that_does_not_respond_is_reported_as_that(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings={**EXACT, "DOWNLOAD_DELAY": 1.0})
    said: list[str] = []

    async def stall(crawl: Crawl) -> None:
        await trio.sleep(5.0)
        latency, store.latency = store.latency, 60.0
        for seconds in (LEASE, 10.0):
            await trio.sleep(seconds)
            said.append(crawl.waiting()[0].reason.text(trio.current_time()))
        store.latency = latency

    assert (await runs.run([stall])).reason == "finished"
    assert len(said) == 2
    assert all(words.startswith("store (it has not responded for ") and "scopes" not in words for words in said)
    assert said[1].endswith("nothing is sent)")


async def test_what_is_on_the_wire_when_the_lease_ends_is_cut_off_and_sent_again(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=40.0)
    web.add_page("http://a.example/")
    runs = Runs(tmp_path, web, settings=EXACT)

    async def go_away(crawl: Crawl) -> None:
        await trio.sleep(1.0)
        store.is_away = True
        await trio.sleep(30.0)
        assert crawl.in_flight <= 1
        store.is_away = False

    result = await runs.run([go_away])
    assert result.reason == "finished"
    assert runs.urls == ["http://a.example/"]
    _, second = [time for time, _ in runs.times]
    assert second >= 31.0


async def test_a_store_that_lost_steps_ends_the_run_and_the_next_one_has_everything_once(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(40), settings=QUICK)

    async def lose(crawl: Crawl) -> None:
        await trio.sleep(0.6)
        older = store.saved()
        await trio.sleep(0.3)
        store.restart(older)

    with pytest.raises(JobError, match=r"was restarted from an older state and has lost steps"):
        await runs.run([lose])
    result = await runs.run()
    assert result.reason == "finished"
    assert runs.urls == all_urls(40)


async def test_a_job_that_another_process_uses_is_refused_and_one_of_a_killed_process_is_waited_for(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    async with open_job(HERE):
        with pytest.raises(JobError, match=r"^job redis://store:6379/job: another process is using it \(.+:\d+\)"):
            async with open_job(HERE):
                pass
    began = trio.current_time()
    async with open_job(HERE) as job:
        assert trio.current_time() < began + 1.0
        assert not job.was_killed
        killed = store.saved()
    store.restart(killed)
    began = trio.current_time()
    async with open_job(HERE) as job:
        assert began + 0.9 * LEASE < trio.current_time() < began + LEASE + 1.0
        assert job.was_killed


async def test_r16_who_took_a_job_of_a_killed_process_and_sent_nothing_does_not_give_it_back_as_known(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    async with open_job(HERE) as job:
        killed = store.saved()
        assert not job.was_killed
    store.restart(killed)
    for _ in range(2):  # as ``trawl job --requeue-failed`` does, or a crawl whose feed can't be opened
        async with open_job(HERE) as job:
            assert job.was_killed
    result = await Runs(tmp_path, site(3), settings={**EXACT, "JOB_DIR": URL}).run()
    assert result.reason == "finished"
    async with open_job(HERE) as job:
        assert not job.was_killed


async def test_a_process_whose_job_was_taken_writes_nothing_more(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    async with open_job(HERE) as later:
        killed = store.saved()
        later.keep("mine", b"2")
        await later.commit()
        taken = store.saved()
        store.restart(killed)
        autojump_clock.jump(LEASE + 1.0)  # frozen
        other = store.run("join", Keys("job").of_join, ["other", 10**9, 1])[0]
        store.run("share", Keys("job").of_share, [other, 0, 10**9, 1, 1, 0, 0, "", "", 0, 0, "", 0])
        with pytest.raises(JobError, match=r"this process was away for too long, and others have taken over"):
            await later.commit()
        assert store.content != taken
        assert b"mine" not in store.content.get(Keys("job").kept.encode(), {})


async def test_c7_a_process_that_was_frozen_while_another_took_its_job_leaves_the_feeds_alone(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    feed = tmp_path / "items.jsonl"
    settings = FeedsSettings(feeds={str(feed): {"format": "jsonl"}})
    with pytest.RaisesGroup(pytest.RaisesExc(JobError, match="others have taken over"), flatten_subgroups=True):
        async with open_job(HERE) as job, trio.open_nursery() as nursery:
            _, outbox = await open_outbox(
                settings, InlineBlocking(), job, spider_name="x", started_utc=datetime(2026, 1, 1, tzinfo=UTC)
            )
            nursery.start_soon(outbox.write)
            await trio.sleep(1.0)
            await job.give([outbox.encode({"n": 1})])
            outbox.acknowledged(1)
            autojump_clock.jump(60.0)  # frozen
            other = store.run("join", Keys("job").of_join, ["other", 10**9, 1])[0]
            store.run("share", Keys("job").of_share, [other, 0, 10**9, 1, 1, 0, 0, "", "", 0, 0, "", 0])
            await trio.sleep(1.0)
            outbox.close()
    assert not feed.read_bytes()


async def test_r16_no_send_is_early_after_a_kill_while_the_store_was_away(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    runs = Runs(tmp_path, site(20), settings={**EXACT, "DOWNLOAD_DELAY": 6.0})
    kept: list[Any] = []

    async def go_away(crawl: Crawl) -> None:
        await trio.sleep(8.0)
        store.is_away = True
        kept.append(store.saved())
        await trio.sleep(10.0)
        crawl.cancel()

    with pytest.raises(JobError, match="its server is away"):
        await runs.run([go_away])
    latest = max(time for time, _ in runs.times)
    assert latest > 8.0, "nothing was sent while it was away: this proves nothing"
    store.is_away = False
    store.restart(kept[0])
    began, taken = trio.current_time(), []

    async def note(crawl: Crawl) -> None:
        taken.append(crawl.started_at - began)

    await runs.run([note], stop_after=30.0)
    assert runs.times[0][0] - taken[0] >= 6.0 - 0.001


@pytest.mark.parametrize(
    ("facts", "durability", "words"),
    [
        ({"redis_version": "6.0.9"}, "fast", "Redis 6.0.9 is too old: use 6.2 or later"),
        ({"valkey_version": "7.0.0"}, "fast", "Valkey 7.0.0 is too old: use 7.2 or later"),
        ({"role": "slave"}, "fast", "the server is a replica"),
        ({"cluster_enabled": "1"}, "fast", "the server is part of a cluster"),
        ({"config.maxmemory-policy": "allkeys-lru"}, "fast", "set maxmemory-policy noeviction"),
        ({"connected_slaves": "1", "config.min-replicas-to-write": "0"}, "fast", "set min-replicas-to-write 1"),
        ({"config.appendonly": "no"}, "always", "set appendonly yes and appendfsync always, or"),
        ({"config.appendfsync": "everysec"}, "always", "set appendfsync always, or give --job-durability fast"),
        ({}, "replicated", "the server has no replica"),
    ],
)
async def test_a_server_that_could_lose_what_is_asked_for_is_refused_in_one_line(
    autojump_clock: MockClock, store: SimulatedStore, facts: dict[str, str], durability: Any, words: str
) -> None:
    store.facts.update(facts)
    with pytest.raises((UsageError, JobError), match=words) as caught:
        async with open_job(HERE, durability):
            pass
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, JobError) is words.endswith("replica")  # which may change by itself
    assert not store.content


async def test_a_server_that_does_not_tell_its_configuration_is_warned_of(
    autojump_clock: MockClock, store: SimulatedStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.facts = {"redis_version": "7.2.4", "role": "master"}
    async with open_job(HERE):
        pass
    assert "the server does not show its configuration: it must have `maxmemory-policy noeviction`" in caplog.text


async def test_a_job_of_another_form_is_refused(autojump_clock: MockClock, store: SimulatedStore) -> None:
    store.run("head", [Keys("job").head], [1, "format", 1, "partitions", 1, "subsets", 4096])
    with pytest.raises(JobError, match="another release of trawl wrote it"):
        async with open_job(HERE):
            pass


@pytest.mark.parametrize("part", ["head", "queue", "kept", "items"])
async def test_what_something_else_wrote_into_the_store_ends_the_run(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, part: str
) -> None:
    runs = Runs(tmp_path, site(20), settings=QUICK)
    await runs.run(stop_after=0.5)
    keys = Keys("job")
    wrong: dict[str, Any] = {
        "head": {**store.content[keys.head.encode()], b"marks": b"x"},
        "queue": [(0.0, b"short")],
        "kept": {b"job": b"\xc1"},
        "items": [(7, [b"i", b"from nowhere"])],
    }
    store.content[getattr(keys, part).encode()] = wrong[part]
    if part == "items":
        store.content[keys.head.encode()][b"end"] = b"900"
    with pytest.raises(JobError, match=r"^job redis://store:6379/job: .*(it is damaged|can't be read|is missing)"):
        await runs.run()


async def test_an_empty_response_to_a_step_ends_the_job_and_does_not_count_as_stored(
    autojump_clock: MockClock, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def emptied(address: Address) -> AsyncIterator[StoreServer]:
        async with store.connect(address) as server:
            run = server.run

            async def run_and_lose(calls: Sequence[Call], replicas: int = 0) -> list[Any]:
                answers = await run(calls, replicas)
                return [[] if name == "apply" else answer for (name, *_), answer in zip(calls, answers, strict=True)]

            monkeypatch.setattr(server, "run", run_and_lose)
            yield server

    async with open_job(HERE, connect=emptied) as job:
        with pytest.raises(JobError, match="its server sent an unreadable response"):
            await job.give([b"item"])
        assert job.outbox_end == 0


@pytest.mark.parametrize(
    "url",
    [
        "redis://store",
        "redis:///job",
        "redis://store:x/job",
        "redis://u:secret@store/job?color=red",
        "redis+unix:///s",
        "redis://[::1/job",
        "redis://u:secret@[::1/job",
        "redis://u:a/secret@store/job",
        "redis://u:a#secret@store/job",
        "redis://u:a?secret=@store/job",
    ],
)
def test_an_address_that_is_not_one_is_refused_and_no_password_is_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="give redis://HOST") as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "BUSY Redis is busy running a script.",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
        "NOREPLICAS Not enough good replicas to write.",
        "OOM command not allowed",
        "READONLY You can't write against a read only replica.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "ERR max number of clients reached",
    ],
)
def test_a_server_that_can_not_answer_now_is_away(line: str) -> None:
    with pytest.raises(StoreConnectionError, match=line.split(" ", 2)[2].partition("(")[0]), _mapped(HERE):
        raise Parser().parse_error(line)


@pytest.mark.parametrize("line", ["NOPERM no permissions to access the key ROOMS", "BUSYGROUP it is there already"])
def test_a_server_that_refuses_for_good_is_not_waited_for(line: str) -> None:
    with pytest.raises(JobError, match=f"the server refuses: {line.split(' ', 1)[1]}"), _mapped(HERE):
        raise Parser().parse_error(line)


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_server_that_is_replaced_while_it_is_given_the_scripts_is_asked_again(times: int) -> None:
    asked: list[str] = []

    class Client:
        def __init__(self) -> None:
            self.connection_pool = self

        @asynccontextmanager
        async def acquire(self) -> AsyncIterator[Client]:
            yield self

        async def create_request(self, command: bytes, *given: object, disconnect_on_cancellation: bool) -> str:
            asked.append("run")
            if asked.count("run") <= times:
                raise NoScriptError("No matching script. Please use EVAL.")
            return "done"

        async def script_load(self, text: str) -> None:
            asked.append("load")

    server = StoreServer(Client(), HERE)
    if times == 2:
        with pytest.raises(StoreConnectionError, match="it has lost the scripts"):
            await server.run([("state", [], [])])
    assert await server.run([("state", [], [])]) == ["done"]
    assert asked.count("run") == times + 1
    assert ("load" in asked) is (times > 0)


def test_a_line_end_in_a_jobs_name_begins_no_line_of_the_log() -> None:
    address = Address.parse("redis://store/a%0a2026-01-01%20faked")
    assert (address.job, address.shown) == ("a\n2026-01-01 faked", "redis://store:6379/a%0A2026-01-01 faked")


async def test_the_client_does_not_say_in_the_log_what_is_said_here(monkeypatch: pytest.MonkeyPatch) -> None:
    # It logs a traceback of a hundred lines as an error if the network is cut while it connects.
    theirs = logging.getLogger("coredis")
    monkeypatch.setattr(theirs, "level", logging.NOTSET)
    with suppress(StoreConnectionError):
        async with connect(Address.parse("redis://127.0.0.1:1/job")):
            pass
    assert not theirs.isEnabledFor(logging.ERROR)


@pytest.mark.parametrize("scheme", ["http", "REDIS", "postgresql"])
def test_an_address_of_another_scheme_is_not_taken_for_a_directory(scheme: str) -> None:
    with pytest.raises(
        SettingsError, match=f"JOB_DIR must be a directory, or start with redis://.*not {scheme}://$"
    ) as caught:
        JobSettings(job_dir=f"{scheme}://me:secret@store/job")
    assert "secret" not in str(caught.value)


def test_addresses() -> None:
    there = Address.parse("redis://me:a%40b@[::1]:7000/shop/books?db=3")
    assert (there.job, there.shown) == ("shop/books", "redis://[::1]:7000/shop/books")
    assert there.options == {"db": 3, "username": "me", "password": "a@b", "host": "::1", "port": 7000}
    assert "a@b" not in repr(there)
    socket = Address.parse("redis+unix:///run/valkey.sock?job=books")
    assert (socket.job, socket.options) == ("books", {"db": 0, "unix_socket_path": "/run/valkey.sock"})
    assert socket.shown == "redis+unix:///run/valkey.sock?job=books"
    assert Address.parse("redis+unix:///run/s?job=books&shown=jobs%2Fa%20b%0A").shown == "jobs/a b%0A"
    assert "ssl_context" in Address.parse("rediss://store/books").options


def test_no_name_of_a_job_leaves_its_hash_slot_or_meets_the_keys_of_another() -> None:
    keys = Keys("a}b{c.0:m")
    assert keys.queue == "{a%7Db%7Bc.0%3Am}:q"
    assert Keys("a").queue != Keys("a:q").head


def test_sort_keys_compare_as_the_places_do() -> None:
    places = [
        (order, lane, priority, share)
        for lane in (-5, 3)
        for priority in (-7, 0, 2)
        for share in (-0.5, 0.0, 0.25)
        for order in (-3, 4)
    ]
    assert [place_of(key_of(place)) for place in places] == places
    assert sorted(places, key=key_of) == sorted(places, key=lambda place: (place[1], place[2], place[3], place[0]))


def test_marks_differ_and_fit_into_64_bits() -> None:
    marks = {mark_of(b"%16d" % number) for number in range(1000)}
    assert len(marks) == 1000
    assert all(0 <= subset < 65536 and -(2**63) <= mark < 2**63 for subset, mark in marks)


class Failing(Linked):
    name = "failing"


def test_trawl_job_shows_queues_again_and_prints_a_job_in_a_server(
    tmp_path: Path, store: SimulatedStore, in_trio: Callable[..., Any]
) -> None:
    web = site(5)
    web.add_page("http://a.example/1", status=500)
    settings = {**QUICK, "RETRY_TIMES": 0}
    runs = Runs(tmp_path, web, Failing, settings)
    assert in_trio(runs.run).reason == "finished"
    report = inspect_job(URL)
    assert (report.pending, report.failed, report.owner, report.items) == (0, 1, None, 0)
    (failure,) = failures(URL, 5)
    assert failure.url == "http://a.example/1"
    assert requeue_failed(URL, runs.now_utc) == 1
    assert (inspect_job(URL).pending, inspect_job(URL).failed) == (1, 0)
    assert inspect_job(URL).scopes == [("a.example", 1)]
    (line,) = export_pending(URL)
    assert b'"url":"http://a.example/1"' in line
    with pytest.raises(UsageError, match="there is no job of this name"):
        inspect_job("redis://store/other")


def test_b20_the_next_run_sends_requests_of_hosts_that_were_given_up_in_a_server_too(
    tmp_path: Path, store: SimulatedStore, in_trio: Callable[..., Any]
) -> None:
    down = SimulatedWeb()
    down.add_host("a.example", status=503)
    runs = Runs(tmp_path, down, settings=EXACT)
    result = in_trio(runs.run)
    assert (result.reason, result.stats["given_up_count"]) == ("finished", 1)
    report = inspect_job(URL)
    assert (report.pending, report.given_up, report.failed) == (1, 1, 0)
    assert failures(URL, 5) == []
    (failure,) = failures(URL, 5, are_given_up=True)
    assert failure.reason.startswith("its host was given up: no good response for 900 s")
    assert len(list(export_pending(URL))) == 1
    runs.web = site(5)
    result = in_trio(runs.run)
    assert runs.urls == all_urls(5)
    assert (inspect_job(URL).pending, inspect_job(URL).failed) == (0, 0)


@pytest.fixture
def in_trio() -> Callable[..., Any]:
    return lambda run: trio.run(run, clock=MockClock(autojump_threshold=0))
