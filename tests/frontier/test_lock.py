"""The lock of a job: held by one process, and in nobody's way who only looks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from trawl.errors import JobError
from trawl.frontier.lock import LOCK_NAME, JobLock, read_last_error, read_owner


def test_who_looks_at_a_job_is_not_in_the_way_of_who_begins_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LOCK_NAME).touch()
    looks: list[int] = []
    with (tmp_path / LOCK_NAME).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        def looked() -> None:
            looks.append(1)
            if len(looks) == 3:
                fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr("os.sched_yield", looked)
        JobLock(tmp_path).release()
        assert len(looks) == 3
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(JobError, match="is using it"):  # for ever: it does not only look
            JobLock(tmp_path)


def test_a_lock_that_is_a_link_is_refused_and_nothing_is_written_where_it_leads(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("what is in it", "utf-8")
    (tmp_path / LOCK_NAME).symlink_to(other)
    with pytest.raises(JobError, match=f"^job {tmp_path}: lock is a symbolic link: replace it"):
        JobLock(tmp_path)
    assert read_last_error(tmp_path) == ""
    with pytest.raises(JobError, match="symbolic link"):
        read_owner(tmp_path)
    assert other.read_text("utf-8") == "what is in it"


def test_a_lock_that_is_a_pipe_or_a_directory_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK_NAME)
    with pytest.raises(JobError):
        JobLock(tmp_path)
    assert (read_last_error(tmp_path), read_owner(tmp_path)) == ("", None)
    (tmp_path / LOCK_NAME).unlink()
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(JobError):
        JobLock(tmp_path)
    assert (read_last_error(tmp_path), read_owner(tmp_path)) == ("", None)
