"""A job whose database something has damaged or changed: an error that says what and where, and nothing is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.jobs.killing import killed_after, put_back
from tests.jobs.site import Runs, all_urls, site
from trawl.cli import main
from trawl.errors import JobError

PAGES = 12
LARGE = 2**62
Damage = Callable[[Path], None]


def runs_in(folder: Path) -> Runs:
    """Runs of a crawl whose items come faster than they are copied to the feed."""
    settings = {"DOWNLOAD_DELAY": 0.04, "DOWNLOAD_DELAY_PER_SLOT": 0, "ROBOTSTXT_OBEY": False}
    return Runs(folder, site(PAGES), settings=settings)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a crawl that was killed, with pages pending and items not copied yet; and a copy of it."""
    folder = tmp_path_factory.mktemp("whole")
    album = tmp_path_factory.mktemp("album") / "killed"
    trio.run(killed_after, runs_in(folder), 0.58, album, clock=MockClock(autojump_threshold=0))
    with closing(sqlite3.connect(folder / "job" / "job.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        outbox, requests = (database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)
    assert outbox
    assert requests > 2
    picture = album.with_name("whole")
    (folder / "job" / "job.db-shm").unlink(missing_ok=True)
    (folder / "job" / "job.db-wal").unlink(missing_ok=True)
    folder.rename(picture)
    folder.mkdir()
    return folder, picture


TABLES = ("outbox", "request")


def said(statement: str, *values: object) -> Damage:
    """What a statement of SQL does."""

    def damage(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "job" / "job.db", isolation_level=None)) as database:
            database.execute(statement, values)

    return damage


def cut(size: int) -> Damage:
    """A file that ends too early."""

    def damage(folder: Path) -> None:
        with (folder / "job" / "job.db").open("r+b") as file:
            file.truncate(size)

    return damage


def flipped(what: bytes) -> Damage:
    """One bit of the file is another, in the first place where it says ``what``."""

    def damage(folder: Path) -> None:
        path = folder / "job" / "job.db"
        content = bytearray(path.read_bytes())
        content[content.index(what)] ^= 0x80
        path.write_bytes(content)

    return damage


def held_in(folder: Path) -> object:
    """What is in the feed and in the database, but for what is told of leases to whoever looks at a job."""
    path = folder / "job" / "job.db"
    feed = (folder / "items.jsonl").read_bytes()
    try:
        with closing(sqlite3.connect(path)) as database:
            return feed, [line for line in database.iterdump() if "frontier.leases" not in line]
    except (sqlite3.Error, UnicodeDecodeError):
        return feed, path.read_bytes()


LAST = "WHERE ord = (SELECT max(ord) FROM request)"
KEPT = "UPDATE kept SET blob = ? WHERE name = ?"
JOB_INFO = {"spider": "linked", "cls": "Linked", "begun_at": 2.0**63}

BEFORE_IT_BEGINS = [
    ("seen fingerprints and had", said("DELETE FROM seen")),
    ("had [0-9]+", said("DELETE FROM request")),
    ("had [0-9]+", said(f"DELETE FROM request {LAST}")),
    ("had x", said("UPDATE state SET value = 'x' WHERE name = 'requests'")),
    ("should wait for the feeds", said("DELETE FROM outbox")),
    ("should wait for the feeds", said("DELETE FROM state")),
    ("should wait for the feeds", said("INSERT INTO outbox VALUES (999, x'7b7d')")),
    ("should wait for the feeds", said("DELETE FROM state WHERE name = 'outbox_start'")),
    ("can't be numbered", said("DELETE FROM state WHERE name = 'outbox_end'")),
    ("can't be numbered", said("UPDATE state SET value = ? WHERE name = 'outbox_end'", LARGE)),
    ("can't be numbered", said("UPDATE state SET value = ? WHERE name = 'outbox_start'", LARGE)),
    ("can't be numbered", said("UPDATE state SET value = 'x' WHERE name = 'outbox_start'")),
    ("can't be numbered", said("UPDATE state SET value = -1 WHERE name = 'outbox_end'")),
    ("the invalid order", said(f"UPDATE request SET ord = {2**63 - 1} {LAST}")),
    ("the invalid order", said(f"UPDATE request SET ord = {-(2**63)} {LAST}")),
    ("fingerprints are not bytes", said("UPDATE seen SET fingerprint = hex(fingerprint)")),
    ("'throttle' is not bytes", said(KEPT, "text", "throttle")),
    ("'job' is not bytes", said(KEPT, 7, "job")),
    ("its runs can't be read", said(KEPT, msgspec.msgpack.encode((1, JOB_INFO)), "job")),
    ("its feeds can't be read", said(KEPT, b"", "feeds")),
    ("its feeds can't be read", said(KEPT, msgspec.msgpack.encode((1, {"a": {"position": -1}})), "feeds")),
    ("its version is 0", said("PRAGMA user_version = 0")),
    ("1 bytes", cut(1)),
    ("malformed", cut(8192)),
    ("text that is not UTF-8", flipped(b"uestrequest")),
    ("Could not decode", said("UPDATE kept SET name = CAST(x'ff68' AS TEXT) WHERE name = 'throttle'")),
]

ONCE_IT_IS_READ = [
    ("its item 4 can't be read", said("UPDATE outbox SET item = x'ff'")),
    ("its item 4 can't be read", said("UPDATE outbox SET item = CAST('[1]' AS BLOB)")),
    ("item 4, which waits for the feeds, is missing", said("UPDATE outbox SET item = 17")),
    ("has the priority 'x'", said(f"UPDATE request SET priority = 'x' {LAST}")),
    ("and the share x'7a'|and the share b'z'", said(f"UPDATE request SET share = x'7a' {LAST}")),
    ("is not bytes", said(f"UPDATE request SET record = 'text' {LAST}")),
    ("can't be used", said(f"UPDATE request SET record = x'c1' {LAST}")),
    ("can't be used", said(f"UPDATE request SET lane = 'x' {LAST}")),
]


@pytest.mark.parametrize(("what", "damage"), BEFORE_IT_BEGINS)
async def test_a_damaged_job_is_an_error_that_says_what_and_leaves_all_as_it_is(
    killed: tuple[Path, Path], autojump_clock: MockClock, what: str, damage: Damage
) -> None:
    folder, picture = killed
    put_back(picture, folder)
    damage(folder)
    runs = runs_in(folder)
    before = held_in(folder)
    with pytest.raises(
        JobError, match=f"^job {runs.directory}: it is damaged \\(.*{what}.*continue with an earlier copy"
    ):
        await runs.run()
    assert held_in(folder) == before


@pytest.mark.parametrize(("what", "damage"), ONCE_IT_IS_READ)
async def test_what_is_found_to_be_damaged_while_the_crawl_runs_ends_it_with_an_error(
    killed: tuple[Path, Path], autojump_clock: MockClock, what: str, damage: Damage
) -> None:
    folder, picture = killed
    put_back(picture, folder)
    damage(folder)
    runs = runs_in(folder)
    with trio.fail_after(1000), pytest.raises(JobError, match=f"^job {runs.directory}: .*({what}).*earlier copy"):
        await runs.run()


async def test_a_copy_of_the_job_goes_on_as_the_error_says(
    killed: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    folder, picture = killed
    put_back(picture, folder)
    runs = runs_in(folder)
    assert (await runs.run()).reason == "finished"
    assert runs.urls == all_urls(PAGES)


@pytest.mark.parametrize(("what", "damage"), [*BEFORE_IT_BEGINS, *ONCE_IT_IS_READ])
def test_whoever_looks_at_a_damaged_job_gets_a_line_and_no_traceback(
    killed: tuple[Path, Path], what: str, damage: Damage
) -> None:
    folder, picture = killed
    put_back(picture, folder)
    damage(folder)
    for option in ([], ["--export-pending"], ["--requeue-failed"]):
        assert main(["job", str(folder / "job"), *option]) in {0, 1}
