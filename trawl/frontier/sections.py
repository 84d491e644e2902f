"""Values that a job saves in addition to its requests. Each has a name and a version.

A later release of trawl may continue a job. If a release can't read a value, because the value is damaged or has
another version, it logs a warning and ignores the value. The crawl then learns the content again, for example the state
of a host. Data that must not be lost (requests, items) is stored elsewhere.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Generic, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trawl.frontier.inspect import JobReport
    from trawl.frontier.job import Job

__all__ = [
    "DEATHS",
    "JOB_INFO",
    "LEASES",
    "MARKS",
    "START_ITEMS",
    "STATISTICS",
    "JobInfo",
    "PageDeaths",
    "Section",
    "deaths_in",
    "statistics_section",
    "statistics_so_far",
]

logger: logging.Logger = logging.getLogger("trawl.frontier")

T = TypeVar("T")


class Section(Generic[T]):
    """One named value of a job, of a type that msgspec can decode.

    Increase ``version`` if an older release would misread the new format, or if this release would misread the old one.
    """

    __slots__ = ("_decoder", "kind", "name", "version")

    def __init__(self, name: str, kind: type[T], version: int = 1) -> None:
        self.name: str = name
        self.kind: type[T] = kind
        self.version: int = version
        self._decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])

    def encode(self, value: T) -> bytes:
        """Return the encoded value in stored form."""
        return msgspec.msgpack.encode((self.version, value))

    def keep(self, job: Job, value: T) -> None:
        """Save the value with the next transaction."""
        job.keep(self.name, self.encode(value))

    def read(self, job: Job | JobReport) -> T | None:
        """Return the saved value; None if there is none or it can't be read."""
        return self.read_from(job.kept, job.name)

    def read_from(self, kept: Mapping[str, bytes], where: str) -> T | None:
        """Return the value in ``kept``; None if there is none or it can't be read. ``where`` is the job's name."""
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
        logger.warning("job %s: its saved value %r is ignored: %s", where, self.name, reason)
        return None


LATEST = 250_000_000_000
"""The year 9892, in seconds since the epoch. A later time means that the value is damaged."""

MARKS = 2
"""Version of the rule for comparing seen URLs, ``trawl.http.url.sorted_url``."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a job.

    Attributes:
        cls: The qualified name of the spider's class, without the module. The module depends on how the spider is
            started.
        begun_at: Wall time at which the job started, in seconds since the epoch.
        is_started: Whether ``start()`` was read to its end.
        reason: Why the last run ended; "" during a run and after a kill.
        marks: Version of the rule for comparing its seen URLs. Version 2 is the rule of ``w3lib.url``.
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
        """Time at which the job started, in UTC."""
        return datetime.fromtimestamp(self.begun_at, UTC)

    def is_finished(self, pending: int) -> bool:
        """Return whether the job is finished, given the number of pending requests."""
        return self.is_started and not pending


JOB_INFO: Section[JobInfo] = Section("job", JobInfo)
"""The spider and the progress of the job."""

START_ITEMS: Section[int] = Section("start", int)
"""Number of stored items of ``start()``, if it was not read to its end. The next run skips this many items."""

LEASES = "frontier.leases"
"""Name of a saved value: the number of leases, and the arrival order and start of the oldest lease.

The start is in seconds since the epoch.
"""

Statistics: TypeAlias = "dict[str, int | float | str | bool | None]"

STATISTICS: Section[Statistics] = Section("statistics", dict[str, int | float | str | bool | None])
"""All statistics by key, as they were in the last transaction."""


DEATHS = "deaths."
"""First part of the names of saved values. The rest of a name is the key of a page, in hexadecimal digits."""


class PageDeaths(msgspec.Struct, frozen=True):
    """The deaths of processes during the callback of a page.

    Attributes:
        count: Number of deaths.
        url: The URL of the page, for messages.
        is_lease_lost: Whether the last one was a lost lease, and not a death.
        place: The code that ran: ``callback``, ``middleware`` or ``start()``.
    """

    count: int
    url: str
    is_lease_lost: bool = False
    place: str = "callback"


def deaths_in(kept: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the deaths among saved values. They change whenever a death is counted or a page fails."""
    return {name: blob for name, blob in kept.items() if name.startswith(DEATHS)}


def statistics_section(job: Job) -> Section[Statistics]:
    """Return this process's section of the statistics. Each process of a shared job has its own."""
    session = job.session
    return STATISTICS if session is None else Section(f"{STATISTICS.name}.{session.number}", STATISTICS.kind)


def statistics_so_far(job: Job | JobReport) -> Statistics:
    """Return the statistics of a job: each count summed over its processes, and the largest or last other values."""
    total: Statistics = {}
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
