"""Real servers that fill up, fail to write, change their role, lose what they had, or are somebody else's, too."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cli.trees import SPIDER, WITHIN, site, until_items
from tests.servers.stores import KINDS, StoreProcess, running_store
from trawl.errors import JobError, SessionEnded, TrawlError
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer, connect
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.startup import open_job

__all__ = ["site"]

pytestmark = pytest.mark.servers

PATIENCE = 120.0
MANY = 10_000


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with running_store(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - servers tell nobody
            await trio.sleep(0.02)


async def join(address: Address) -> None:
    """Take part in a job for a moment."""
    async with open_job(address, exports=False):
        pass


async def items_of(job: RedisJob) -> list[bytes]:
    """The items in its outbox."""
    return [each.item for each in await job.outbox_after(0, MANY)]


def fill(store: StoreProcess, folder: Path) -> None:
    store.ask("CONFIG", "SET", "maxmemory", "1")


def make_room(store: StoreProcess, folder: Path) -> None:
    store.ask("CONFIG", "SET", "maxmemory", "0")


def save(store: StoreProcess, told: bytes) -> None:
    """Have it saved, and wait until it says how that went."""
    store.ask("BGSAVE")
    until = time.monotonic() + PATIENCE
    while b"rdb_last_bgsave_status:" + told not in (said := store.ask("INFO", "persistence")):
        assert time.monotonic() < until, said
        time.sleep(0.02)


def break_the_disk(store: StoreProcess, folder: Path) -> None:
    (folder / "dump.rdb").mkdir()
    store.ask("CONFIG", "SET", "save", "3600 1")
    save(store, b"err")


def mend_the_disk(store: StoreProcess, folder: Path) -> None:
    (folder / "dump.rdb").rmdir()
    save(store, b"ok")


def demote(store: StoreProcess, folder: Path) -> None:
    store.ask("REPLICAOF", "127.0.0.1", "1")


def promote(store: StoreProcess, folder: Path) -> None:
    store.ask("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    ("begin", "end", "word"),
    [(fill, make_room, "OOM"), (break_the_disk, mend_the_disk, "MISCONF"), (demote, promote, "read only replica")],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_can_not_write_is_away_until_it_can(
    tmp_path: Path,
    kind: str,
    begin: Callable[[StoreProcess, Path], None],
    end: Callable[[StoreProcess, Path], None],
    word: str,
) -> None:
    with running_store(kind, tmp_path) as store:
        address = Address.parse(store.url("full"))
        async with open_job(address) as job:
            await job.give([b"before"])
            begin(store, tmp_path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(job.give, [b"meanwhile"])
                await until(lambda: job.lease.away_since is not None)
                assert word in job.lease.away_reason
                with pytest.raises(TrawlError, match=f"{word}|use its primary"):
                    await join(address)
                end(store, tmp_path)
            assert job.lease.away_since is None
            assert await items_of(job) == [b"before", b"meanwhile"]


@pytest.mark.parametrize("key", ["job", "u", "n", "own", "q", "a", "i", "k", "v", "f", "p"])
async def test_a_key_of_another_type_is_told_in_a_line(store: StoreProcess, key: str) -> None:
    store.ask("FLUSHALL")
    store.ask("SET", f"{{odd}}:{key}", "mine")
    with pytest.raises(JobError, match="another program has written one of the job's keys: delete that") as caught:
        await join(Address.parse(store.url("odd")))
    assert "\n" not in str(caught.value)
    assert store.ask("GET", f"{{odd}}:{key}").endswith(b"mine\r\n")


def test_a_job_that_was_flushed_ends_its_processes_and_is_not_begun_anew(
    tmp_path: Path, store: StoreProcess, site: list[str]
) -> None:
    store.ask("FLUSHALL")
    (tmp_path / "tree.py").write_text(SPIDER, encoding="utf-8")
    words = ["crawl", "tree.py", "-a", f"sites={site[0]}", "--job", store.url("flushed"), "-o", "items.jsonl"]
    command = [sys.executable, "-P", "-m", "trawl", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as crawl:
        until_items(tmp_path, 5)
        store.ask("FLUSHALL")
        _, said = crawl.communicate(timeout=WITHIN)
    assert crawl.returncode == 1, said
    assert "it is gone: its server does not have it: restore the server's file, or start again" in said
    assert store.ask("DBSIZE") == b":0\r\n"


async def test_a_server_with_an_older_file_gives_no_number_twice(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    with running_store("redis", data) as store:
        address = Address.parse(store.url("restored"))
        async with open_job(address, exports=False) as one:
            await one.give([b"1"])
            shutil.copytree(data, backup)
        async with open_job(address, exports=False) as two:
            await two.give([b"2"])
            store.kill()
            shutil.rmtree(data)
            shutil.copytree(backup, data)
            store.start()
            with pytest.raises(SessionEnded):
                await two.give([b"3"])
        async with open_job(address, exports=False) as three:
            assert three.session.number > two.session.number + 100
            assert await items_of(three) == [b"1"]


class Failing(StoreServer):
    """A connection to a server that some round trips cut off from its power: its file ends anywhere in their writes."""

    chance = 0.0
    cuts = 0

    def __init__(self, server: StoreServer, store: StoreProcess, rng: random.Random) -> None:
        self._server, self._store, self._rng = server, store, rng

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        confirmed = self._store.written  # it is the only one that writes, and every earlier answer came
        answers = await self._server.run(calls, replicas)
        if self._rng.random() < self.chance:
            Failing.cuts += 1
            self._store.cut_power(confirmed, self._rng)
            raise StoreConnectionError("its power was cut")
        return answers

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        return await self._server.read_stream(key, after, seconds)

    async def facts(self) -> Mapping[str, str]:
        return await self._server.facts()


@pytest.mark.parametrize("seed", range(3))
async def test_a_power_cut_loses_nothing_that_was_confirmed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    confirmed: list[bytes] = []

    @asynccontextmanager
    async def connect_to_failing(address: Address) -> AsyncGenerator[StoreServer, None]:
        async with connect(address) as server:
            yield Failing(server, running, rng)

    async def give(job: RedisJob, task: int) -> None:
        for number in range(20):
            item = b"%d of %d" % (number, task)
            await job.give([item])
            confirmed.append(item)

    with running_store("redis", tmp_path) as running:
        address = Address.parse(running.url("cut"))
        await join(address)
        async with open_job(address, exports=False, connect=connect_to_failing) as job:
            Failing.chance = 0.2
            async with trio.open_nursery() as nursery:
                for task in range(4):
                    nursery.start_soon(give, job, task)
            cuts, Failing.chance = Failing.cuts, 0.0
        async with open_job(address) as job:
            assert sorted(await items_of(job)) == sorted(confirmed)
    assert len(set(confirmed)) == 80
    assert cuts > 0


async def test_a_replica_that_is_promoted_has_all_that_was_confirmed_as_replicated(tmp_path: Path) -> None:
    """The second replica is one of the first: the promoted one needs a replica, too."""
    folders = [tmp_path / name for name in ("primary", "replica", "second")]
    for folder in folders:
        folder.mkdir()
    common = ("--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", "--replica-serve-stale-data", "yes")
    with (
        running_store("redis", folders[0], *common) as primary,
        running_store("redis", folders[1], *common, "--replicaof", f"127.0.0.1 {primary.port}") as replica,
        running_store("redis", folders[2], *common, "--replicaof", f"127.0.0.1 {replica.port}") as second,
    ):
        for each in (replica, second):
            await until(lambda each=each: b"master_link_status:up" in each.ask("INFO", "replication"))  # type: ignore[misc]
        await until(lambda: b"lag=0" in primary.ask("INFO", "replication"))
        first = primary

        @asynccontextmanager
        async def connect_to_first(address: Address) -> AsyncGenerator[StoreServer, None]:
            async with connect(Address.parse(first.url(address.job))) as server:
                yield server

        confirmed: list[bytes] = []
        address = Address.parse(primary.url("moved"))
        async with open_job(address, "replicated", connect=connect_to_first) as job, trio.open_nursery() as nursery:

            async def give(item: bytes) -> None:
                await job.give([item])
                confirmed.append(item)

            for number in range(20):
                await give(b"%d" % number)
            replica.stop()
            for number in range(20, 30):
                nursery.start_soon(give, b"%d" % number)
            await trio.sleep(0.5)
            assert len(confirmed) == 20, "a step counted that no replica has"
            assert b"20-0" in primary.ask("XRANGE", "{moved}:i", "20-0", "20-0")
            primary.kill()
            replica.go_on()
            replica.ask("REPLICAOF", "NO", "ONE")
            first = replica
        assert len(confirmed) == 30
        async with open_job(address, "replicated", exports=False, connect=connect_to_first) as job:
            assert sorted(await items_of(job)) == sorted(confirmed)
