"""A job's files that lead to other files, or belong to others."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.abandoning import abandon
from tests.feeds.fakes import opened as open_feed
from tests.other_user import OTHER_USER, another_user_has
from trawl.blocking import InlineBlocking
from trawl.cache.store import Store
from trawl.errors import FeedError, JobError
from trawl.frontier.inspect import inspect_job, requeue_failed
from trawl.frontier.lock import LOCK_NAME, JobLock
from trawl.frontier.sqlite import SqliteJob
from trawl.frontier.tables import connect

JOURNAL = bytes.fromhex("d9d505f920a163d7")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job at rest."""
    directory = tmp_path / "job"
    directory.mkdir(0o700)
    connect(directory)[0].close()
    return directory


def opened(directory: Path) -> None:
    abandon(SqliteJob(directory, InlineBlocking()))


def journal_of(job: Path, name: bytes) -> bytes:
    """A rollback journal of SQLite without pages that names a super-journal."""
    pages = (job / "job.db").stat().st_size // 4096
    header = (JOURNAL + struct.pack(">5I", 0, 1, pages, 512, 4096)).ljust(512, b"\0")
    check = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    return header + struct.pack(">I", (0x40000000 // 4096) + 1) + name + struct.pack(">II", len(name), check) + JOURNAL


def test_a_journal_that_names_another_file_deletes_nothing(job: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (job / "job.db-journal").write_bytes(journal_of(job, os.fsencode(other)))
    for call in (opened, inspect_job, lambda job: requeue_failed(job, datetime.now(UTC))):
        with pytest.raises(JobError, match=r"job\.db-journal names another file, which SQLite would delete"):
            call(job)
    assert other.read_text() == "mine"
    with closing(sqlite3.connect(job / "job.db")) as connection:  # as SQLite does: this test would see a change of that
        connection.execute("SELECT * FROM sqlite_master")
    assert not other.exists()


async def test_so_is_that_of_a_cache_and_of_a_feed(job: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (job / "job.db-journal").write_bytes(journal_of(job, os.fsencode(other)))
    with pytest.raises(OSError, match="names another file"):
        Store(job / "job.db")
    with pytest.raises(FeedError, match="names another file"):
        await open_feed(job / "job.db", format="sqlite")
    assert other.read_text() == "mine"


def test_a_journal_that_a_kill_left_while_a_job_was_made_is_no_harm(job: Path) -> None:
    (job / "job.db-journal").write_bytes(journal_of(job, b"")[:512])
    assert inspect_job(job).pending == 0


@pytest.mark.parametrize("name", ["job.db", "job.db-wal", "job.db-shm", "job.db-journal", LOCK_NAME])
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "another kind"])
def test_a_file_that_leads_to_another_is_refused_and_nothing_is_written(
    job: Path, tmp_path: Path, name: str, kind: str
) -> None:
    path, other = job / name, tmp_path / "other"
    if path.exists():
        path.rename(other)
    else:
        other.write_bytes(b"what is in it")
    before = other.read_bytes()
    if kind == "symbolic link":
        path.symlink_to(other)
    elif kind == "hard link":
        os.link(other, path)
    else:
        path.mkdir()
    with pytest.raises(JobError, match=f"^job {job}: .*({kind}|Is a directory)"):
        opened(job)
    assert other.read_bytes() == before
    assert (tmp_path / "job").is_dir()


CALLS: list[Callable[[Path], object]] = [opened, inspect_job, lambda job: requeue_failed(job, datetime.now(UTC))]
PLACES = [".", "job.db", "job.db-wal", "job.db-shm", "job.db-journal", LOCK_NAME]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [0o020, 0o002])
def test_a_job_that_others_may_write_is_refused_and_left_as_it_is(job: Path, place: str, bits: int) -> None:
    path = job / place
    path.touch(0o600)
    path.chmod(path.stat().st_mode | bits)
    before = (job / "job.db").read_bytes(), path.stat().st_mode
    for call in CALLS if place != LOCK_NAME else CALLS[::2]:  # who only reads takes no lock
        with pytest.raises(JobError, match=r"can be written by other users: .*`chmod -R go-w"):
            call(job)
    assert ((job / "job.db").read_bytes(), path.stat().st_mode) == before
    path.chmod(path.stat().st_mode & ~bits)
    assert inspect_job(job).pending == 0
    opened(job)


@pytest.mark.parametrize("place", PLACES)
def test_a_job_of_another_user_is_refused(job: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / place).touch(0o600)
    another_user_has(job / place, monkeypatch)
    for call in CALLS if place != LOCK_NAME else CALLS[::2]:
        with pytest.raises(JobError, match=rf"belongs to another user \(uid {OTHER_USER}\)"):
            call(job)


def test_a_new_job_in_a_directory_that_others_may_write_is_for_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    directory.mkdir()
    directory.chmod(0o777)
    opened(directory)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_with_any_umask_a_job_that_trawl_made_is_opened_again(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for _ in range(2):
            opened(tmp_path / "job")
        assert inspect_job(tmp_path / "job").pending == 0
    finally:
        os.umask(before)


def test_a_lock_that_is_held_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        JobLock(tmp_path).release()
    finally:
        os.umask(before)
    assert (tmp_path / LOCK_NAME).stat().st_mode & 0o777 == 0o600
