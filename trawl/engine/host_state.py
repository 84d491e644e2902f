"""Knowledge of hosts that a job stores for its crawl: the throttle's state, limits, robots.txt, cookies, spent quotas.

A job in a directory has one value of each kind. A job that several processes share has one value for each partition of
its hosts (:mod:`trawl.frontier.parts`), and the values move with the partition to its next owner. If the last owner did
not release a partition, it may have sent until now. The new owner therefore assumes that each scope sent at the
takeover, in every slot, and that the last owner spent all of its quotas' allowances. Clocks of two machines differ, so
the remaining wait of a scope when its state was stored counts from the takeover.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import trio

from trawl.cookies import Cookie
from trawl.frontier.parts import part_of
from trawl.frontier.sections import Section
from trawl.robots import RobotsCache, RobotsEntry
from trawl.throttling.job_scopes import moved, split
from trawl.throttling.snapshot import QuotaAllowance, ThrottleSnapshot

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.cookies import Jars
    from trawl.frontier.job import Job
    from trawl.frontier.parts import PartsReceived
    from trawl.throttling import Throttle

__all__ = ["INTERVAL", "LONGEST_QUIET", "HostState", "WriteTimer"]

logger: logging.Logger = logging.getLogger("trawl.engine")

T = TypeVar("T")

JarName = str | int | float | bool | None

Part: TypeAlias = "int | None"
"""Partition of a shared job; None: the job is not shared, and has one value of each kind."""

THROTTLE: Section[ThrottleSnapshot] = Section("throttle", ThrottleSnapshot)

LIMITS: Section[dict[str, dict[str, Any]]] = Section("limits", dict[str, dict[str, Any]])
"""Limits that were set at run time, by scope."""

PAGES: Section[dict[str, int]] = Section("pages", dict[str, int])

ROBOTS: Section[dict[str, RobotsEntry]] = Section("robots", dict[str, RobotsEntry])

AHEAD: Section[QuotaAllowance] = Section("ahead", QuotaAllowance)

COOKIES: Section[list[tuple[JarName, list[Cookie]]]] = Section("cookies", list[tuple[JarName, list[Cookie]]])

SMALL = 16_384
"""Maximum bytes of cookies that are stored with every transaction after a change."""


class HostState:
    """Stores the crawl's knowledge of hosts in its job, and restores the knowledge of earlier owners.

    Responses with robots.txt are valid for at most ``max_age`` seconds.
    """

    def __init__(self, job: Job, throttle: Throttle, jars: Jars, wall: WallClock, max_age: float) -> None:
        self.robots: RobotsCache = RobotsCache()
        self._job = job
        self._session = job.session
        self._throttle = throttle
        self._jars = jars
        self._wall = wall
        self._max_age = max_age
        self._parts: dict[Part, None] = {}
        self._cookies_kept = 0  # number of changes of the jars at the last write
        self._part_of: Callable[[str], Part] = _no_part  # of a URL
        if self._session is not None:
            self._part_of, throttle.part_of = part_of, _part_of

    def restore(self, now: float, *, asks_given_up: bool = False) -> None:
        """Restore the stored state of this process's partitions. Unreadable values are skipped with a warning.

        If ``asks_given_up``, requests to hosts that were given up may be sent, because this is another run.
        """
        was_killed, is_shared = self._job.was_killed, not self._job.is_alone
        parts: Iterable[Part] = [None] if self._session is None else sorted(self._session.parts.owned)
        for part in parts:
            kept = self._kept(part)
            self._take_up(part, kept, now, is_unclean=was_killed, is_shared=is_shared, asks_given_up=asks_given_up)

    def gained(self, change: PartsReceived, now: float) -> None:
        """Restore the state that the last owners of partitions stored."""
        unclean = set(change.unclean)
        for part in change.parts:
            self._take_up(part, change.kept.get(part, {}), now, is_unclean=part in unclean, is_shared=True)

    def _take_up(
        self,
        part: Part,
        kept: Mapping[str, bytes],
        now: float,
        *,
        is_unclean: bool,
        is_shared: bool = False,
        asks_given_up: bool = False,
    ) -> None:
        self._parts[part] = None
        where, wall, throttle = self._job.name, self._wall, self._throttle
        state, ahead = THROTTLE.read_from(kept, where), AHEAD.read_from(kept, where)
        if state is not None and asks_given_up:
            state = msgspec.structs.replace(state, given_up={})
        if state is not None and is_shared and state.at:
            state = moved(state, wall.to_epoch(now))
        # The owner may have sent after the promised time of its next store.
        if is_unclean and (state is not None or part is not None):
            state = msgspec.structs.replace(state or ThrottleSnapshot(at=wall.to_epoch(now)), unknown_until=math.inf)
            if ahead is not None and is_shared:
                ahead = msgspec.structs.replace(ahead, until=max(ahead.until, wall.to_epoch(now)))
        if state is not None or ahead is not None:
            throttle.restore(state or ThrottleSnapshot(at=wall.to_epoch(now)), now, ahead, part)
        throttle.restore_limits(LIMITS.read_from(kept, where) or {}, now)
        throttle.table.pages.restore(PAGES.read_from(kept, where) or {})
        self.robots.restore(ROBOTS.read_from(kept, where) or {}, self._epoch, now + self._max_age)
        for name, cookies in COOKIES.read_from(kept, where) or ():
            for cookie in cookies:
                self._jars.add(cookie, name)

    @property
    def size_bytes(self) -> int:
        """Bytes of all stored values of all partitions."""
        kept = [self._job.kept, *[self._kept(part) for part in self._parts if part is not None]]
        return sum([len(blob) for values in kept for blob in values.values()])

    def keep(self, now: float, next_in: float | None) -> None:
        """Store everything. The next write follows in ``next_in`` seconds; None: there is none."""
        # This process does not know the last sends to the hosts of partitions that it has received but not yet
        # restored.
        for part in self._unheard() if next_in is None else ():
            state = THROTTLE.read_from(self._kept(part), self._job.name) or ThrottleSnapshot(
                at=self._wall.to_epoch(now)
            )
            self._job.keep(THROTTLE.name, THROTTLE.encode(msgspec.structs.replace(state, unknown_until=math.inf)), part)
        self._keep(THROTTLE, self._states(now, next_in))
        self._keep(LIMITS, self._by_part(self._throttle.limits_set) if self._throttle.limits_set else {})
        self._keep(ROBOTS, self._by_part(self.robots.to_state(now, self._epoch), prefix=""))
        self.keep_cookies()

    def keep_pages(self) -> None:
        """Store the page counts of scopes with a page budget, with every transaction."""
        pages = self._throttle.table.pages.counts()
        if pages:
            self._keep(PAGES, self._by_part(pages))

    def keep_ahead(self, amounts: Mapping[str, float], until: float) -> None:
        """Store the amounts of quotas that may be spent until the wall time ``until``, in epoch seconds."""
        by_part = self._by_part(dict(amounts)) if amounts else {}
        self._keep(AHEAD, {part: QuotaAllowance(until=until, amounts=spent) for part, spent in by_part.items()})

    def keep_cookies(self) -> None:
        """Store the cookies."""
        self._cookies_kept = self._jars.changes
        self._keep(COOKIES, self._cookies())

    def keep_changed_cookies(self) -> None:
        """Store the cookies if they have changed and are small."""
        if self._jars.changes == self._cookies_kept:
            return
        if sum([len(self._kept(part).get(COOKIES.name) or b"") for part in self._parts]) <= SMALL:
            self.keep_cookies()

    def leave(self, parts: Iterable[int], now: float) -> dict[int, dict[str, bytes]]:
        """Return the values for the next owners of partitions, and stop storing them. Nothing may be in flight."""
        by_part: list[tuple[Section[Any], Mapping[Any, Any], Any]] = [
            (THROTTLE, self._states(now, None), ThrottleSnapshot(at=0.0)),
            (AHEAD, {}, QuotaAllowance(until=-math.inf)),
            (ROBOTS, self._by_part(self.robots.to_state(now, self._epoch), prefix=""), {}),
            (LIMITS, self._by_part(self._throttle.limits_set), {}),
            (PAGES, self._by_part(self._throttle.table.pages.counts()), {}),
            (COOKIES, self._cookies(), []),
        ]
        left: dict[int, dict[str, bytes]] = {}
        for part in parts:
            kept = self._kept(part)
            left[part] = {
                section.name: section.encode(values.get(part, nothing))
                for section, values, nothing in by_part
                if part in values or section.name in kept
            }
            del self._parts[part]
        return left

    def forget(self, parts: Collection[int], now: float) -> None:
        """Forget partitions that belong to other processes now."""
        self._throttle.forget(parts, now)
        self.robots.forget(lambda origin: part_of(origin) in parts)
        for _, jar in self._jars.items():
            jar.forget(lambda domain: _part_of(domain) in parts)

    def _states(self, now: float, next_in: float | None) -> dict[Part, ThrottleSnapshot]:
        snapshot = self._throttle.snapshot(now, next_in)
        if self._session is None:
            return {None: snapshot}
        found = split(snapshot, _part_of)
        states: dict[Part, ThrottleSnapshot] = {}
        for part in self._parts:
            assert part is not None
            state = found.get(part)
            until = self._throttle.unknown_until(part) if next_in is None else snapshot.unknown_until
            if next_in is None and until > -math.inf:  # for hosts to which nothing was sent since
                states[part] = msgspec.structs.replace(state or ThrottleSnapshot(at=snapshot.at), unknown_until=until)
            elif state is not None and state.scopes:
                states[part] = msgspec.structs.replace(state, unknown_until=until)
            elif state is not None:  # without times in the state, write it only after changes
                states[part] = msgspec.structs.replace(state, at=0.0, unknown_until=-math.inf)
        return states

    def _cookies(self) -> dict[Part, list[tuple[JarName, list[Cookie]]]]:
        """Return the cookies by partition and jar. Jars whose name can't be stored are skipped."""
        kept: dict[Part, list[tuple[JarName, list[Cookie]]]] = {}
        for name, jar in self._jars.items():
            if name is not None and not isinstance(name, JarName):
                words = "the cookies of jar %r are not kept: a job keeps those of jars named by a text or a number"
                logger.debug(words, name)
                continue
            by_part: dict[Part, list[Cookie]] = {}
            for cookie in jar:
                by_part.setdefault(self._part_of(f"//{cookie.domain}"), []).append(cookie)
            for part, cookies in by_part.items():
                kept.setdefault(part, []).append((name, cookies))
        return kept

    def _by_part(self, values: dict[str, T], *, prefix: str = "//") -> dict[Part, dict[str, T]]:
        """Return values by partition. ``prefix`` makes URLs of their names."""
        by_part: dict[Part, dict[str, T]] = {}
        for name, value in values.items():
            by_part.setdefault(self._part_of(prefix + name), {})[name] = value
        return by_part

    def _keep(self, section: Section[T], values: Mapping[Part, T]) -> None:
        """Store the value of each partition of this process if it has changed; None if a partition has no value."""
        for part in self._parts:
            value = values.get(part)
            blob = None if value is None else section.encode(value)
            if blob != self._kept(part).get(section.name):
                self._job.keep(section.name, blob, part)

    def _kept(self, part: Part) -> Mapping[str, bytes]:
        return self._job.kept if part is None else self._job.kept_of(part)

    def _unheard(self) -> list[int]:
        """Return partitions that this process has received but not yet restored."""
        return [] if self._session is None else sorted(self._session.parts.owned.keys() - self._parts.keys())

    @property
    def _epoch(self) -> float:
        return self._wall.to_epoch(0.0)


def _no_part(url: str) -> Part:
    return None  # a job of one process has one value of each kind


def _part_of(scope: str) -> int:
    """Return the partition of a scope, which is the partition of the host with the same name as the scope's id."""
    return part_of(f"//{scope}")


INTERVAL = 2.0
"""Minimum seconds between two writes of the knowledge of hosts."""

LONGEST_QUIET = 60.0
"""Maximum seconds between two writes. After a kill, scopes that may have sent in that time wait as if they had."""

_BYTES_A_SECOND = 500_000.0  # average rate of writes if the state is large


class WriteTimer:
    """Decides when a state is stored: some time after the last one, less often while nothing changes."""

    def __init__(self) -> None:
        self._stored_at = 0.0
        self._due_at = 0.0
        self._next_at = math.inf
        self._quiet = 0.0
        self._is_quiet = False
        self._wanted = trio.Event()
        self._alarm = trio.CancelScope()

    def is_due(self, now: float) -> bool:
        """Return True if a transaction at ``now`` should store the state."""
        return now >= self._due_at

    def want(self) -> None:
        """Request a transaction when the state is due, because something has changed."""
        self._wanted.set()

    def hurry(self, size_bytes: int) -> None:
        """Store the state as soon as its size allows."""
        if self._next_at < math.inf:
            self._due_at = min(self._due_at, self._stored_at + size_bytes / _BYTES_A_SECOND)

    def stored(self, now: float, size_bytes: int) -> float:
        """Record that the state is stored. Returns the seconds until the next time if nothing else is written."""
        interval = max(INTERVAL, size_bytes / _BYTES_A_SECOND)
        self._quiet = min(2.0 * self._quiet, max(interval, LONGEST_QUIET)) if self._is_quiet else interval
        self._is_quiet = False
        self._stored_at = now
        self._due_at = now + interval
        self._next_at = self._alarm.deadline = now + self._quiet
        return self._quiet

    def stop(self) -> None:
        """Store nothing any more."""
        self._due_at = self._next_at = math.inf

    async def until_due(self) -> None:
        """Return when a transaction must be made for the state. A checkpoint."""
        while True:
            # stored() moves this deadline whenever a transaction has stored the state.
            with trio.CancelScope(deadline=self._next_at) as self._alarm:
                await self._wanted.wait()
                await trio.sleep_until(self._due_at)
            was_wanted, self._wanted = self._wanted.is_set(), trio.Event()
            # Another transaction may have stored the state since and moved both times.
            if trio.current_time() >= (self._due_at if was_wanted else self._next_at):
                self._is_quiet = not was_wanted
                return
