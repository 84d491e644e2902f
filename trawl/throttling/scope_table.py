"""The scopes of a crawl: made on demand, configured by id, changed at scheduled times, forgotten when idle.

:class:`ScopeTable` makes a scope when it is first needed. It then checks the one or two scopes with the oldest check,
forgets them if they were idle for long, and moves the others to the end of its queue. So forgetting costs the same for
ten scopes and for a hundred thousand, without a full pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from trawl.throttling.backoff import Backoff, backoff_of
from trawl.throttling.common import CommonScopes, ScopeHolder, may_be_common
from trawl.throttling.configuration import check_scope, load_object
from trawl.throttling.limits import TABLE, Limits, limits_of
from trawl.throttling.managers import OnFailure, ThrottlingScopeManager, ignore_failure
from trawl.throttling.policy import AutoThrottle, ScopePolicy, ScopeState
from trawl.throttling.quota import PageBudgets
from trawl.throttling.rampup import rampup_of
from trawl.throttling.scope import CONFIGURED, Scope
from trawl.throttling.scopes import BROWSER, host_part, is_address, is_host_like, normal_id
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.shared import SharedScope, SharedScopeClient, can_share, check_shared

if TYPE_CHECKING:
    from trawl.throttling.allowance import Allowances

__all__ = ["CrawlDelays", "ScopePolicies", "ScopeTable", "ScopeTimers", "changed"]

_ROOM_TO_GROW = 64


class ScopeTimers:
    """The times at which scopes change by themselves: the end of a window, or the time at which one is given up.

    The heap contains every time that was ever scheduled, and an entry that differs from the state's ``armed`` is stale.
    A host that alternates between refusals and good responses schedules two times for each pair, and the second may be
    weeks away. Stale entries are therefore removed when they could be half of all.
    """

    __slots__ = ("_bound", "_heap", "_order", "_scopes")

    def __init__(self, scopes: ScopeTable) -> None:
        self._scopes = scopes
        self._heap: list[tuple[float, int, str]] = []
        self._order = 0
        self._bound = _ROOM_TO_GROW

    def __len__(self) -> int:
        """Count the entries, including stale ones."""
        return len(self._heap)

    def next_at(self) -> float:
        """Return the earliest time, which may be stale; ``inf`` if there is none."""
        return self._heap[0][0] if self._heap else inf

    def arm(self, scope: Scope) -> None:
        """Schedule the next event of ``scope``."""
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
        """Yield the scopes that are due at ``now`` and disarm them. The caller must arm each again."""
        while self._heap and self._heap[0][0] <= now:
            at, _, id = heappop(self._heap)
            scope = self._scopes.get(id)
            # Other entries are stale, because their scope was armed for another time since, or is gone.
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


MAX_ORIGINS = 100  # maximum number of origins per scope. Beyond it, only the longest delay is kept.


class CrawlDelays:
    """The Crawl-delays that are obeyed.

    Several origins may lead to one scope: ``http`` and ``https`` of a host do, and with ``CONCURRENT_REQUESTS_PER_IP``
    all hosts at an address. The longest of their delays applies, so that every robots.txt is obeyed.

    Beyond the maximum number of scopes, the oldest are forgotten.
    """

    __slots__ = ("_max_scopes", "wishes")

    def __init__(self, max_scopes: int) -> None:
        self._max_scopes = max_scopes
        # The delay of each origin in seconds, by scope. Empty in most crawls, so test it before a call.
        self.wishes: dict[str, dict[str, float]] = {}

    def of(self, id: str) -> float:
        """Return the Crawl-delay of a scope, in seconds; 0.0 for none."""
        return max(self.wishes.get(id, {}).values(), default=0.0)

    def say(self, id: str, origin: str, delay: float) -> bool:
        """Store the Crawl-delay of an origin in seconds; 0.0 for none. Returns True if that changes its scope."""
        before = self.of(id)
        if delay > 0.0:
            wishes = self.wishes.setdefault(id, {})
            # Replace the shortest delay, and keep the longer of the two, so that the limit never becomes looser.
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


_OWN_HOSTS = 10_000  # maximum number of names without a dot that are remembered as hosts; intranets have few


class ScopePolicies:
    """The policies of all scopes of one crawl, looked up by ``host:port``, then by ``host``.

    Raises:
        SettingsError: If a scope's custom strategy can't be made.
    """

    def __init__(self, settings: ThrottlingSettings, failed: OnFailure = ignore_failure) -> None:
        self.settings = settings
        # Returns True for hosts that rendered pages of several processes need, and None for hosts that they may need,
        # which are shared if their limits allow it. None if there are no such hosts.
        self.shares_host: Callable[[str], bool | None] | None = None
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
        """Return the policy of a scope with a normalized id; the same object for scopes with the same configuration."""
        is_host, is_ip = self._form(id)
        key, config = self._configs.get(id) or (is_host and self._configs.get(host_part(id))) or ("", {})
        known = self._known.get((key, is_host, is_ip))
        if known is None:
            known = self._known[key, is_host, is_ip] = self._made(key, config, is_host=is_host, is_ip=is_ip)
        return known

    def is_shared(self, id: str) -> bool:
        """Return True if a scope does not belong to a single host, so that several registrable domains may need it.

        If hosts are throttled by address, addresses count as shared, because several domains may have the same address.
        """
        if self.of(id).config.get("shared"):
            return True
        if self._ip_settings is not None and is_address(id):
            return True
        if self.shares_host is not None and is_host_like(id):
            is_needed = self.shares_host(host_part(id))
            if is_needed or (is_needed is None and can_share(self.of(id))):
                return True
        # Each process has its own browser.
        return id != BROWSER and not is_host_like(id) and not self._own_hosts.get(id, False)

    def check_shared(self) -> None:
        """Raise SettingsError if several processes can't share a configured scope as it is."""
        for id in self._configs:
            if self.is_shared(id):
                check_shared(self.of(id), path=f"THROTTLING_SCOPES[{id!r}]")

    def own_host(self, id: str, *, is_slot: bool = False) -> None:
        """Record that ``id`` is the host of a request, or with ``is_slot`` that it has the limits of a host."""
        if id not in self._own_hosts or not (is_slot or self._own_hosts[id]):
            self._own_hosts[id] = not is_slot
            if len(self._own_hosts) > _OWN_HOSTS:
                del self._own_hosts[next(iter(self._own_hosts))]

    def changed(self, id: str, changes: Mapping[str, Any]) -> ScopePolicy:
        """Return a policy with changes, not used before :meth:`keep`. Raises SettingsError if one is invalid."""
        checked = check_scope(changed(self.of(id).config, changes), f"THROTTLING_SCOPES[{id!r}]")
        is_host, is_ip = self._form(id)
        return self._made(id, checked, is_host=is_host, is_ip=is_ip)

    def keep(self, id: str, policy: ScopePolicy) -> None:
        """Replace the policy of a scope by a result of :meth:`changed`, even if the scope is made again later."""
        for known in [known for known in self._known if known[0] == id]:
            del self._known[known]
        self._configs[id] = (id, policy.config)
        self._known[id, *self._form(id)] = policy

    def _form(self, id: str) -> tuple[bool, bool]:
        """Return whether a scope is host-like, and whether it is an address by which hosts are throttled.

        A scope is host-like by its form, or because it was a request's own host.
        """
        is_host = is_host_like(id) or id in self._own_hosts
        return is_host, self._ip_settings is not None and is_host and is_address(id)

    def configured(self) -> list[tuple[str, ScopePolicy]]:
        """Return the scopes with their own configuration."""
        return [(id, self.of(id)) for id in self._configs]

    def _made(self, key: str, config: Mapping[str, Any], *, is_host: bool, is_ip: bool) -> ScopePolicy:
        settings = self._ip_settings if is_ip and self._ip_settings is not None else self.settings
        path = f"THROTTLING_SCOPES[{key!r}]"
        backoff = backoff_of(config.get("backoff", {}), settings, f"{path}['backoff']", failed=self._failed)
        autothrottle = None
        if settings.autothrottle_enabled and is_host and "delay" not in config and "rate" not in config:
            autothrottle = AutoThrottle(
                start_delay=settings.autothrottle_start_delay,
                min_delay=settings.download_delay,
                max_delay=settings.autothrottle_max_delay,
                target_concurrency=settings.autothrottle_target_concurrency,
            )
        cls = load_object(config.get("manager") or settings.throttling_scope_manager, f"{path}['manager']")
        return ScopePolicy(
            config=config,
            limits=limits_of(config, settings, is_host=is_host),
            backoff=backoff,
            rampup=rampup_of(config.get("rampup", False), settings, window=backoff.window, max_delay=backoff.max_delay),
            autothrottle=autothrottle,
            give_up_after=settings.backoff_give_up_after,
            source=_tabs(config) if key == BROWSER else path if key else CONFIGURED,
            manager=None if cls is ThrottlingScopeManager else cls,
            failed=self._failed,
        )


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scope's configuration with ``changes``. A later delay replaces a rate, and the other way round."""
    gone = {"rate"} if "delay" in changes else set()
    if "rate" in changes:
        gone |= {"delay", "delay_per_slot"}
    return {**{key: value for key, value in config.items() if key not in gone}, **changes}


def _tabs(config: Mapping[str, Any]) -> str:
    """Return why a page waits if all places of the scope of rendered pages are taken."""
    tabs = config.get("concurrency", inf)
    return f"{tabs:g} of {tabs:g} tabs are in use (BROWSER_PAGES)"


_LOOKS = 2  # number of scopes that are checked for forgetting when a scope is made
_LOOKS_AT_LIMIT = 32  # the same number while there are more scopes than the limit


class ScopeTable:
    """The scopes and their policies, by id."""

    def __init__(self, policies: ScopePolicies, *, seed: int | str) -> None:
        self.crawl: object = None  # argument of the scope managers' `from_crawler`
        self.policies: ScopePolicies = policies
        self.pages: PageBudgets = PageBudgets()  # the page budgets, including the budgets of forgotten scopes
        self.seed: int | str = seed
        self._allowances: Allowances | None = None
        self.line: SharedScopeClient | None = None  # grants shared scopes; None if the job is not shared
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
        """Return the scope with a normalized id; None if there is none."""
        return self._scopes.get(id)

    def made(self, id: str, now: float) -> tuple[Scope, bool]:
        """Return the scope with an id, and True if it was made just now."""
        # Most ids are already normalized, and a lookup costs less than normalizing them.
        scope = self._scopes.get(id) or self._scopes.get(id := normal_id(id))
        if scope is not None:
            return scope, False
        self._forget_some(now)
        policy = self.policies.of(id)
        common = self._common if may_be_common(policy, has_job=self._has_job) and id != BROWSER else None
        if common is not None and (found := common.get(id)) is not None:
            self._scopes[id] = found
            self._join(found)
            self._by_age.append(id)
            return found, True
        if self.line is None or not self.policies.is_shared(id):
            scope = Scope(id, policy.limits, seed=self.seed)
        else:
            scope = SharedScope(id, policy.limits, self.line, seed=self.seed)
        self._scopes[id] = scope
        scope.state = ScopeState(policy, now)
        try:
            scope.state.manager = self.manager_of(id, policy)  # the manager may set limits of this scope
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
        """Forget unused scopes that another process continues."""
        for scope in gone:
            del self._scopes[scope.id]
            if self._allowances is not None:
                self._allowances.forget(scope.id)
        if gone:
            self._by_age = deque([id for id in self._by_age if id in self._scopes])

    def have_in_common(self, common: CommonScopes, holder: ScopeHolder, *, has_job: bool) -> None:
        """Share the scopes that are made from now on with other crawls. Call it before the first is made."""
        self._common, self._holder, self._has_job = common, holder, has_job

    def _join(self, scope: Scope) -> None:
        if self._common is not None and self._holder is not None:
            self._common.join(scope, self._holder)

    def leave(self) -> None:
        """Stop sharing scopes, because the crawl has ended."""
        for scope in self._scopes.values():
            self._part_from(scope)

    def _part_from(self, scope: Scope) -> None:
        if self._common is not None and self._holder is not None:
            if self._allowances is not None and scope.quota is not None and scope.holders:
                self._allowances.withdraw(scope.id, scope.quota)
            self._common.leave(scope, self._holder)

    def apply_limits(self, scope: Scope, limits: Limits, now: float) -> None:
        """Apply other limits to a scope."""
        scope.apply_limits(limits, now)
        self.pages.keep(scope)
        self._allow(scope)

    def spend_by(self, allowances: Allowances) -> None:
        """Limit the spending of quotas to ``allowances``, because there is a job."""
        self._allowances = allowances
        for scope in self:
            self._allow(scope)

    def _allow(self, scope: Scope) -> None:
        if self._allowances is not None and scope.quota is not None:
            self._allowances.add(scope.id, scope.quota)

    def manager_of(self, id: str, policy: ScopePolicy) -> Any:
        """Make a scope manager; None for the default one. Raises any error of the user's class."""
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
            idle = now - max(scope.traffic.last_sent, state.recent.good_at, state.recent.triggered_at, state.made_at)
            # At the limit every quiet scope is forgotten, however short its idle time.
            is_due = idle > (self._max_idle if len(self._scopes) < self._limit else 0.0)
            if is_due and state.is_quiet(scope, now):
                self._by_age.popleft()
                del self._scopes[scope.id]
                self._part_from(scope)
                if self._allowances is not None:
                    self._allowances.forget(scope.id)
            else:
                # Move it to the end, so that all scopes are checked in turn.
                self._by_age.rotate(-1)


def _merged(id: str, policy: ScopePolicy) -> Mapping[str, Any]:
    """Return a scope's configuration with its defaults, for its manager."""
    limits, backoff = policy.limits, policy.backoff
    return {
        "id": id,
        **{row.key: getattr(limits, row.key) for row in TABLE},
        "jitter": limits.jitter,
        "window": limits.window,
        "sliding": limits.sliding,
        "rampup": False,
        "ignore_robots_txt": False,
        **policy.config,
        "backoff": {field.name: getattr(backoff, field.name) for field in attrs.fields(Backoff)}
        | {"http_codes": sorted(backoff.http_codes), "exceptions": list(backoff.exceptions)},
    }
