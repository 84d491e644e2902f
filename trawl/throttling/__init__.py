"""Throttling: scopes, their limits, and the policies that change them. Pure: functions of state and ``now``.

Six names stand for the configuration and the state of a scope:

=================  ========================================================  =======================================
Name               Content                                                   Made by
=================  ========================================================  =======================================
``ScopeConfig``    One entry of ``THROTTLING_SCOPES``                        the user; checked in ``configuration``
``Limits``         The numbers of a scope as configured; frozen              ``limits_of``, from entry and defaults
``ScopePolicy``    Limits and strategies of scopes configured alike; frozen  ``ScopePolicies``
``Scope``          The effective limits; requests in flight, sent and spent  ``ScopeTable``
``ScopeState``     The state of its policies: backoff, rampup, latency       ``ScopeTable``, with its scope
``ScopeSnapshot``  The state of a scope that a job stores                    ``scope_snapshot`` of job_scopes
=================  ========================================================  =======================================

:meth:`Scope.earliest_at` returns when a request may be granted, and :meth:`Scope.opens_at` checks again just before
the send. If user code runs before the send, :meth:`Scope.prepares_at` returns when that code may start. (A delay of the
request itself, ``meta["delay"]`` or a retry's, comes before: the frontier or the scheduler waits for it.) Policies only
change the limits that these methods read, in :meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>`.
"""

from trawl.throttling.backoff import Backoff
from trawl.throttling.limits import Limits
from trawl.throttling.managers import (
    ThrottlingManager,
    ThrottlingManagerProtocol,
    ThrottlingScopeManager,
    ThrottlingScopeManagerProtocol,
)
from trawl.throttling.reasons import Reason, ScopeReport, limit_words, reports_together
from trawl.throttling.scope import Scope
from trawl.throttling.scope_resolver import AddressOf
from trawl.throttling.scopes import (
    BROWSER,
    ScopeBackoff,
    Scopes,
    add_scope,
    iter_scopes,
    scope_cache,
    update_scope_backoff,
)
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.throttle import Throttle

__all__ = [
    "BROWSER",
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
