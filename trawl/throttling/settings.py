"""The settings of throttling: concurrency, delays, backoff, rampup, scopes, quotas, AutoThrottle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.throttling.backoff import CONNECTION_ERRORS
from trawl.throttling.configuration import (
    JITTER_RANGE,
    JitterConfig,
    ScopeConfig,
    check_backoff,
    check_count,
    check_jitter,
    check_scope,
    check_target,
    load_class,
    load_manager,
    mistyped,
)
from trawl.throttling.scopes import BROWSER, normal_id

__all__ = ["ThrottlingSettings"]


_CODES = [429, 502, 503, 504, 520, 521, 522, 523, 524]
_EXCEPTIONS: list[object] = [f"trawl.exceptions.{error.__name__}" for error in CONNECTION_ERRORS]


class ThrottlingSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Speed, and what reduces it.

    Attributes:
        concurrent_requests: Maximum number of requests in flight at once in the whole crawl. 0 disables the limit.
        concurrent_requests_per_domain: Maximum number of requests in flight at once to one host: its number of slots.
        concurrent_requests_per_ip: Above 0: throttle by resolved address instead of host, with at most this many
            requests in flight at once to each address. 0 throttles by host.
        pages_per_domain: Maximum number of pages of one host in the whole crawl, counted as for CLOSESPIDER_PAGECOUNT.
            Further requests to the host are dropped and counted as ``pages_filtered``. 0 disables the limit.
        download_delay: Minimum time between any two sends to one host, in any slot. 0 disables the delay.
        download_delay_per_slot: Minimum time between two sends in one slot, from the earlier send. 0 disables the
            delay.
        randomize_download_delay: Jitter of the delays. true draws from ±50 %, false is exact, x draws from ±x, and a
            pair [lo, hi] is relative to the delay: [-0.1, 0.3] draws between 0.9 and 1.3 times the delay. A Crawl-delay
            is only lengthened.
        throttling_scopes: Limits of single scopes. Each scope id has a mapping of keys that replace its defaults.
        throttling_manager: Class, or its import path, that names the scopes of each request and the responses that
            cause backoff.
        throttling_scope_manager: Class, or its import path. Each scope gets one instance.
        throttling_window: Window of a quota whose scope sets no window. 0 means that such a quota never blocks.
        throttling_robotstxt_obey: Obey the Crawl-delay in a host's robots.txt. Needs ROBOTSTXT_OBEY.
        throttling_robotstxt_max_delay: Maximum Crawl-delay. A longer one is reduced to this, with one warning. 0
            ignores every Crawl-delay.
        throttling_ratelimit_obey: If the ``RateLimit`` or ``X-RateLimit-*`` headers of a good response name the
            remaining requests and a reset time, spread these requests over the time until then. False: such headers are
            only obeyed on refusals.
        throttling_ratelimit_max_delay: Maximum delay that results from these headers of good responses. A longer delay
            is reduced to this. 0 ignores the headers.
        throttling_shared: Share scopes with other crawls in the same event loop, as in ``trawl crawl A B``. Two crawls
            of one site then keep one limit together. If their settings differ, the stricter ones apply. Some scopes are
            not shared: scopes with ``pages`` or with their own manager, scopes with a ``quota`` in a crawl with
            JOB_DIR, and all scopes of a job in a server. False gives the crawl its own scopes.
        throttling_scope_limit: Maximum number of scopes in memory. If there are more, the scopes that were idle longest
            are forgotten.
        throttling_scope_max_idle: Idle time after which a scope is forgotten.
        delayed_requests_warn_threshold: Warn once when this many direct fetches wait for a scope at once.
        backoff_http_codes: Status codes that trigger backoff. A refusal (neither 2xx nor a redirect) with any other
            status code also triggers it if it names a time to retry, with Retry-After, or with no requests remaining
            and a reset time.
        backoff_exceptions: Exceptions that trigger backoff: classes or import paths.
        backoff_delay_factor: Each backoff step multiplies the delay by this.
        backoff_max_delay: Maximum delay of backoff, and maximum wait that a response header may request.
        backoff_min_delay: Minimum delay during backoff.
        backoff_jitter: Jitter during backoff, which replaces every download jitter. It also lengthens waits that a
            server requests. 0 or false disables it. Only its part above 0 counts: 0.1 makes intervals up to 10 %
            longer.
        backoff_window: Time without triggers after a good response that undoes one backoff step.
        backoff_concurrency_factor: At the maximum delay, each further step multiplies the concurrency by this.
        backoff_give_up_after: End the pending requests of a scope that gave no good response for this long since its
            first trigger. A time that the server named must pass first, up to a day, at most ten times in a row.
            Waiting for a used-up quota does not count. The errbacks of the requests are called, and a job keeps the
            requests (``JOB_KEEP_GIVEN_UP``).
        rampup_backoff_target: Target number of triggers in each window of a scope with rampup: a number, or a range
            such as [1, 3].
        autothrottle_enabled: Adjust each host's delay to its latency.
        autothrottle_start_delay: Initial delay of a host, or DOWNLOAD_DELAY if that is longer.
        autothrottle_max_delay: Maximum delay that AutoThrottle sets.
        autothrottle_target_concurrency: Average number of requests to have in flight to one host. A target, not a
            limit.
        autothrottle_debug: Log one line for each response that adjusts a delay.
    """

    concurrent_requests: Annotated[int, Meta(ge=0, title="requests")] = 16
    concurrent_requests_per_domain: Annotated[int, Meta(ge=1, title="requests")] = 1
    concurrent_requests_per_ip: Annotated[int, Meta(ge=0, title="requests")] = 0
    pages_per_domain: Annotated[int, Meta(ge=0, title="pages")] = 0
    download_delay: Annotated[float, Meta(ge=0, title="s")] = 1.0
    download_delay_per_slot: Annotated[float, Meta(ge=0, title="s")] = 1.0
    randomize_download_delay: Annotated[JitterConfig, Meta(extra={"range": JITTER_RANGE})] = True
    throttling_scopes: dict[str, ScopeConfig] = msgspec.field(default_factory=dict)
    throttling_manager: object = "trawl.throttling.ThrottlingManager"
    throttling_scope_manager: object = "trawl.throttling.ThrottlingScopeManager"
    throttling_window: Annotated[float, Meta(ge=0, title="s")] = 60.0
    throttling_robotstxt_obey: bool = True
    throttling_robotstxt_max_delay: Annotated[float, Meta(ge=0, title="s")] = 60.0
    throttling_ratelimit_obey: bool = True
    throttling_ratelimit_max_delay: Annotated[float, Meta(ge=0, title="s")] = 60.0
    throttling_shared: bool = True
    throttling_scope_limit: Annotated[int, Meta(ge=1, title="scopes")] = 100_000
    throttling_scope_max_idle: Annotated[float, Meta(ge=0, title="s")] = 3600.0
    delayed_requests_warn_threshold: Annotated[int, Meta(ge=0, title="requests")] = 500

    backoff_http_codes: list[int] = msgspec.field(default_factory=lambda: [*_CODES])
    backoff_exceptions: list[object] = msgspec.field(default_factory=lambda: [*_EXCEPTIONS])
    backoff_delay_factor: Annotated[float, Meta(gt=1)] = 2.0
    backoff_max_delay: Annotated[float, Meta(ge=0, title="s")] = 300.0
    backoff_min_delay: Annotated[float, Meta(ge=0, title="s")] = 1.0
    backoff_jitter: Annotated[JitterConfig, Meta(extra={"range": JITTER_RANGE})] = 0.1
    backoff_window: Annotated[float, Meta(gt=0, title="s")] = 60.0
    backoff_concurrency_factor: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    backoff_give_up_after: Annotated[float, Meta(gt=0, title="s")] = 900.0
    rampup_backoff_target: Annotated[
        float | tuple[float, float], Meta(title="triggers", extra={"range": "at least 0, the higher above 0"})
    ] = 1

    autothrottle_enabled: bool = False
    autothrottle_start_delay: Annotated[float, Meta(ge=0, title="s")] = 5.0
    autothrottle_max_delay: Annotated[float, Meta(ge=0, title="s")] = 60.0
    autothrottle_target_concurrency: Annotated[float, Meta(gt=0, title="requests")] = 1.0
    autothrottle_debug: bool = False

    def __post_init__(self) -> None:
        """Check what the type of a single field can't: entries of mappings, import paths, combinations of values."""
        scopes = {
            key: check_scope(config, f"THROTTLING_SCOPES[{key!r}]") for key, config in self.throttling_scopes.items()
        }
        msgspec.structs.force_setattr(self, "throttling_scopes", scopes)
        _check_ids(scopes)
        for name in ("concurrent_requests", "concurrent_requests_per_domain", "concurrent_requests_per_ip"):
            check_count(getattr(self, name), name.upper())
        check_count(self.pages_per_domain, "PAGES_PER_DOMAIN")
        check_jitter(self.randomize_download_delay, "RANDOMIZE_DOWNLOAD_DELAY")
        check_jitter(self.backoff_jitter, "BACKOFF_JITTER")
        check_backoff({"exceptions": self.backoff_exceptions}, "BACKOFF_EXCEPTIONS")
        check_target(self.rampup_backoff_target, "RAMPUP_BACKOFF_TARGET")
        load_manager(self.throttling_manager, "THROTTLING_MANAGER", "THROTTLING_MANAGER")
        load_manager(self.throttling_scope_manager, "THROTTLING_SCOPE_MANAGER", "THROTTLING_SCOPE_MANAGER")
        if self.backoff_min_delay > self.backoff_max_delay:
            raise SettingsError(
                f"BACKOFF_MIN_DELAY ({self.backoff_min_delay:g} s) is above BACKOFF_MAX_DELAY "
                f"({self.backoff_max_delay:g} s)",
                "BACKOFF_MIN_DELAY",
            )
        if self.autothrottle_enabled and self.download_delay > self.autothrottle_max_delay:
            raise SettingsError(
                f"DOWNLOAD_DELAY ({self.download_delay:g} s) is above AUTOTHROTTLE_MAX_DELAY "
                f"({self.autothrottle_max_delay:g} s)",
                "AUTOTHROTTLE_MAX_DELAY",
            )

    def mistyped_methods(self) -> Iterator[str]:
        """Yield a sentence for each manager without effect, and each method that is spelled almost like a known one."""
        scope_managers: dict[str, object] = {"THROTTLING_SCOPE_MANAGER": self.throttling_scope_manager}
        for id, scope in self.throttling_scopes.items():
            if scope.get("manager") is not None:
                scope_managers[f"THROTTLING_SCOPES[{id!r}]['manager']"] = scope["manager"]
        if _is_idle(cls := load_class(self.throttling_manager, "THROTTLING_MANAGER")):
            yield f"THROTTLING_MANAGER: {cls.__qualname__} has no effect, because it has no method that trawl calls"
        named = [("THROTTLING_MANAGER", self.throttling_manager, "THROTTLING_MANAGER")]
        named += [(path, manager, "THROTTLING_SCOPE_MANAGER") for path, manager in scope_managers.items()]
        for path, manager, setting in named:
            for method, name in mistyped(load_manager(manager, path, setting), setting):
                yield f"{path}: {method}() is never called; did you mean {name}()?"

    def with_download_delay(self, delay: object) -> ThrottlingSettings:
        """Return these settings with a spider's ``download_delay`` (seconds), unless that is None.

        Raises:
            SettingsError: If it is not a number from 0 up (or its string), or is above ``AUTOTHROTTLE_MAX_DELAY``.
        """
        if delay is None:
            return self
        try:
            seconds = math.nan if isinstance(delay, bool) else float(delay)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0.0 <= seconds < math.inf:
            raise SettingsError(
                f"the spider's download_delay must be a number from 0 up, not {delay!r}", "download_delay"
            )
        return msgspec.structs.replace(self, download_delay=seconds)

    def with_browser(self, pages: int) -> ThrottlingSettings:
        """Return these settings with the scope of rendered pages, which has ``pages`` places and no delay.

        Responses do not slow this scope down, because a browser renders the pages of many hosts.
        """
        own: ScopeConfig = {"concurrency": pages, "backoff": {"http_codes": [], "exceptions": []}}
        scopes = {**self.throttling_scopes, BROWSER: {**own, **self.throttling_scopes.get(BROWSER, {})}}
        return msgspec.structs.replace(self, throttling_scopes=scopes)


def _is_idle(cls: type) -> bool:
    """Return True if a class of throttling managers has no method that trawl calls, and none that creates a manager."""
    methods = [name for name in dir(cls) if name.startswith("get_") or name == "from_crawler"]
    return not methods and "__init__" not in vars(cls)


def _check_ids(scopes: dict[str, ScopeConfig]) -> None:
    """Check that no id is empty and no host has two spellings, because it would be unclear which one applies."""
    known: dict[str, str] = {}
    for key in scopes:
        if not key:
            raise SettingsError("THROTTLING_SCOPES has an empty scope id; name the scope", "THROTTLING_SCOPES['']")
        id = normal_id(key)
        if id in known:
            sentence = f"THROTTLING_SCOPES has {known[id]!r} and {key!r}, which are the same scope; keep one of them"
            raise SettingsError(sentence, f"THROTTLING_SCOPES[{key!r}]")
        known[id] = key
