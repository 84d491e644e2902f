"""The lock of a job: held by one process, and in nobody's way who only looks."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from trawl.errors import JobError
from trawl.frontier.lock import LOCK_NAME, JobLock


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
        with pytest.raises(JobError, match="is at work on it"):  # for ever: it does not only look
            JobLock(tmp_path)
