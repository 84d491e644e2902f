"""Settings without effect: pairs of settings in which one setting hides the other.

A setting is reported only if the user has set it, because a hidden default does no harm. The command ``trawl check``,
the first lines of a crawl's log and the summary at its end contain the same sentences. Most pairs are rows of two
tables. The delays of a host need more, because two delays, the slots and each scope's own keys work together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import inf
from operator import not_
from typing import Any

import attrs

from trawl.settings.values import DEFAULT, MOVED_DEFAULT, Settings
from trawl.spiders import Spider
from trawl.throttling import ThrottlingSettings
from trawl.throttling.limits import Limits, limits_of
from trawl.throttling.scopes import is_address, is_host_like, normal_id

__all__ = ["without_effect"]


@attrs.frozen
class _Switch:
    """A setting that turns off the settings in ``hidden``, where a name that ends in ``_`` is a prefix.

    Attributes:
        is_off: Returns whether a value turns the other settings off.
        words: Description of such a value, for the message.
        is_option: Whether an option of ``trawl crawl`` often sets this setting. If so, it is only checked when a crawl
            starts.
    """

    name: str
    is_off: Callable[[Any], bool]
    words: str
    hidden: tuple[str, ...]
    is_option: bool = False


def _is_no_server(value: Any) -> bool:
    return "://" not in str(value)


def _names_no_store(feeds: Any) -> bool:
    return not any("://" in str(path) and not str(path).startswith("file:") for path in feeds)


def _is_above_info(level: Any) -> bool:
    return level not in ("INFO", "DEBUG") and (isinstance(level, str) or level > logging.INFO)


_FALSE, _EMPTY = "is false", "is empty"

_DEBUG = ("LOGSTATS_INTERVAL", "COOKIES_DEBUG", "AUTOTHROTTLE_DEBUG")

_SWITCHES: tuple[_Switch, ...] = (
    _Switch("RETRY_ENABLED", not_, _FALSE, ("RETRY_",)),
    _Switch(
        "RETRY_TIMES", not_, "is 0, and only meta max_retry_times overrides it",
        (
            "RETRY_DELAY", "RETRY_MAX_DELAY", "RETRY_PRIORITY_ADJUST", "RETRY_HTTP_CODES", "RETRY_PREDICATE",
            "RETRY_BUDGET", "RETRY_BUDGET_",
        ),
    ),
    _Switch("RETRY_BUDGET", lambda value: value is None, "is not set", ("RETRY_BUDGET_",)),
    _Switch("ROBOTSTXT_OBEY", not_, _FALSE, ("ROBOTSTXT_", "THROTTLING_ROBOTSTXT_")),
    _Switch("ROBOTSTXT_RETRY_TIMES", not_, "is 0", ("ROBOTSTXT_RETRY_DELAY",)),
    _Switch("THROTTLING_ROBOTSTXT_OBEY", not_, _FALSE, ("THROTTLING_ROBOTSTXT_MAX_DELAY",)),
    _Switch("THROTTLING_ROBOTSTXT_MAX_DELAY", not_, "is 0", ("THROTTLING_ROBOTSTXT_OBEY",)),
    _Switch("THROTTLING_RATELIMIT_MAX_DELAY", not_, "is 0", ("THROTTLING_RATELIMIT_OBEY",)),
    _Switch("THROTTLING_RATELIMIT_OBEY", not_, _FALSE, ("THROTTLING_RATELIMIT_MAX_DELAY",)),
    _Switch("AUTOTHROTTLE_ENABLED", not_, _FALSE, ("AUTOTHROTTLE_",)),
    _Switch("HTTPCACHE_ENABLED", not_, _FALSE, ("HTTPCACHE_",)),
    _Switch(
        "HTTPCACHE_POLICY", lambda value: value == "always", "is 'always'",
        ("HTTPCACHE_ALWAYS_STORE", "HTTPCACHE_IGNORE_RESPONSE_CACHE_CONTROLS"),
    ),
    _Switch("COOKIES_ENABLED", not_, _FALSE, ("COOKIES_FILE",)),
    _Switch("REFERER_ENABLED", not_, _FALSE, ("REFERRER_POLICY",)),
    _Switch("REDIRECT_ENABLED", not_, _FALSE, ("REDIRECT_", "METAREFRESH_")),
    _Switch("METAREFRESH_ENABLED", not_, _FALSE, ("METAREFRESH_",)),
    _Switch("HTTPPROXY_ENABLED", not_, _FALSE, ("ROTATING_PROXY_",)),
    _Switch("ROTATING_PROXY_LIST", not_, _EMPTY, ("ROTATING_PROXY_",), is_option=True),
    _Switch("HTTPERROR_ALLOW_ALL", bool, "is true", ("HTTPERROR_ALLOWED_CODES",)),
    _Switch("CONCURRENT_REQUESTS_PER_IP", bool, "is above 0", ("CONCURRENT_REQUESTS_PER_DOMAIN",)),
    _Switch("JOB_DIR", _is_no_server, "is not a server", ("JOB_DURABILITY", "JOB_LEASE"), is_option=True),
    _Switch("JOB_DIR", not_, _EMPTY, ("JOB_KEEP_GIVEN_UP",), is_option=True),
    _Switch("WARC_FILE", not_, _EMPTY, ("WARC_MAX_BYTES",)),
    _Switch("ITEM_TYPE", not_, "is not set", ("INVALID_ITEMS",)),
    _Switch("ITEM_PIPELINES", not_, _EMPTY, ("FILES_", "IMAGES_", "MEDIA_STORE_OPTIONS", "MEDIA_ALLOW_REDIRECTS")),
    _Switch(
        "FEEDS", not_, _EMPTY,
        ("FEED_EXPORT_FIELDS", "FEED_EXPORT_INDENT", "FEED_EXPORT_BATCH_ITEM_COUNT", "FEED_TEMPDIR"),
        is_option=True,
    ),
    _Switch("FEEDS", _names_no_store, "names no store such as s3://", ("FEED_TEMPDIR",), is_option=True),
    _Switch("LOG_ENABLED", not_, _FALSE, ("LOG_", *_DEBUG)),
    _Switch("LOG_LEVEL", _is_above_info, "is above INFO", _DEBUG, is_option=True),
    _Switch("LOG_FORMAT", lambda value: "%(asctime)" not in value, "has no %(asctime)s", ("LOG_DATEFORMAT",)),
    _Switch("LOG_FILE", not_, "is not set", ("LOG_FILE_APPEND", "LOG_ENCODING"), is_option=True),
)  # fmt: skip


@attrs.frozen
class _Cap:
    """A number that is limited by another one, unless that is 0. If ``is_whole``, an equal number is hidden too."""

    hidden: str
    cap: str
    is_whole: bool = False


_CAPS: tuple[_Cap, ...] = (
    _Cap("CONCURRENT_REQUESTS_PER_DOMAIN", "CONCURRENT_REQUESTS"),
    _Cap("CONCURRENT_REQUESTS_PER_IP", "CONCURRENT_REQUESTS"),
    _Cap("PAGES_PER_DOMAIN", "CLOSESPIDER_PAGECOUNT", is_whole=True),
    _Cap("CLOSESPIDER_TIMEOUT_NO_ITEM", "CLOSESPIDER_TIMEOUT", is_whole=True),
    _Cap("MEMUSAGE_WARNING_MB", "MEMUSAGE_LIMIT_MB", is_whole=True),
    _Cap("DELAYED_REQUESTS_WARN_THRESHOLD", "DIRECT_FETCHES_LIMIT"),
    _Cap("DOWNLOAD_CONNECT_TIMEOUT", "DOWNLOAD_TIMEOUT", is_whole=True),
    _Cap("DOWNLOAD_READ_TIMEOUT", "DOWNLOAD_TIMEOUT", is_whole=True),
    _Cap("DOWNLOAD_WARNSIZE", "DOWNLOAD_MAXSIZE", is_whole=True),
    _Cap("RETRY_DELAY", "RETRY_MAX_DELAY"),
    _Cap("AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"),
    _Cap("ROTATING_PROXY_BACKOFF_BASE", "ROTATING_PROXY_BACKOFF_CAP"),
)


def without_effect(settings: Settings, spider: object = None, *, is_whole: bool = True) -> list[str]:
    """Return a sentence with advice for each setting that the user has set and another setting hides.

    The spider or its class may have a ``download_delay``, which is checked, and a ``handle_httpstatus_list``. If
    ``is_whole`` is false, options of a crawl may still add settings.
    """
    download_delay: object = getattr(spider, "download_delay", None)
    throttling = settings.of(ThrottlingSettings).with_download_delay(download_delay)
    return [
        *_of_delays(settings, throttling, download_delay),
        *_of_spider(settings, spider),
        *_of_autothrottle(settings, throttling),
        *_of_longest_delays(settings, throttling),
        *_of_scopes(throttling),
        *_without_scope(settings, throttling),
        *_out_of_reach(settings),
        *_switched_off(settings, is_whole=is_whole),
        *_of_feeds(settings),
        *_unsent(settings),
    ]


def _is_set(settings: Settings, name: str) -> bool:
    return settings.source(name) not in (DEFAULT, MOVED_DEFAULT)


def _switched_off(settings: Settings, *, is_whole: bool) -> Iterator[str]:
    told: set[str] = set()
    given = [name for name in settings if _is_set(settings, name)]
    for switch in _SWITCHES:
        if not switch.is_off(settings[switch.name]) or (switch.is_option and not is_whole):
            continue
        names = [
            name
            for name in given
            if name != switch.name
            and name not in told
            and any(name.startswith(each) if each.endswith("_") else name == each for each in switch.hidden)
            # A value of False or None turns the setting off, so no effect can be hidden.
            and settings[name] not in (False, None)
        ]
        if names:
            told.update(names)
            have = "has" if len(names) == 1 else "have"
            yield f"{', '.join(names)} {have} no effect: {switch.name} {switch.words}"


def _unsent(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each setting of the crawler's name that another setting hides."""
    if _is_set(settings, "CONTACT") and settings["CONTACT"] and settings["CONTACT"] not in settings["USER_AGENT"]:
        yield "CONTACT has no effect: USER_AGENT is set; name it there, or leave USER_AGENT out"
    headers = {name.lower() for name in settings["DEFAULT_REQUEST_HEADERS"]}
    for name in ("USER_AGENT", "CONTACT"):
        if "user-agent" in headers and _is_set(settings, name) and settings[name]:
            yield f"{name} has no effect: DEFAULT_REQUEST_HEADERS has a User-Agent; keep one of them"
            return


def _out_of_reach(settings: Settings) -> Iterator[str]:
    for each in _CAPS:
        value, cap = settings[each.hidden], settings[each.cap]
        if cap and _is_set(settings, each.hidden) and (value > cap or (each.is_whole and value == cap)):
            # _of_scopes() uses the same wording for concurrencies.
            above = "above" if value > cap else "not below"
            yield f"{each.hidden} is {value:g}, {above} {each.cap} = {cap:g}, which caps it; raise that too"
    name = "MEMUSAGE_CHECK_INTERVAL_SECONDS"
    if _is_set(settings, name) and not (settings["MEMUSAGE_LIMIT_MB"] or settings["MEMUSAGE_WARNING_MB"]):
        yield f"{name} has no effect: MEMUSAGE_LIMIT_MB and MEMUSAGE_WARNING_MB are 0"


def _of_spider(settings: Settings, spider: object) -> Iterator[str]:
    """Yield a sentence for each setting that an attribute of the spider overrides."""
    overriding = (("download_delay", "DOWNLOAD_DELAY"), ("handle_httpstatus_list", "HTTPERROR_ALLOWED_CODES"))
    for attribute, name in overriding:
        own = getattr(spider, attribute, None)
        has_own = own is not None and own is not getattr(Spider, attribute)
        if has_own and _is_set(settings, name) and settings[name] != own and settings[name] != ():
            yield f"{name} has no effect: the spider's {attribute} overrides it; keep one of them"


def _of_autothrottle(settings: Settings, throttling: ThrottlingSettings) -> Iterator[str]:
    """Yield a sentence for each setting that keeps AutoThrottle from its configured delay or concurrency."""
    if not throttling.autothrottle_enabled:
        return
    slots, slots_name = throttling.concurrent_requests_per_domain, "CONCURRENT_REQUESTS_PER_DOMAIN"
    if throttling.concurrent_requests_per_ip:
        slots, slots_name = throttling.concurrent_requests_per_ip, "CONCURRENT_REQUESTS_PER_IP"
    target, name = throttling.autothrottle_target_concurrency, "AUTOTHROTTLE_TARGET_CONCURRENCY"
    if slots and target > slots and _is_set(settings, name):
        yield f"{name} is {target:g}, above {slots_name} = {slots:g}, which caps it; raise that too"
    least = [(throttling.download_delay, "DOWNLOAD_DELAY")]
    if slots == 1:
        least.append((throttling.download_delay_per_slot, "DOWNLOAD_DELAY_PER_SLOT"))
    longest, longest_name = max(least)
    for name in ("AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"):
        if _is_set(settings, name) and settings[name] < longest:
            yield f"{name} = {settings[name]:g} has no effect: {longest_name} ({longest:g} s) is longer"


def _of_longest_delays(settings: Settings, throttling: ThrottlingSettings) -> Iterator[str]:
    """Yield a sentence for each maximum of learned delays that is below the configured delay of hosts."""
    delay = throttling.download_delay
    for name in ("THROTTLING_ROBOTSTXT_MAX_DELAY", "THROTTLING_RATELIMIT_MAX_DELAY", "BACKOFF_MAX_DELAY"):
        if _is_set(settings, name) and 0 < settings[name] < delay:
            yield f"{name} = {settings[name]:g} has no effect on hosts: their delay ({delay:g} s) is longer"


_OF_FEEDS = {
    "FEED_EXPORT_FIELDS": "fields", "FEED_EXPORT_INDENT": "indent", "FEED_EXPORT_BATCH_ITEM_COUNT": "batch_item_count",
    "FEED_EXPORT_ENCODING": "encoding", "FEED_STORE_EMPTY": "store_empty",
}  # fmt: skip


def _of_feeds(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each default of feeds that every feed overrides."""
    for name, key in _OF_FEEDS.items():
        feeds = settings["FEEDS"].values()
        if feeds and _is_set(settings, name) and all(options.get(key) is not None for options in feeds):
            yield f"{name} has no effect: each feed of FEEDS has its own {key!r}"


def _of_delays(settings: Settings, throttling: ThrottlingSettings, download_delay: object) -> Iterator[str]:
    """Yield a sentence for each delay setting that is hidden for a host without its own keys."""
    limits = limits_of({}, throttling, is_host=True)
    slots = throttling.concurrent_requests_per_ip or throttling.concurrent_requests_per_domain
    limits = attrs.evolve(limits, concurrency=min(slots, throttling.concurrent_requests or inf))
    delay = "DOWNLOAD_DELAY" if download_delay is None else "the spider's download_delay"
    is_set = download_delay is not None or _is_set(settings, delay)
    yield from _of_two_delays(
        limits,
        (delay, is_set),
        ("DOWNLOAD_DELAY_PER_SLOT", _is_set(settings, "DOWNLOAD_DELAY_PER_SLOT")),
        "set DOWNLOAD_DELAY_PER_SLOT too, or give the host a 'rate' in THROTTLING_SCOPES",
    )


def _of_two_delays(limits: Limits, delay: tuple[str, bool], per_slot: tuple[str, bool], advice: str) -> Iterator[str]:
    """Yield a sentence if one of two delays hides the other. Each has a name, and whether the user has set it."""
    if limits.delay < limits.delay_per_slot and limits.concurrency <= 1 and delay[1]:
        value = 1.0 / limits.delay if limits.is_rate else limits.delay
        other = f"{per_slot[0]} ({limits.delay_per_slot:g} s, one slot)"
        yield f"{delay[0]} = {value:g} has no effect: {other} decides; {advice}"
    elif limits.delay_per_slot < limits.delay and per_slot[1] and limits.delay_per_slot > 0.0:
        yield f"{per_slot[0]} = {limits.delay_per_slot:g} has no effect: {delay[0]} ({limits.delay:g} s) is longer"


def _of_scopes(throttling: ThrottlingSettings) -> Iterator[str]:
    """Yield a sentence for each key of ``THROTTLING_SCOPES`` that another key or a setting for all hosts hides."""
    most = throttling.concurrent_requests or inf
    hosts = [id for id in throttling.throttling_scopes if is_host_like(id) and not is_address(id)]
    if throttling.concurrent_requests_per_ip and hosts:  # the configuration is looked up by address
        yield (
            "CONCURRENT_REQUESTS_PER_IP throttles by address: THROTTLING_SCOPES of host names have no effect "
            f"({', '.join(map(repr, hosts))}); name the address, or give scopes in meta"
        )
    for id, config in throttling.throttling_scopes.items():
        path = f"THROTTLING_SCOPES[{normal_id(id)!r}]"
        limits = limits_of(config, throttling, is_host=is_host_like(id))
        concurrency = config.get("concurrency", 0)
        if concurrency > most:
            capped = f"above CONCURRENT_REQUESTS = {most:g}, which caps it; raise that too"
            yield f"{path} has concurrency {concurrency:d}, {capped}"
        has_own = "delay_per_slot" in config
        yield from _of_two_delays(
            attrs.evolve(limits, concurrency=min(limits.concurrency, most)),
            (f"{path}['rate']" if limits.is_rate else f"{path}['delay']", limits.is_rate or "delay" in config),
            (f"{path}['delay_per_slot']" if has_own else "DOWNLOAD_DELAY_PER_SLOT", has_own),
            "keep one of them" if has_own else "set the scope's 'delay_per_slot' too, or give it a 'rate' instead",
        )
        for key in ("window", "sliding"):
            if config.get(key) and "quota" not in config:
                yield f"{path}[{key!r}] has no effect: the scope has no 'quota'"


def _without_scope(settings: Settings, throttling: ThrottlingSettings) -> Iterator[str]:
    """Yield a sentence for each setting that only affects scopes with a certain key, if no scope has this key."""
    if _is_set(settings, "THROTTLING_MANAGER") or _is_set(settings, "THROTTLING_SCOPE_MANAGER"):
        return  # the user's manager may set keys
    configs = [*throttling.throttling_scopes.values()]
    configs += [session.get("throttling", {}) for session in settings["SESSIONS"].values()]
    for name, key in (("RAMPUP_BACKOFF_TARGET", "rampup"), ("THROTTLING_WINDOW", "quota")):
        if _is_set(settings, name) and not any(config.get(key) for config in configs):
            yield f"{name} has no effect: no scope of THROTTLING_SCOPES has {key!r}"
