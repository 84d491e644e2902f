"""Throttling: scopes, their limits, and the policies that move them. Pure: functions of state and ``now``."""

from trawl.throttling.backoff import Backoff
from trawl.throttling.explain import Reason, ScopeReport, limit_words
from trawl.throttling.limits import Limits
from trawl.throttling.managers import (
    ThrottlingManager,
    ThrottlingManagerProtocol,
    ThrottlingScopeManager,
    ThrottlingScopeManagerProtocol,
)
from trawl.throttling.scope import Scope
from trawl.throttling.scope_amounts import AddressOf
from trawl.throttling.scopes import ScopeBackoff, Scopes, add_scope, iter_scopes, scope_cache, update_scope_backoff
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.throttle import Throttle

__all__ = [
    "AddressOf",
    "Backoff",
    "Limits",
    "Reason",
    "Scope",
    "ScopeBackoff",
    "ScopeReport",
    "Scopes",
    "Throttle",
    "ThrottlingManager",
    "ThrottlingManagerProtocol",
    "ThrottlingScopeManager",
    "ThrottlingScopeManagerProtocol",
    "ThrottlingSettings",
    "add_scope",
    "iter_scopes",
    "limit_words",
    "scope_cache",
    "update_scope_backoff",
]
