"""Managers: the scopes of a request, and the meaning of its outcome for them.

A crawl has one *throttling manager*, and each scope has a *scope manager*. Both are user classes or the classes here. A
method that a user class lacks is the default's. The default manager's methods are async, so that ``await super()...``
works in a subclass. If no method is overridden, the throttle calls a synchronous twin instead, without a coroutine or a
mapping for each response.

If a scope manager or a strategy fails during a decision, the failure is logged and counted, and the default is used
(:func:`call_user`), because otherwise a refusal would go unnoticed, or the end of a window would end the crawl.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import attrs

from trawl.errors import SoftBlocked
from trawl.http import host_scope
from trawl.throttling.configuration import load_object
from trawl.throttling.hints import Hint, hint_of, spent_hint_of
from trawl.throttling.scopes import ScopeBackoff, checked_figures, checked_id, iter_scopes, normal_id
from trawl.tracebacks import contained

if TYPE_CHECKING:
    from trawl.http import Outcome, Request, Response
    from trawl.throttling.outcomes import Granted
    from trawl.throttling.policy import ScopeState
    from trawl.throttling.scope import Scope
    from trawl.throttling.scopes import ScopeAmounts, Scopes
    from trawl.throttling.throttle import Throttle

__all__ = [
    "BackoffSignal",
    "CallContext",
    "ManagerCalls",
    "OnFailure",
    "ThrottlingManager",
    "ThrottlingManagerProtocol",
    "ThrottlingScopeManager",
    "ThrottlingScopeManagerProtocol",
    "awaited",
    "call_context",
    "call_user",
    "call_user_number",
    "ignore_failure",
    "is_overridden",
    "is_trigger",
    "log_failure",
    "manager_of",
    "parsed",
    "signals_of",
]

logger: logging.Logger = logging.getLogger("trawl.throttling")

OnFailure = Callable[[], None]  # function to call at each failure


def ignore_failure() -> None:
    """Do nothing; the default :data:`OnFailure`."""


def call_user(owner: object, name: str, failed: OnFailure, *about: object) -> Any:
    """Call the method ``name`` of ``owner``. Returns None, which means the default, if it is missing or raises.

    A decision cannot wait, so an ``async`` method also counts as a failure.
    """
    method = getattr(owner, name, None)
    if method is None:
        return None
    try:
        with contained:
            answer = method(*about)
        if iscoroutine(answer):
            answer.close()
            raise TypeError(f"{name}() is async, but a decision cannot wait; make it a plain function")
        return answer
    except Exception:
        log_failure(owner, name, failed)
        return None


def call_user_number(
    owner: object, name: str, failed: OnFailure, *about: object, is_finite: bool = False
) -> float | None:
    """Call a method that returns a number. Other values and NaN are failures, and so is infinity with ``is_finite``."""
    answer = call_user(owner, name, failed, *about)
    if answer is None:
        return None
    try:
        number = float(answer)
        if math.isnan(number) or (is_finite and math.isinf(number)):
            raise ValueError(f"{name}() returned {answer!r}, which is not a number")
    except (TypeError, ValueError, OverflowError):
        log_failure(owner, name, failed)
        return None
    return number


def log_failure(owner: object, name: str, failed: OnFailure) -> None:
    """Log the exception that the method ``name`` of ``owner`` raised, and call ``failed``. For except clauses."""
    logger.exception("%s.%s() failed: using the default", type(owner).__qualname__, name)
    failed()


_KEYS = ("delay", "consumed", "consumed_quota", "remaining", "quota")


@attrs.frozen(kw_only=True)
class BackoffSignal:
    """The meaning of one response or error for one scope."""

    is_trigger: bool = True
    delay: float | None = None  # seconds to send nothing, from a header or a manager; None if not given
    header: str = ""  # the source of `delay`, for explanations
    consumed: float | None = None  # the amount of the quota that the request really used; None for the expected amount
    remaining: float | None = None  # the remaining amount of the quota; None if not given


def signals_of(backoff: ScopeBackoff, header: str = "") -> dict[str, BackoffSignal]:
    """Parse the return value of a backoff method. Raises TypeError or ValueError if it has none of the forms."""
    if backoff is None:
        return {}
    if not isinstance(backoff, Mapping):
        return {normal_id(id): BackoffSignal() for id in iter_scopes(backoff)}
    return {normal_id(id): _signal(id, figures, header) for id, figures in backoff.items()}


def _signal(id: str, figures: Any, header: str) -> BackoffSignal:
    for name, number in (figures := checked_figures(checked_id(id), figures)).items():
        if name not in _KEYS:
            raise ValueError(f"the backoff of scope {id!r} has an unknown key {name!r}; known are {', '.join(_KEYS)}")
        if not 0 <= (number or 0.0) < math.inf:
            raise ValueError(f"{name!r} of scope {id!r} must be a number from 0 up, not {number!r}")
    delay = figures.get("delay")
    consumed = figures.get("consumed", figures.get("consumed_quota"))
    remaining = figures.get("remaining", figures.get("quota"))
    return BackoffSignal(
        is_trigger=delay is not None or (consumed is None and remaining is None),
        delay=delay or None,
        header=header if delay else "",
        consumed=consumed,
        remaining=remaining,
    )


T = TypeVar("T")

_NO_CLOCK = datetime.max.replace(tzinfo=UTC)
"""For a manager without a throttle: a date counts if the response has its own ``Date``, else it is in the past."""


class ThrottlingManagerProtocol(Protocol):
    """The methods of ``THROTTLING_MANAGER``, each sync or async, each optional.

    A class with ``from_crawler(crawl)`` is created with it; any other class is called without arguments.
    """

    def get_scopes(self, request: Request) -> Scopes | Awaitable[Scopes]:
        """Return the scopes of a request: None, an id, ids, or a mapping of ids to expected amounts."""

    def get_initial_backoff(self) -> ScopeBackoff | Awaitable[ScopeBackoff]:
        """Return the holds before the first send: ids to ``{"delay": seconds}``; ``{}`` takes one step."""

    def get_response_backoff(self, response: Response) -> ScopeBackoff | Awaitable[ScopeBackoff]:
        """Return the scopes that a response exhausts: None, ids, or a mapping to delay, consumed, remaining."""

    def get_exception_backoff(self, request: Request, exception: Exception) -> ScopeBackoff | Awaitable[ScopeBackoff]:
        """Return the scopes that a failure without a response exhausts, in the same forms."""


class ThrottlingScopeManagerProtocol(Protocol):
    """The methods of ``THROTTLING_SCOPE_MANAGER``, or of a scope's ``manager``; each is optional.

    A class with ``from_crawler(crawl, config)`` is created with it. Any other class is called with the scope's merged
    configuration, which has the id under ``id``. All methods are sync, because decisions do not wait.
    """

    def is_trigger(self, response: Response | None, exception: Exception | None) -> bool | None:
        """Return True if this outcome is a trigger; None to decide as configured."""

    def get_delay(self, response: Response | None, exception: Exception | None, delay: float) -> float | None:
        """Return the seconds to send nothing after a trigger; None for ``delay``, the wait of backing off."""

    def is_retry(self, request: Request, response: Response | None, exception: Exception | None) -> bool | None:
        """Return True if this trigger counts as one of the request's retries; None for the default."""

    def get_rampup(
        self, triggers: int, before: Mapping[str, float], after: Mapping[str, float]
    ) -> Mapping[str, float] | None:
        """Return the limits that rampup moves the scope to: at the end of a window, or at a trigger above its target.

        Args:
            triggers: Incidents of the window so far.
            before: The previous ``delay``, ``delay_per_slot`` (seconds) and ``concurrency``. Return it to keep them.
            after: The same limits as rampup would set them.

        Returns:
            Some or all of the three limits; missing ones are as in ``after``. None for all of ``after``.
        """


@attrs.frozen
class CallContext:
    """The context of a call to a manager."""

    throttle: Throttle  # the calling throttle
    requests: tuple[Request | None, ...]  # the request whose outcome is passed, and the requests that it became
    amounts: ScopeAmounts  # the scopes of that request, with their amounts

    def scope_amounts_of(self, request: Request | None) -> ScopeAmounts | None:
        """Return the scopes of the request if the call is about it; None if the call is about another request."""
        is_it = request is None or any(request is one for one in self.requests)
        return self.amounts if is_it else None


call_context: ContextVar[CallContext | None] = ContextVar("asked", default=None)
"""The current call of this task. A response that a manager creates belongs to the same call."""


class ThrottlingManager:
    """The default manager: a request's scope is its host, and the scope's own triggers exhaust it.

    Subclass it and override the methods that you need. Your ``__init__`` need not call this class's.
    """

    _bound_throttle: ClassVar[Throttle | None] = None  # shadowed on the instance by bind()

    @classmethod
    def from_crawler(cls, crawl: object) -> ThrottlingManager:
        """Return the manager of a crawl."""
        return cls()

    async def get_scopes(self, request: Request) -> Scopes:
        """Return the host of a request as its one scope; its address with ``CONCURRENT_REQUESTS_PER_IP``."""
        throttle = self._bound_throttle
        own = host_scope(request.url) if throttle is None else await throttle.resolver.own_scope(request)
        return own or None

    async def get_initial_backoff(self) -> ScopeBackoff:
        """Hold nothing before the first send."""
        return None

    async def get_response_backoff(self, response: Response) -> ScopeBackoff:
        """Return the request's scopes for which the status code is a trigger, with the wait that the headers request.

        A response that a manager's method created without a request stands for the response that the method was called
        with. For a manager without a crawl, the result is None.

        Raises:
            ValueError: If the response has no request and no call is in progress.
        """
        throttle = self._throttle_in_use()
        if throttle is None:
            return None
        delay = await awaited(self.get_response_delay(response))
        return _mapping(await throttle.triggered(response.request, response, None), delay)

    async def get_exception_backoff(self, request: Request, exception: Exception) -> ScopeBackoff:
        """Return the request's scopes for which the exception is a trigger."""
        throttle = self._throttle_in_use()
        return None if throttle is None else _mapping(await throttle.triggered(request, None, exception), None)

    def get_response_delay(self, response: Response) -> float | None:
        """Return the wait that a response's headers request, in seconds, before the cap; None if they request none."""
        hint = self.hint_nowait(response)
        return None if hint is None else hint.delay

    def bind(self, throttle: Throttle) -> None:
        """Connect the manager to a throttle."""
        vars(self)["_bound_throttle"] = throttle

    def _throttle_in_use(self) -> Throttle | None:
        """Return the throttle of :meth:`bind`, else the caller, because another manager may have created this one."""
        question = call_context.get()
        return self._bound_throttle if self._bound_throttle is not None or question is None else question.throttle

    def hint_nowait(self, response: Response) -> Hint | None:
        """Return the wait that a response's headers request, with the name and value of the header."""
        return hint_of(response.headers, self._now_utc())

    def names_time(self, response: Response) -> bool:
        """Return True if a response is a refusal, so neither 2xx nor a redirect, and names a time to retry."""
        return response.status >= 400 and spent_hint_of(response.headers, self._now_utc()) is not None

    def _now_utc(self) -> datetime:
        return self._bound_throttle.utc() if self._bound_throttle is not None else _NO_CLOCK


class ThrottlingScopeManager:
    """The default scope manager. It decides everything as configured.

    Attributes:
        config: The scope's merged configuration.
        id: The scope's id.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.id: str = config["id"]

    @classmethod
    def from_crawler(cls, crawl: object, config: Mapping[str, Any]) -> ThrottlingScopeManager:
        """Return the manager of one scope of a crawl."""
        return cls(config)

    def is_trigger(self, response: Response | None, exception: Exception | None) -> bool | None:
        """Return None, to decide as configured."""
        return None

    def get_delay(self, response: Response | None, exception: Exception | None, delay: float) -> float | None:
        """Return None, for the wait of backing off."""
        return None

    def is_retry(self, request: Request, response: Response | None, exception: Exception | None) -> bool | None:
        """Return None, for the default."""
        return None

    def get_rampup(
        self, triggers: int, before: Mapping[str, float], after: Mapping[str, float]
    ) -> Mapping[str, float] | None:
        """Return None, for the limits that rampup sets."""
        return None


def manager_of(manager: object, crawl: object) -> Any:
    """Create the manager that a setting names. Raises SettingsError if its import path leads to nothing."""
    loaded = load_object(manager, "THROTTLING_MANAGER")
    if not isinstance(loaded, type):
        return loaded
    make = getattr(loaded, "from_crawler", None)
    return loaded() if make is None else make(crawl)


async def awaited(value: T | Awaitable[T]) -> T:
    """Return a user's return value, awaited if necessary. A checkpoint only if the awaitable is one."""
    if isawaitable(value):
        awaited_value: T = await value
        return awaited_value
    return value


def is_overridden(manager: object, *names: str) -> bool:
    """Return True if ``manager`` overrides one of these methods of the default manager."""
    cls = type(manager)
    if not issubclass(cls, ThrottlingManager):
        return True
    return any(getattr(cls, name) is not getattr(ThrottlingManager, name) or name in vars(manager) for name in names)


def _mapping(ids: list[str], delay: float | None) -> ScopeBackoff:
    return {id: {} if delay is None else {"delay": delay} for id in ids} or None


def parsed(manager: object, name: str, answer: Any, parse: Callable[[Any], T]) -> T:
    """Parse the return value of the manager's method ``name``. Raises TypeError or ValueError that names the method."""
    try:
        return parse(answer)
    except (TypeError, ValueError) as error:  # of any subclass, from a generator of user code
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{type(manager).__qualname__}.{name}() returned {answer!r:.100}: {error}") from error


_HOOKS = ("get_response_backoff", "get_exception_backoff", "get_response_delay")


def is_trigger(
    state: ScopeState, response: Response | None, exception: Exception | None, *, names_time: bool = False
) -> bool:
    """Return True if an outcome is a trigger for one scope, by its scope manager, else by its backoff.

    With ``names_time``, the response is a refusal that names a time to retry. It is a trigger whatever its status code,
    unless the user has configured the triggers of this scope.
    """
    if isinstance(exception, SoftBlocked):  # user code decided that it is blocked
        return True
    if state.manager is not None:
        answer = call_user(state.manager, "is_trigger", state.policy.failed, response, exception)
        if answer is not None:
            return bool(answer)
    policy = state.policy
    if names_time and not policy.decides_triggers:
        return True
    return policy.backoff.is_trigger(None if response is None else response.status, exception)


class ManagerCalls:
    """Calls one crawl's manager for the meaning of outcomes, and the default manager for methods that it lacks."""

    def __init__(self, manager: Any, default: ThrottlingManager, throttle: Throttle) -> None:
        # True if the manager overrides such a method, so that `ask` must be awaited.
        self.is_custom: bool = is_overridden(manager, *_HOOKS)
        self._manager = manager
        self.default: ThrottlingManager = default
        self._throttle = throttle

    def own_signals(
        self, attempt: Granted, outcome: Outcome, scopes: Sequence[Scope]
    ) -> dict[str, BackoffSignal] | None:
        """Decide as the default manager does. Returns None if no scope is concerned, as is almost always the case."""
        response, error = outcome.response, outcome.error
        if response is None and error is None:
            return None
        told: list[str] = []
        names_time = response is not None and response.status >= 400 and self.default.names_time(response)
        for (id, _), scope in zip(attempt.scopes, scopes, strict=True):
            if is_trigger(scope.state, response, error, names_time=names_time):
                told.append(id)
        if not told:
            return None
        hint = None if response is None else self.default.hint_nowait(response)
        signal = BackoffSignal() if hint is None else BackoffSignal(delay=hint.delay, header=hint.header)
        return dict.fromkeys(told, signal)

    async def ask_at_start(self) -> Mapping[str, BackoffSignal]:
        """Call a user's manager for holds before the first send. Nothing is held if it fails, which is logged."""
        ask = getattr(self._manager, "get_initial_backoff", None)
        try:
            if ask is not None and is_overridden(self._manager, "get_initial_backoff"):
                with contained:
                    return parsed(self._manager, "get_initial_backoff", await awaited(ask()), signals_of)
        except Exception:  # user code
            logger.exception("the throttling manager failed at the start: nothing is held before the first send")
        return {}

    async def ask(self, attempt: Granted, outcome: Outcome) -> dict[str, BackoffSignal]:
        """Call the user's manager. A checkpoint only if its method is one. Raises all exceptions of the method."""
        requests = (attempt.request, outcome.request, getattr(outcome.response, "request", None))
        token = call_context.set(CallContext(self._throttle, requests, attempt.scopes))
        try:
            with contained:
                return await self._answer(attempt, outcome)
        finally:
            call_context.reset(token)

    async def _answer(self, attempt: Granted, outcome: Outcome) -> dict[str, BackoffSignal]:
        ask: Any
        if outcome.response is not None:
            ask = getattr(self._manager, "get_response_backoff", self.default.get_response_backoff)
            answer = await awaited(ask(outcome.response))
            hint = self.default.hint_nowait(outcome.response) if answer else None
            parse = partial(signals_of, header="" if hint is None else hint.header)
            return parsed(self._manager, "get_response_backoff", answer, parse)
        if outcome.error is not None:
            ask = getattr(self._manager, "get_exception_backoff", self.default.get_exception_backoff)
            answer = await awaited(ask(attempt.request, outcome.error))
            return parsed(self._manager, "get_exception_backoff", answer, signals_of)
        return {}
