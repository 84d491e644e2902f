"""The scopes of a crawl: made on demand, forgotten when idle.

Theory of operation. A scope is made when something first needs it. At each making the one or two scopes that were
looked at longest ago are looked at again: idle for long, they are forgotten, else they go to the end of the line. So
forgetting costs the same for ten scopes and for a hundred thousand, and nothing sweeps. A scope is never forgotten
while it is in flight, has something pending, backs off, holds or has spent quota (I01).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trawl.throttling.allowance import Allowances
from trawl.throttling.kinds import Kinds
from trawl.throttling.limits import Limits
from trawl.throttling.pages import Ledger
from trawl.throttling.policy import Kind, ScopePolicy
from trawl.throttling.scope import Scope
from trawl.throttling.scopes import normal_id

__all__ = ["Table"]

_LOOKS = 2
"""Scopes looked at for forgetting at each making."""

_LOOKS_AT_LIMIT = 32
"""The same while there are more than the limit."""


class Table:
    """Scopes by id, each with its policy.

    Args:
        kinds: What is configured.
        seed: For the scopes' draws.
        forgotten: Told of each scope that is forgotten.

    Attributes:
        crawl: For the scope managers' ``from_crawler``.
        kinds: What is configured.
        pages: The page budgets, also those of scopes that were forgotten.
    """

    def __init__(self, kinds: Kinds, *, seed: int | str, forgotten: Callable[[Scope], None] | None = None) -> None:
        self.crawl: object = None
        self.kinds: Kinds = kinds
        self.pages: Ledger = Ledger()
        self._seed = seed
        self._forgotten = forgotten
        self._allowances: Allowances | None = None
        self._scopes: dict[str, Scope] = {}
        self._by_age: deque[str] = deque()
        self._limit = kinds.settings.throttling_scope_limit
        self._max_idle = kinds.settings.throttling_scope_max_idle

    def __len__(self) -> int:
        return len(self._scopes)

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._scopes.values())

    def get(self, id: str) -> Scope | None:
        """The scope of a normalised id, if there is one."""
        return self._scopes.get(id)

    def made(self, id: str, now: float) -> tuple[Scope, bool]:
        """The scope of an id, and whether it was made just now."""
        scope = self._scopes.get(id) or self._scopes.get(id := normal_id(id))
        if scope is not None:
            return scope, False
        self._forget_some(now)
        kind = self.kinds.of(id)
        scope = self._scopes[id] = Scope(id, kind.limits, seed=self._seed)
        scope.policy = ScopePolicy(kind, now)
        try:
            scope.policy.manager = self.manager_of(id, kind)  # it may set limits of this very scope
        except BaseException:
            del self._scopes[id]
            raise
        self.pages.keep(scope)
        self._allow(scope)
        scope.policy.apply(scope)
        self._by_age.append(id)
        return scope, True

    def adopt(self, scope: Scope, limits: Limits, now: float) -> None:
        """Put other limits in force on a scope."""
        scope.adopt(limits, now)
        self.pages.keep(scope)
        self._allow(scope)

    def spend_by(self, allowances: Allowances) -> None:
        """Let quotas be spent only as far as ``allowances`` go: there is a job."""
        self._allowances = allowances
        for scope in self:
            self._allow(scope)

    def _allow(self, scope: Scope) -> None:
        if self._allowances is not None and scope.quota is not None:
            self._allowances.add(scope.id, scope.quota)

    def manager_of(self, id: str, kind: Kind) -> Any:
        """A new scope manager, as its kind has them; None for the default. Raises whatever the user's class does."""
        if kind.manager is None:
            return None
        make = getattr(kind.manager, "from_crawler", None)
        config = _merged(id, kind)
        return kind.manager(config) if make is None else make(self.crawl, config)

    def _forget_some(self, now: float) -> None:
        looks = _LOOKS if len(self._scopes) < self._limit else _LOOKS_AT_LIMIT
        for _ in range(min(looks, len(self._by_age))):
            scope = self._scopes[self._by_age[0]]
            policy: ScopePolicy = scope.policy
            idle = now - max(scope.last_sent, policy.good_at, policy.triggered_at, policy.made_at)
            is_due = idle > (self._max_idle if len(self._scopes) < self._limit else 0.0)
            if is_due and policy.is_quiet(scope, now):
                self._by_age.popleft()
                del self._scopes[scope.id]
                if self._allowances is not None:
                    self._allowances.forget(scope.id)
                if self._forgotten is not None:
                    self._forgotten(scope)
            else:
                self._by_age.rotate(-1)


def _merged(id: str, kind: Kind) -> Mapping[str, Any]:
    """A scope's configuration with the defaults filled in, for its manager (E17)."""
    limits, backoff = kind.limits, kind.backoff
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
        **kind.config,
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
