"""The scopes of a crawl: made on demand, configured by id, woken at their own instants, forgotten when idle.

Theory of operation. :class:`ScopeTable` makes a scope when it is first needed. At each making the one or two scopes
that were looked at longest ago are looked at again: idle for long, they are forgotten, else they go to the end of the
line. So forgetting costs the same for ten scopes and for a hundred thousand, and nothing sweeps. A scope is never
forgotten while it is in flight, has something pending, backs off, holds or has spent quota (I01).

:class:`ScopePolicies` looks a configuration up by ``host:port``, then by ``host`` (E19); an id without an entry gets
the defaults of its form (I10).

:class:`ScopeTimers` knows the next instant at which each scope changes by itself: the end of a window, or of the time
after which it is given up. That instant is noted with the scope's state (``armed``); the heap remembers every instant
that was ever noted, and one that does not agree with the note is stale. A host that refuses and answers by turns notes
two instants each time, and the second may be weeks away: so the stale ones are thrown out whenever they could be half
of all.

:class:`CrawlDelays` holds the delays that robots.txt asks for. Several origins may lead to one scope: ``http`` and
``https`` of a host do, and all hosts at an address with ``CONCURRENT_REQUESTS_PER_IP``. The longest of their delays
counts, so that none is undercut. A new delay of an origin replaces its earlier one, also when it is gone from its
robots.txt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from trawl.throttling.backoff import backoff_of
from trawl.throttling.common import CommonScopes, ScopeHolder, may_be_common
from trawl.throttling.configuration import check_scope, load_object
from trawl.throttling.limits import Limits, limits_of
from trawl.throttling.managers import OnFailure, ThrottlingScopeManager, ignore_failure
from trawl.throttling.policy import AutoThrottle, ScopePolicy, ScopeState
from trawl.throttling.quota import PageBudgets
from trawl.throttling.rampup import rampup_of
from trawl.throttling.scope import CONFIGURED, Scope
from trawl.throttling.scopes import host_part, is_address, is_host_like, normal_id
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.shared import Line, SharedScope, check_shared

if TYPE_CHECKING:
    from trawl.throttling.allowance import Allowances

__all__ = ["CrawlDelays", "ScopePolicies", "ScopeTable", "ScopeTimers"]

_ROOM_TO_GROW = 64


class ScopeTimers:
    """The instants at which the scopes of a table are due.

    Args:
        scopes: The table.
    """

    __slots__ = ("_bound", "_heap", "_order", "_scopes")

    def __init__(self, scopes: ScopeTable) -> None:
        self._scopes = scopes
        self._heap: list[tuple[float, int, str]] = []
        self._order = 0
        self._bound = _ROOM_TO_GROW

    def __len__(self) -> int:
        """Count the instants that are remembered, stale ones included."""
        return len(self._heap)

    def next_at(self) -> float:
        """The first of them, which may be stale; ``inf`` for none."""
        return self._heap[0][0] if self._heap else inf

    def arm(self, scope: Scope) -> None:
        """Note anew when ``scope`` is due."""
        at = scope.state.due_at()
        if at == scope.state.armed:
            return
        scope.state.armed = at
        if at < inf:
            self._order += 1
            heappush(self._heap, (at, self._order, scope.id))
            if len(self._heap) > self._bound:
                self._throw_out()

    def passed(self, now: float) -> Iterator[Scope]:
        """The scopes that are due at ``now``, one by one, no longer armed: arm each anew."""
        while self._heap and self._heap[0][0] <= now:
            at, _, id = heappop(self._heap)
            scope = self._scopes.get(id)
            # Any other entry is stale: its scope was armed for another instant since, or is gone.
            if scope is not None and scope.state.armed == at:
                scope.state.armed = inf
                yield scope

    def _throw_out(self) -> None:
        kept = {}
        for entry in self._heap:
            scope = self._scopes.get(entry[2])
            if scope is not None and scope.state.armed == entry[0]:
                kept[entry[2]] = entry
        self._heap[:] = kept.values()
        heapify(self._heap)
        self._bound = 2 * len(self._heap) + _ROOM_TO_GROW


MAX_ORIGINS = 100
"""Origins that are told apart in one scope; of more, the longest wish is all that is kept."""


class CrawlDelays:
    """The Crawl-delays that are obeyed.

    Args:
        max_scopes: The maximum number of scopes; the oldest are forgotten.

    Attributes:
        wishes: The delay each origin asks for, in seconds, by scope. Empty in most crawls: test it before a call.
    """

    __slots__ = ("_max_scopes", "wishes")

    def __init__(self, max_scopes: int) -> None:
        self._max_scopes = max_scopes
        self.wishes: dict[str, dict[str, float]] = {}

    def of(self, id: str) -> float:
        """The Crawl-delay of a scope, in seconds; 0.0 for none."""
        return max(self.wishes.get(id, {}).values(), default=0.0)

    def say(self, id: str, origin: str, delay: float) -> bool:
        """Note the delay an origin asks for, in seconds; 0.0 for none. Returns True if that changes its scope."""
        before = self.of(id)
        if delay > 0.0:
            wishes = self.wishes.setdefault(id, {})
            # The shortest wish makes way, and the longer of the two stays: the limit never gets looser by it.
            if origin not in wishes and len(wishes) >= MAX_ORIGINS:
                origin = min(wishes, key=lambda known: wishes[known])
                delay = max(delay, wishes[origin])
            wishes[origin] = delay
        elif origin in self.wishes.get(id, {}):
            del self.wishes[id][origin]
            if not self.wishes[id]:
                del self.wishes[id]
        if len(self.wishes) > self._max_scopes:
            del self.wishes[next(iter(self.wishes))]
        return self.of(id) != before


_OWN_HOSTS = 10_000  # names without a dot that are remembered as hosts: intranets have few


class ScopePolicies:
    """The policies of all scopes of one crawl.

    Args:
        settings: The configuration.
        failed: Called when a user's strategy or scope manager fails.

    Raises:
        SettingsError: A scope's custom strategy can't be made.
    """

    def __init__(self, settings: ThrottlingSettings, failed: OnFailure = ignore_failure) -> None:
        self.settings = settings
        self._failed = failed
        per_ip = settings.concurrent_requests_per_ip
        self._ip_settings = msgspec.structs.replace(settings, concurrent_requests_per_domain=per_ip) if per_ip else None
        self._configs: dict[str, tuple[str, Mapping[str, Any]]] = {
            normal_id(key): (key, config) for key, config in settings.throttling_scopes.items()
        }
        self._own_hosts: dict[str, bool] = {}
        self._known: dict[tuple[str, bool, bool], ScopePolicy] = {}
        for id in self._configs:
            self.of(id)

    def of(self, id: str) -> ScopePolicy:
        """Return the policy of a scope with a normalised id; the same object for scopes configured alike."""
        is_host, is_ip = self._form(id)
        key, config = self._configs.get(id) or (is_host and self._configs.get(host_part(id))) or ("", {})
        known = self._known.get((key, is_host, is_ip))
        if known is None:
            known = self._known[key, is_host, is_ip] = self._made(key, config, is_host=is_host, is_ip=is_ip)
        return known

    def is_shared(self, id: str) -> bool:
        """Return True if requests to hosts of several registrable domains may need a scope: it is no host's own.

        Addresses are none where hosts are throttled by them: several domains may be at one (I05).
        """
        if self.of(id).config.get("shared"):
            return True
        if self._ip_settings is not None and is_address(id):
            return True
        return not is_host_like(id) and not self._own_hosts.get(id, False)

    def check_shared(self) -> None:
        """Refuse what shared scopes can't have.

        Raises:
            SettingsError: A scope that is configured can't be shared by several processes as it is.
        """
        for id in self._configs:
            if self.is_shared(id):
                check_shared(self.of(id), path=f"THROTTLING_SCOPES[{id!r}]")

    def own_host(self, id: str, *, is_slot: bool = False) -> None:
        """Note that ``id`` is the host of a request, or with ``is_slot`` that it has a host's limits."""
        if id not in self._own_hosts or not (is_slot or self._own_hosts[id]):
            self._own_hosts[id] = not is_slot
            if len(self._own_hosts) > _OWN_HOSTS:
                del self._own_hosts[next(iter(self._own_hosts))]

    def changed(self, id: str, changes: Mapping[str, Any]) -> ScopePolicy:
        """Return a scope's policy with a changed configuration (I12); nothing is changed before :meth:`keep`.

        Raises:
            SettingsError: A key is unknown or a value does not fit.
        """
        config = dict(self.of(id).config)
        # A delay and a rate say the same in two ways: the later replaces the earlier.
        if "delay" in changes:
            config.pop("rate", None)
        if "rate" in changes:
            config.pop("delay", None)
            config.pop("delay_per_slot", None)
        checked = check_scope({**config, **changes}, f"THROTTLING_SCOPES[{id!r}]")
        is_host, is_ip = self._form(id)
        return self._made(id, checked, is_host=is_host, is_ip=is_ip)

    def keep(self, id: str, policy: ScopePolicy) -> None:
        """Put a policy of :meth:`changed` in the place of the scope's, also for when it is made anew."""
        for known in [known for known in self._known if known[0] == id]:
            del self._known[known]
        self._configs[id] = (id, policy.config)
        self._known[id, *self._form(id)] = policy

    def _form(self, id: str) -> tuple[bool, bool]:
        """Return if a scope is host-like, and if it is an address that hosts are throttled by (I05).

        It is host-like by its form, or because it was a request's own host (E20).
        """
        is_host = is_host_like(id) or id in self._own_hosts
        return is_host, self._ip_settings is not None and is_host and is_address(id)

    def configured(self) -> list[tuple[str, ScopePolicy]]:
        """The scopes that have a configuration of their own."""
        return [(id, self.of(id)) for id in self._configs]

    def _made(self, key: str, config: Mapping[str, Any], *, is_host: bool, is_ip: bool) -> ScopePolicy:
        settings = self._ip_settings if is_ip and self._ip_settings is not None else self.settings
        path = f"THROTTLING_SCOPES[{key!r}]"
        backoff = backoff_of(config.get("backoff", {}), settings, f"{path}['backoff']", failed=self._failed)
        follows_latency = settings.autothrottle_enabled and is_host and "delay" not in config and "rate" not in config
        cls = load_object(config.get("manager") or settings.throttling_scope_manager, f"{path}['manager']")
        return ScopePolicy(
            config=config,
            limits=limits_of(config, settings, is_host=is_host),
            backoff=backoff,
            rampup=rampup_of(config.get("rampup", False), settings, window=backoff.window, max_delay=backoff.max_delay),
            autothrottle=_autothrottle(settings) if follows_latency else None,
            give_up_after=settings.backoff_give_up_after,
            source=path if key else CONFIGURED,
            manager=None if cls is ThrottlingScopeManager else cls,
            failed=self._failed,
        )


def _autothrottle(settings: ThrottlingSettings) -> AutoThrottle:
    return AutoThrottle(
        start_delay=settings.autothrottle_start_delay,
        min_delay=settings.download_delay,
        max_delay=settings.autothrottle_max_delay,
        target_concurrency=settings.autothrottle_target_concurrency,
    )


_LOOKS = 2
"""Scopes looked at for forgetting at each making."""

_LOOKS_AT_LIMIT = 32
"""The same while there are more than the limit."""


class ScopeTable:
    """Scopes by id, each with its policy.

    Args:
        policies: The configuration.
        seed: For the scopes' draws.

    Attributes:
        crawl: For the scope managers' ``from_crawler``.
        policies: The configuration.
        pages: The page budgets, also those of scopes that were forgotten.
    """

    def __init__(self, policies: ScopePolicies, *, seed: int | str) -> None:
        self.crawl: object = None
        self.policies: ScopePolicies = policies
        self.pages: PageBudgets = PageBudgets()
        self._seed = seed
        self._allowances: Allowances | None = None
        self._line: Line | None = None
        self._scopes: dict[str, Scope] = {}
        self._by_age: deque[str] = deque()
        self._common: CommonScopes | None = None
        self._holder: ScopeHolder | None = None
        self._has_job = False
        self._limit = policies.settings.throttling_scope_limit
        self._max_idle = policies.settings.throttling_scope_max_idle

    def __len__(self) -> int:
        return len(self._scopes)

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._scopes.values())

    def get(self, id: str) -> Scope | None:
        """The scope of a normalised id, if there is one."""
        return self._scopes.get(id)

    def made(self, id: str, now: float) -> tuple[Scope, bool]:
        """Return the scope of an id, and True if it was made just now."""
        # Most ids are normal already: a look-up costs less than to normalise them.
        scope = self._scopes.get(id) or self._scopes.get(id := normal_id(id))
        if scope is not None:
            return scope, False
        self._forget_some(now)
        policy = self.policies.of(id)
        common = self._common if may_be_common(policy, has_job=self._has_job) else None
        if common is not None and (found := common.get(id)) is not None:
            self._scopes[id] = found
            self._join(found)
            self._by_age.append(id)
            return found, True
        if self._line is None or not self.policies.is_shared(id):
            scope = Scope(id, policy.limits, seed=self._seed)
        else:
            scope = SharedScope(id, policy.limits, self._line, seed=self._seed)
        self._scopes[id] = scope
        scope.state = ScopeState(policy, now)
        try:
            scope.state.manager = self.manager_of(id, policy)  # it may set limits of this very scope
        except BaseException:
            del self._scopes[id]
            raise
        self.pages.keep(scope)
        self._allow(scope)
        scope.state.apply(scope)
        self._by_age.append(id)
        if common is not None:
            self._join(scope)
        return scope, True

    def forget(self, gone: Sequence[Scope]) -> None:
        """Forget scopes: another process goes on with them. None of them is in use."""
        for scope in gone:
            del self._scopes[scope.id]
            if self._allowances is not None:
                self._allowances.forget(scope.id)
        if gone:
            self._by_age = deque([id for id in self._by_age if id in self._scopes])

    def have_in_common(self, common: CommonScopes, holder: ScopeHolder, *, has_job: bool) -> None:
        """Have the scopes that are made from now on in common with other crawls; before the first is made."""
        self._common, self._holder, self._has_job = common, holder, has_job

    def _join(self, scope: Scope) -> None:
        if self._common is not None and self._holder is not None:
            self._common.join(scope, self._holder)

    def leave(self) -> None:
        """Have no scope in common any more: the crawl has ended."""
        for scope in self._scopes.values():
            self._part_from(scope)

    def _part_from(self, scope: Scope) -> None:
        if self._common is not None and self._holder is not None:
            if self._allowances is not None and scope.quota is not None and scope.holders:
                self._allowances.withdraw(scope.id, scope.quota)
            self._common.leave(scope, self._holder)

    def apply_limits(self, scope: Scope, limits: Limits, now: float) -> None:
        """Put other limits in force on a scope."""
        scope.apply_limits(limits, now)
        self.pages.keep(scope)
        self._allow(scope)

    def spend_by(self, allowances: Allowances) -> None:
        """Let quotas be spent only as far as ``allowances`` go: there is a job."""
        self._allowances = allowances
        for scope in self:
            self._allow(scope)

    def share_by(self, line: Line) -> None:
        """Have shared scopes granted by ``line``: several processes work on the job.

        Raises:
            SettingsError: A scope that is configured can't be shared as it is.
        """
        self.policies.check_shared()
        self._line = line

    def _allow(self, scope: Scope) -> None:
        if self._allowances is not None and scope.quota is not None:
            self._allowances.add(scope.id, scope.quota)

    def manager_of(self, id: str, policy: ScopePolicy) -> Any:
        """Make a scope manager; None for the default one. Raises whatever the user's class raises."""
        if policy.manager is None:
            return None
        make = getattr(policy.manager, "from_crawler", None)
        config = _merged(id, policy)
        return policy.manager(config) if make is None else make(self.crawl, config)

    def _forget_some(self, now: float) -> None:
        looks = _LOOKS if len(self._scopes) < self._limit else _LOOKS_AT_LIMIT
        for _ in range(min(looks, len(self._by_age))):
            scope = self._scopes[self._by_age[0]]
            state: ScopeState = scope.state
            idle = now - max(scope.last_sent, state.good_at, state.triggered_at, state.made_at)
            # At the limit whatever is quiet goes, however short a time it has been.
            is_due = idle > (self._max_idle if len(self._scopes) < self._limit else 0.0)
            if is_due and state.is_quiet(scope, now):
                self._by_age.popleft()
                del self._scopes[scope.id]
                self._part_from(scope)
                if self._allowances is not None:
                    self._allowances.forget(scope.id)
            else:
                # To the end, so that each is looked at in turn.
                self._by_age.rotate(-1)


def _merged(id: str, policy: ScopePolicy) -> Mapping[str, Any]:
    """A scope's configuration with the defaults filled in, for its manager (E17)."""
    limits, backoff = policy.limits, policy.backoff
    return {
        "id": id,
        "concurrency": limits.concurrency,
        "delay": limits.delay,
        "delay_per_slot": limits.delay_per_slot,
        "jitter": limits.jitter,
        "quota": limits.quota,
        "window": limits.window,
        "sliding": limits.sliding,
        "rampup": False,
        "ignore_robots_txt": False,
        **policy.config,
        "backoff": {
            "http_codes": sorted(backoff.http_codes),
            "exceptions": list(backoff.exceptions),
            "delay_factor": backoff.delay_factor,
            "max_delay": backoff.max_delay,
            "min_delay": backoff.min_delay,
            "jitter": backoff.jitter,
            "window": backoff.window,
            "concurrency_factor": backoff.concurrency_factor,
        },
    }
