"""The share that a process has of a job: the parts of it that are its own, and the changes.

A *session* is one process's membership in a job. The hosts of a job are in *parts* (:mod:`trawl.frontier.parts`), by
registrable domain, and each part has one session at most that *owns* it: only the owner sends to its hosts, so the
throttle of that process is exact for them. A request that another session finds is stored at once, and *arrives* here.

The store hands parts out; sessions come and go. Whoever runs the crawl reads one change after the other::

    parts gained      parts are ours: their lanes are in the frontier's memory, with what was kept of them
    parts wanted      by another session: nothing more is sent to their hosts; when nothing of a part is under way any
                      more it is given back, with what is to be kept of it
    requests arrived  that other sessions have found: they are in the frontier's memory
    items arrived     that other sessions have given: they are in the outbox of the one that exports
    start assigned    this session is to read ``start()``
    job over          nothing is pending in the job, nothing is under way and ``start()`` was read: the crawl ends
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import attrs
import msgspec

from trawl.frontier.base import LaneKey

__all__ = [
    "Change",
    "Counts",
    "ItemsArrived",
    "JobOver",
    "PartsGained",
    "PartsWanted",
    "RequestsArrived",
    "SessionState",
    "Share",
    "StartAssigned",
]


@attrs.frozen
class PartsGained:
    """Parts that are this session's from now on.

    Attributes:
        parts: Which.
        lanes: Their lanes with something pending; the frontier has them.
        pending: How many requests are pending in them, held ones included.
        kept: Of each part that has any, the values that its last owner kept, by name.
        unclean: Those that no owner gave back: what was sent to their hosts last is not known, and may have been sent
            until now.
    """

    parts: Sequence[int]
    lanes: Sequence[LaneKey] = ()
    pending: int = 0
    kept: Mapping[int, Mapping[str, bytes]] = {}
    unclean: Collection[int] = ()


@attrs.frozen
class PartsWanted:
    """Parts that other sessions wait for: they are still ours, and are to be given back, each as soon as it is free.

    Attributes:
        parts: Which.
    """

    parts: Sequence[int]


@attrs.frozen
class RequestsArrived:
    """Requests that other sessions have stored in parts of ours; the frontier has them.

    Attributes:
        lanes: Where they are.
        pending: How many they are.
    """

    lanes: Sequence[LaneKey]
    pending: int


@attrs.frozen
class StartAssigned:
    """This session is to read ``start()``: no other does, or the one that did is gone."""


@attrs.frozen
class JobOver:
    """Nothing is pending or under way in the whole job, and ``start()`` was read."""


@attrs.frozen
class ItemsArrived:
    """Items of other sessions are in the outbox; only where this session exports them.

    Attributes:
        end: The position of the last.
    """

    end: int


class Counts(NamedTuple):
    """The counts of all sessions since the first of those began that work on the job now.

    Attributes:
        pages: Pages, as ``CLOSESPIDER_PAGECOUNT`` counts them.
        in_flight: Requests on the wire.
        items: Items.
        errors: Callbacks that failed.
    """

    pages: int = 0
    in_flight: int = 0
    items: int = 0
    errors: int = 0


Change: TypeAlias = PartsGained | PartsWanted | RequestsArrived | ItemsArrived | StartAssigned | JobOver


class Share(Protocol):
    """This process's share of a job that several work on.

    ::

        change = await job.share.next_change()      in one task, one after the other
        if isinstance(change, PartsWanted):
            ...                                     let nothing more go to their hosts, wait for what is under way
            await job.share.give_back({part: {"throttle": blob}})
    """

    @property
    def session(self) -> int:
        """The number of this session: 1 for the first of the job. No two have the same."""
        ...

    @property
    def is_alone(self) -> bool:
        """No other session is there now, as far as is known."""
        ...

    @property
    def began_at(self) -> float:
        """The instant on the run clock at which the first session began of those that work on the job now."""
        ...

    def part_of(self, origin: str) -> int:
        """Return the part in which the requests of an origin are."""
        ...

    def owns(self, part: int) -> bool:
        """Return whether a part is this session's."""
        ...

    def owner_of(self, part: int) -> str:
        """Return the name of the process that has a part, as far as is known; "" where nobody has it."""
        ...

    def changes_so_far(self) -> Sequence[Change]:
        """Take out the changes that nobody has read yet: what they brought is in the frontier's counts."""
        ...

    async def next_change(self) -> Change:
        """Wait for the next change, which memory has followed already. For one task. A checkpoint.

        Raises:
            JobError: The job is this process's no more, or its store can't be read or written.
        """
        ...

    def leased_parts(self) -> Collection[int]:
        """Return the parts with requests that are leased: these can't be given back."""
        ...

    async def give_back(self, kept: Mapping[int, Mapping[str, bytes]]) -> int:
        """Give parts back, each with values that its next owner reads, in one step. A checkpoint.

        The frontier forgets their lanes.

        Returns:
            How many requests were pending in them, held ones included.

        Raises:
            JobError: The job is this process's no more, or its store can't be written.
            ValueError: A request of one of them is leased, or one is not this session's. None is given back.
        """
        ...

    def say(self, words: bytes) -> None:
        """Have what this session says of itself stored with its next renewal, for those who look at the job."""
        ...

    def count(self, counts: Callable[[], Counts], others: Callable[[Counts], None]) -> None:
        """Have what this session counts told to the others, and what they have counted to this one.

        That is each quarter of a second while others are there.

        Args:
            counts: Gives what this session has counted so far.
            others: Is called with what all others have, those included that are gone.
        """
        ...

    async def other_wish(self, known: str) -> str:
        """Wait until the job's processes are told to do something else than ``known``. A checkpoint.

        Returns:
            ``pause``: to send nothing; ``stop``: to end; "": to go on.
        """
        ...

    def ask_if_over(self, *, is_idle: bool) -> None:
        """Say whether this session has nothing to do, or has something again: only then it asks whether all is over."""
        ...

    @property
    def is_started(self) -> bool:
        """``start()`` was read to its end, by whichever session."""
        ...

    def started(self) -> None:
        """Have it written with the next step that ``start()`` has come to its end: no session reads it again."""
        ...


class SessionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one session, as it stores it with its renewals (:meth:`Share.say`) for those who look at the job.

    Attributes:
        since: When it began, in seconds since 1970.
        at: Seconds since then.
        pages: Responses so far.
        items: Items so far.
        queued: Requests that wait for any reason.
        in_flight: Requests on the wire.
        errors: Errors so far.
        rate: Pages a second, of late.
        waiting: What most of its requests wait for: how many they are, and for what, in words.
    """

    since: float
    at: float = 0.0
    pages: int = 0
    items: int = 0
    queued: int = 0
    in_flight: int = 0
    errors: int = 0
    rate: float = 0.0
    waiting: list[tuple[int, str]] = []

    def encode(self) -> bytes:
        """Return it as it is stored."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, blob: bytes) -> SessionState | None:
        """Return what was stored; None where it can't be read."""
        try:
            return msgspec.msgpack.decode(blob, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
