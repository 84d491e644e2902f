"""Values that a job saves beside its requests, by name, each with a version.

A job outlives the release that made it. A value that this release can't read, because it is damaged or of another
version, is left out with a warning: what was learned of a host is learned again. What must not be lost (requests,
items) is not kept here.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trawl.frontier.inspect import JobReport
    from trawl.frontier.job import Job

__all__ = [
    "JOB_INFO",
    "LEASES",
    "MARKS",
    "START_ITEMS",
    "STATISTICS",
    "JobInfo",
    "Section",
    "statistics_section",
    "statistics_so_far",
]

logger: logging.Logger = logging.getLogger("trawl.frontier")

T = TypeVar("T")


class Section(Generic[T]):
    """One named value of a job.

    Args:
        name: The name that it is kept under.
        kind: Its type; anything that msgspec reads.
        version: Of its form: raised when an older release would misread it, or this one what an older one wrote.
    """

    __slots__ = ("_decoder", "kind", "name", "version")

    def __init__(self, name: str, kind: type[T], version: int = 1) -> None:
        self.name: str = name
        self.kind: type[T] = kind
        self.version: int = version
        self._decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])

    def encode(self, value: T) -> bytes:
        """Encode the value as it is stored."""
        return msgspec.msgpack.encode((self.version, value))

    def keep(self, job: Job, value: T) -> None:
        """Save the value with the next transaction."""
        job.keep(self.name, self.encode(value))

    def read(self, job: Job | JobReport) -> T | None:
        """Return the saved value; None if there is none, or none that can be read."""
        return self.read_from(job.kept, job.name)

    def read_from(self, kept: Mapping[str, bytes], where: str) -> T | None:
        """Return the value that is among ``kept``; None if there is none, or none that can be read.

        Args:
            kept: Saved values by name.
            where: The job's name, for the warning.
        """
        blob = kept.get(self.name)
        if blob is None:
            return None
        try:
            version, value = self._decoder.decode(blob)
            if version == self.version:
                return msgspec.msgpack.decode(value, type=self.kind)
            reason = f"it is of version {version}, and this release reads {self.version}"
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"it can't be read: {error}"
        logger.warning("job %s: what it kept as %r is left out: %s", where, self.name, reason)
        return None


LATEST = 250_000_000_000
"""In epoch seconds the year 9892: what is later is damage."""


MARKS = 2
"""The version of the rule by which seen URLs are compared, ``trawl.http.url.sorted_url``."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a job.

    Attributes:
        spider: The spider's name.
        cls: The qualified name of its class. The module is left out: it depends on how the spider is started.
        begun_at: When the job began, in epoch seconds.
        runs: How often it was run.
        is_started: Whether ``start()`` has come to its end.
        reason: Why the last run ended; "" while one runs, and after a kill.
        marks: The version of the rule by which its seen URLs are compared. Since 2 it is that of ``w3lib.url``.
    """

    spider: str
    cls: str
    begun_at: Annotated[float, msgspec.Meta(ge=0, lt=LATEST)]
    runs: Annotated[int, msgspec.Meta(ge=0, lt=LATEST)] = 0
    is_started: bool = False
    reason: str = ""
    marks: int = 1

    @property
    def begun_utc(self) -> datetime:
        """The instant at which the job began."""
        return datetime.fromtimestamp(self.begun_at, UTC)

    def is_finished(self, pending: int) -> bool:
        """Return whether nothing is left to do, with this number of pending requests."""
        return self.is_started and not pending


JOB_INFO: Section[JobInfo] = Section("job", JobInfo)
"""Who the job belongs to, and how far it has come."""

START_ITEMS: Section[int] = Section("start", int)
"""How many items of ``start()`` are stored, while it has not come to its end; its next reading leaves out as many."""

LEASES = "frontier.leases"
"""Name of a saved value: the number of leases, the order of the oldest, and its time in seconds since 1970."""

STATISTICS: Section[dict[str, int | float | str | bool | None]] = Section(
    "statistics", dict[str, int | float | str | bool | None]
)
"""All statistics by their keys, as of the last transaction."""


def statistics_section(job: Job) -> Section[dict[str, int | float | str | bool | None]]:
    """Return where this process keeps its statistics: each of several that share a job has its own."""
    session = job.session
    return STATISTICS if session is None else Section(f"{STATISTICS.name}.{session.number}", STATISTICS.kind)


def statistics_so_far(job: Job | JobReport) -> dict[str, int | float | str | bool | None]:
    """Return the statistics of a job, those of all its processes added up; of what is no count, the largest or last."""
    total: dict[str, int | float | str | bool | None] = {}
    names = [name for name in sorted(job.kept) if name == STATISTICS.name or name.startswith(f"{STATISTICS.name}.")]
    for name in names:
        for key, value in (Section(name, STATISTICS.kind).read(job) or {}).items():
            known = total.get(key)
            if type(known) not in {int, float} or type(value) not in {int, float}:
                total[key] = value
            elif key in _LARGEST:
                total[key] = max(known, value)  # type: ignore[type-var]
            else:
                total[key] = known + value  # type: ignore[operator]
    return total


_LARGEST = {"elapsed_seconds", "job_run_count", "memusage/max", "memusage/startup", "request_depth_max"}
