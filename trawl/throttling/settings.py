"""The settings of throttling: concurrency, delays, backoff, rampup, scopes, quotas, AutoThrottle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from trawl.errors import SettingsError
from trawl.throttling.configuration import (
    JITTER_RANGE,
    JitterConfig,
    ScopeConfig,
    check_backoff,
    check_count,
    check_jitter,
    check_scope,
    check_target,
    load_manager,
    mistyped,
)
from trawl.throttling.scopes import normal_id

__all__ = ["ThrottlingSettings"]


def _default_codes() -> list[int]:
    return [429, 502, 503, 504, 520, 521, 522, 523, 524]


def _default_exceptions() -> list[object]:
    return [
        "trawl.exceptions.ConnectTimeout",
        "trawl.exceptions.ReadTimeout",
        "trawl.exceptions.ConnectFailed",
        "trawl.exceptions.ResponseBroken",
    ]


class ThrottlingSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Speed, and what reduces it."""

    concurrent_requests: Annotated[
        int,
        Meta(ge=0, title="requests", description="Requests in flight at once in the whole crawl; 0 means no cap."),
    ] = 16
    concurrent_requests_per_domain: Annotated[
        int,
        Meta(ge=1, title="requests", description="Requests in flight at once to one host: its number of slots."),
    ] = 1
    concurrent_requests_per_ip: Annotated[
        int,
        Meta(
            ge=0,
            title="requests",
            description="Above 0: throttle by resolved address in place of the host, with this many in flight at once.",
        ),
    ] = 0
    pages_per_domain: Annotated[
        int,
        Meta(
            ge=0,
            title="pages",
            description="Pages of one host in the whole crawl, as CLOSESPIDER_PAGECOUNT counts them; further requests "
            "for it are dropped, counted as `pages_filtered`. 0 means no limit.",
        ),
    ] = 0
    download_delay: Annotated[
        float,
        Meta(ge=0, title="s", description="The least time between any two sends to one host, whatever the slot."),
    ] = 1.0
    download_delay_per_slot: Annotated[
        float,
        Meta(ge=0, title="s", description="The least time between two sends in one slot, from the earlier send."),
    ] = 1.0
    randomize_download_delay: Annotated[
        JitterConfig,
        Meta(
            description="How intervals are drawn: true is ±50 %, false is exact, x is ±x, a pair [lo, hi] is relative "
            "to the delay: [-0.1, 0.3] draws between 0.9 and 1.3 times the delay. A Crawl-delay is only lengthened.",
            extra={"range": JITTER_RANGE},
        ),
    ] = True
    throttling_scopes: Annotated[
        dict[str, ScopeConfig],
        Meta(description="Scope id to its own limits, key by key instead of the defaults."),
    ] = msgspec.field(default_factory=dict)
    throttling_manager: Annotated[
        object,
        Meta(description="The class (or its import path) that says which scopes a request has and what backs off."),
    ] = "trawl.throttling.ThrottlingManager"
    throttling_scope_manager: Annotated[
        object, Meta(description="The class (or its import path) of which each scope has one instance.")
    ] = "trawl.throttling.ThrottlingScopeManager"
    throttling_window: Annotated[
        float, Meta(ge=0, title="s", description="How long a quota lasts where its scope sets no window.")
    ] = 60.0
    throttling_robotstxt_obey: Annotated[
        bool, Meta(description="Crawl-delay of robots.txt slows its host's scope (where ROBOTSTXT_OBEY is set too).")
    ] = True
    throttling_robotstxt_max_delay: Annotated[
        float, Meta(ge=0, title="s", description="The longest Crawl-delay that is obeyed; a longer one counts as this.")
    ] = 60.0
    throttling_scope_limit: Annotated[
        int, Meta(ge=1, title="scopes", description="Scopes kept; the longest idle ones above it are forgotten.")
    ] = 100_000
    throttling_scope_max_idle: Annotated[
        float, Meta(ge=0, title="s", description="A scope idle for longer is forgotten.")
    ] = 3600.0
    delayed_requests_warn_threshold: Annotated[
        int,
        Meta(ge=0, title="requests", description="One warning when this many direct fetches wait for a scope at once."),
    ] = 500

    backoff_http_codes: Annotated[list[int], Meta(description="Statuses that say 'slow down'.")] = msgspec.field(
        default_factory=_default_codes
    )
    backoff_exceptions: Annotated[
        list[object], Meta(description="Exceptions that say 'slow down': classes or import paths.")
    ] = msgspec.field(default_factory=_default_exceptions)
    backoff_delay_factor: Annotated[float, Meta(gt=1, description="A step multiplies the delay by this.")] = 2.0
    backoff_max_delay: Annotated[
        float, Meta(ge=0, title="s", description="The longest delay that backing off, or a header, leads to.")
    ] = 300.0
    backoff_min_delay: Annotated[float, Meta(ge=0, title="s", description="The least delay while backing off.")] = 1.0
    backoff_jitter: Annotated[
        JitterConfig,
        Meta(
            description="Replaces every download jitter while backing off, and lengthens what a server asks for; 0 or "
            "false: none. Only its part above 0 counts: 0.1 makes intervals up to 10 % longer.",
            extra={"range": JITTER_RANGE},
        ),
    ] = 0.1
    backoff_window: Annotated[
        float, Meta(gt=0, title="s", description="Quiet seconds after a good answer that take one step back.")
    ] = 60.0
    backoff_concurrency_factor: Annotated[
        float, Meta(gt=0, lt=1, description="At the longest delay, a trigger multiplies the concurrency by this.")
    ] = 0.5
    backoff_give_up_after: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="A scope without a good answer for this long since its first trigger ends what is pending. "
            "Time that a server asked for, within BACKOFF_MAX_DELAY, or that a spent quota took does not count.",
        ),
    ] = 900.0
    rampup_backoff_target: Annotated[
        float | tuple[float, float],
        Meta(
            title="triggers",
            description="Triggers wanted in a window of a scope that ramps up: a number, or a range [1, 3].",
            extra={"range": "at least 0, the higher above 0"},
        ),
    ] = 1

    autothrottle_enabled: Annotated[bool, Meta(description="Adjust each host's delay to its latency.")] = False
    autothrottle_start_delay: Annotated[
        float, Meta(ge=0, title="s", description="The delay a host starts with (or DOWNLOAD_DELAY, if larger).")
    ] = 5.0
    autothrottle_max_delay: Annotated[
        float, Meta(ge=0, title="s", description="The longest delay that latency leads to.")
    ] = 60.0
    autothrottle_target_concurrency: Annotated[
        float, Meta(gt=0, title="requests", description="Requests to one host wanted in flight on average; no cap.")
    ] = 1.0
    autothrottle_debug: Annotated[bool, Meta(description="Log one line for each response that adjusts a delay.")] = (
        False
    )

    def __post_init__(self) -> None:
        """Refuse what no single field's type can: entries of mappings, import paths, values that cross."""
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
            raise SettingsError(  # H06
                f"DOWNLOAD_DELAY ({self.download_delay:g} s) is above AUTOTHROTTLE_MAX_DELAY "
                f"({self.autothrottle_max_delay:g} s)",
                "AUTOTHROTTLE_MAX_DELAY",
            )

    def mistyped_methods(self) -> Iterator[str]:
        """A sentence for each method of a manager that is never called and is spelled almost like one that would be."""
        scope_managers: dict[str, object] = {"THROTTLING_SCOPE_MANAGER": self.throttling_scope_manager}
        for id, scope in self.throttling_scopes.items():
            if scope.get("manager") is not None:
                scope_managers[f"THROTTLING_SCOPES[{id!r}]['manager']"] = scope["manager"]
        named = [("THROTTLING_MANAGER", self.throttling_manager, "THROTTLING_MANAGER")]
        named += [(path, manager, "THROTTLING_SCOPE_MANAGER") for path, manager in scope_managers.items()]
        for path, manager, setting in named:
            for method, name in mistyped(load_manager(manager, path, setting), setting):
                yield f"{path}: {method}() is never called; did you mean {name}()?"

    def with_download_delay(self, delay: object) -> ThrottlingSettings:
        """These settings with a spider's own ``download_delay`` (seconds) as ``DOWNLOAD_DELAY``; None changes nothing.

        Raises:
            SettingsError: It is no number from 0 up (or the text of one), or above ``AUTOTHROTTLE_MAX_DELAY`` (H06).
        """
        if delay is None:
            return self
        try:
            seconds = math.nan if isinstance(delay, bool) else float(delay)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0.0 <= seconds < math.inf:
            raise SettingsError(f"the spider's download_delay is a number from 0 up, not {delay!r}", "download_delay")
        return msgspec.structs.replace(self, download_delay=seconds)


def _check_ids(scopes: dict[str, ScopeConfig]) -> None:
    """Refuse an empty id, and two spellings of one host: which of them counts would be anybody's guess (E19)."""
    known: dict[str, str] = {}
    for key in scopes:
        if not key:
            raise SettingsError("THROTTLING_SCOPES has an empty scope id", "THROTTLING_SCOPES['']")
        id = normal_id(key)
        if id in known:
            sentence = f"THROTTLING_SCOPES has {known[id]!r} and {key!r}, which are the same scope"
            raise SettingsError(sentence, f"THROTTLING_SCOPES[{key!r}]")
        known[id] = key
