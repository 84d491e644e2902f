"""What a job says of itself: whose it is, since when, and how far its ``start()`` has come."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from trawl.errors import UsageError
from trawl.frontier import JobStore, damaged
from trawl.frontier.sections import FACTS, Facts
from trawl.spiders import Spider

__all__ = ["Note", "note_of"]


class Note:
    """The facts of a job while it runs."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @property
    def begun_utc(self) -> datetime:
        """When the job began."""
        return datetime.fromtimestamp(self._facts.begun_at, UTC)

    @property
    def runs(self) -> int:
        """How often it was run, this time included."""
        return self._facts.runs

    @property
    def last_reason(self) -> str:
        """Why the last run ended; "" while one runs, and after a kill."""
        return self._facts.reason

    @property
    def is_started(self) -> bool:
        """Whether ``start()`` came to its end, in this run or an earlier one: it is not run again."""
        return self._facts.is_started

    def began(self, job: JobStore) -> None:
        """Count a run."""
        self._change(job, runs=self._facts.runs + 1, reason="")

    def started(self, job: JobStore) -> None:
        """Note that ``start()`` has come to its end: what it gave is stored, or is with the same transaction."""
        self._change(job, is_started=True)

    def ended(self, job: JobStore, reason: str) -> None:
        """Note how the run ended."""
        self._change(job, reason=reason)

    def _change(self, job: JobStore, **facts: object) -> None:
        self._facts = msgspec.structs.replace(self._facts, **facts)
        FACTS.keep(job, self._facts)


def note_of(job: JobStore, spider: Spider, now_utc: datetime) -> Note:
    """The note of a job, for this spider; a new job is given to it.

    Raises:
        UsageError: The job belongs to another spider: its requests name callbacks of that one.
        JobError: The note can't be read; nothing was changed.
    """
    name, cls = spider.name, type(spider).__qualname__
    facts = FACTS.read(job)
    if facts is None:
        if FACTS.name in job.kept:
            raise damaged(job.directory, "what it says of itself can't be read")
        return Note(Facts(spider=name, cls=cls, begun_at=now_utc.timestamp()))
    if (facts.spider, facts.cls) != (name, cls):
        raise UsageError(
            f"job {job.directory} belongs to spider {facts.spider!r} ({facts.cls}), not to {name!r} ({cls}):"
            f" give another directory"
        )
    return Note(facts)
