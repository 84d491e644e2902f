"""Throttling: scopes, their limits, and the policies that change them. Pure: functions of state and ``now``.

A scope's configuration and state go by six names, each for one thing:

=================  ========================================================  =======================================
Name               Content                                                   Made by
=================  ========================================================  =======================================
``ScopeConfig``    One entry of ``THROTTLING_SCOPES``                        the user; checked in ``configuration``
``Limits``         The numbers of a scope as configured; frozen              ``limits_of``, from entry and defaults
``ScopePolicy``    Limits and strategies of scopes configured alike; frozen  ``ScopePolicies``
``Scope``          The limits in force; what is in flight, sent and spent    ``ScopeTable``
``ScopeState``     What its policies learned: backoff, rampup, latency       ``ScopeTable``, with its scope
``ScopeSnapshot``  What a job stores of a scope                              ``restore``
=================  ========================================================  =======================================

A delay is decided in :meth:`Scope.gate`: no other code says when a request may go. Policies only change the limits
that it reads, in :meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>`.
"""

from trawl.throttling.backoff import Backoff
from trawl.throttling.explain import Reason, ScopeReport, limit_words, reports_together
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
    "reports_together",
    "scope_cache",
    "update_scope_backoff",
]
