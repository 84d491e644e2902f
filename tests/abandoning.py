"""Abandons a job in a test as a killed process would. Nothing more is written."""

from __future__ import annotations

from trawl.errors import JobError
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.sqlite import SqliteJob

__all__ = ["abandon"]


def abandon(job: SqliteJob | RedisJob) -> None:
    """Abandon a job."""
    if isinstance(job, RedisJob):
        job.fail(JobError(f"job {job.name}: abandoned", job.name))
        return
    job._is_open = False
    job._connection.close()
    job._lock.release()
