"""Types and checks of the mappings inside the throttling settings. An error names the entry."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from trawl.errors import SettingsError
from trawl.throttling.limits import jitter_factors
from trawl.tracebacks import user_code

__all__ = [
    "JITTER_RANGE",
    "BackoffConfig",
    "JitterConfig",
    "RampupConfig",
    "ScopeConfig",
    "check_backoff",
    "check_count",
    "check_jitter",
    "check_rampup",
    "check_scope",
    "check_target",
    "load_class",
    "load_manager",
    "load_object",
    "mistyped",
]

JitterConfig = bool | float | tuple[float, float]
"""True (±50 %), False (exact), a number x (±x), or a pair [lo, hi] relative to the delay."""

JITTER_RANGE = "a number from 0 to 1, or a pair from -1 up in rising order"
"""The values that check_jitter allows, for the reference."""

MAX_NUMBER = 1e300  # the maximum number that is accepted. Arithmetic overflows not far above it.

_WORDS = {
    "array": "a list", "bool": "true or false", "float": "a number", "int": "a whole number", "object": "a mapping",
    "str": "a string",
}  # fmt: skip


class BackoffConfig(TypedDict, total=False):
    """A scope's own backoff. An absent key falls back to the setting ``BACKOFF_<KEY>``.

    With ``cls`` (a class or its import path), the other keys are that class's arguments and may have any name.

    Attributes:
        http_codes: Status codes that trigger backoff. Replaces the setting. No other response is a trigger then, even
            if it names a time to retry.
        exceptions: Exceptions that trigger backoff. Replaces the setting.
        delay_factor: Each backoff step multiplies the delay by this.
        max_delay: Maximum delay of backoff, and maximum wait that a header may request.
        min_delay: Minimum delay during backoff.
        jitter: Jitter during backoff, which replaces every download jitter. It only lengthens delays.
        window: Time without triggers after a good response that undoes one backoff step.
        concurrency_factor: At the maximum delay, each further step multiplies the concurrency by this.
        cls: Class of your own strategy. The other keys are its arguments.
    """

    http_codes: Annotated[list[int], Meta(extra={"absent": "BACKOFF_HTTP_CODES"})]
    exceptions: Annotated[list[object], Meta(extra={"absent": "BACKOFF_EXCEPTIONS"})]
    delay_factor: Annotated[float, Meta(gt=1, extra={"absent": "BACKOFF_DELAY_FACTOR"})]
    max_delay: Annotated[float, Meta(ge=0, title="s", extra={"absent": "BACKOFF_MAX_DELAY"})]
    min_delay: Annotated[float, Meta(ge=0, title="s", extra={"absent": "BACKOFF_MIN_DELAY"})]
    jitter: Annotated[JitterConfig, Meta(extra={"absent": "BACKOFF_JITTER", "range": JITTER_RANGE})]
    window: Annotated[float, Meta(gt=0, title="s", extra={"absent": "BACKOFF_WINDOW"})]
    concurrency_factor: Annotated[float, Meta(gt=0, lt=1, extra={"absent": "BACKOFF_CONCURRENCY_FACTOR"})]
    cls: Annotated[object, Meta(extra={"absent": "the default strategy"})]


class RampupConfig(TypedDict, total=False):
    """A scope's rampup.

    Attributes:
        backoff_target: Target number of triggers in each window: a number, or a range in ascending order.
        delay_factor: A window without triggers multiplies the delay by this.
        min_delay: Minimum delay of rampup.
        window: Length of a window. If you set it, the rate does not double at the start.
    """

    # check_target checks the range: a limited number next to a tuple crashes msgspec 0.22 when it is freed.
    backoff_target: Annotated[
        float | tuple[float, float],
        Meta(title="triggers", extra={"absent": "RAMPUP_BACKOFF_TARGET", "range": "at least 0, the higher above 0"}),
    ]
    delay_factor: Annotated[float, Meta(gt=0, lt=1, extra={"absent": "0.8"})]
    min_delay: Annotated[float, Meta(ge=0, title="s", extra={"absent": "0.0"})]
    window: Annotated[
        float, Meta(gt=0, title="s", extra={"absent": "40 to 60 responses, at most the window of the scope's backoff"})
    ]


class ScopeConfig(TypedDict, total=False):
    """One entry of ``THROTTLING_SCOPES``. An absent key leaves the scope's default.

    Attributes:
        concurrency: Maximum number of requests in flight at once.
        delay: Minimum time between any two sends.
        delay_per_slot: Minimum time between two sends in one slot.
        rate: Maximum rate of sends. Any t seconds contain at most t * rate + 2 sends. There is no per-slot delay, and
            no concurrency limit unless it is set. Jitter moves each send after its time on a grid of 1/rate seconds.
            After a late send, the next send comes earlier to compensate. Can't be combined with ``delay``.
        jitter: Jitter of the delays.
        backoff: Backoff settings of this scope, or ``cls`` and the arguments of that class.
        rampup: Raise the rate while the server accepts it: true, or a mapping of options.
        quota: Maximum amount to spend in a window. The amount is the number of requests, unless requests name amounts.
        window: Length of the quota's window. 0 means that the quota never blocks.
        sliding: Whether the window slides. Otherwise it starts with the first amount spent.
        pages: Maximum number of pages in the whole crawl, counted as for CLOSESPIDER_PAGECOUNT. Further requests are
            dropped and counted as ``pages_filtered``.
        bandwidth: Average number of bytes per second, as received: headers and bodies, before decompression. After a
            response, nothing is sent until its bytes are paid for. null means no limit.
        manager: Scope manager for this scope only.
        shared: Whether the processes of a job share this scope although its id is a host, because requests to other
            sites also need it. Scopes whose ids are not hosts are always shared.
        ignore_robots_txt: Ignore the Crawl-delay of robots.txt for this scope.
    """

    concurrency: Annotated[
        int, Meta(ge=1, title="requests", extra={"absent": "CONCURRENT_REQUESTS_PER_DOMAIN for a host, else no limit"})
    ]
    delay: Annotated[float, Meta(ge=0, title="s", extra={"absent": "DOWNLOAD_DELAY for a host, else 0.0"})]
    delay_per_slot: Annotated[
        float, Meta(ge=0, title="s", extra={"absent": "DOWNLOAD_DELAY_PER_SLOT for a host, else 0.0"})
    ]
    rate: Annotated[float, Meta(gt=0, title="requests/s", extra={"absent": "no rate"})]
    jitter: Annotated[JitterConfig, Meta(extra={"absent": "RANDOMIZE_DOWNLOAD_DELAY", "range": JITTER_RANGE})]
    backoff: Annotated[dict[str, Any], Meta(extra={"absent": "the settings of backoff", "keys": BackoffConfig})]
    rampup: Annotated[bool | dict[str, Any], Meta(extra={"absent": "false", "keys": RampupConfig})]
    quota: Annotated[float, Meta(gt=0, title="your unit", extra={"absent": "no quota"})]
    window: Annotated[float, Meta(ge=0, title="s", extra={"absent": "THROTTLING_WINDOW"})]
    sliding: Annotated[bool, Meta(extra={"absent": "false"})]
    pages: Annotated[int, Meta(ge=1, title="pages", extra={"absent": "PAGES_PER_DOMAIN for a host, else no limit"})]
    bandwidth: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(title="bytes/s", extra={"absent": "no limit"})]
    manager: Annotated[object, Meta(extra={"absent": "THROTTLING_SCOPE_MANAGER"})]
    shared: Annotated[bool, Meta(extra={"absent": "false"})]
    ignore_robots_txt: Annotated[bool, Meta(extra={"absent": "false"})]


def check_scope(config: object, path: str) -> ScopeConfig:
    """Return ``config`` as one scope's configuration. ``path`` names it in messages: ``THROTTLING_SCOPES['api']``.

    Raises:
        SettingsError: If a key is unknown (the message names the nearest key), a value has the wrong type or is out of
        range, or two keys contradict each other.
    """
    checked = _check_mapping(config, ScopeConfig, path)
    for key in ("rate", "bandwidth"):
        if (checked.get(key) or 1.0) < 1.0 / MAX_NUMBER:
            raise SettingsError(
                f"{path}[{key!r}] is so low that nothing would ever be sent: {checked[key]:g}; raise it", path
            )
    if "rate" in checked and "delay" in checked:
        raise SettingsError(
            f"{path} has both 'rate' and 'delay', but a rate is a delay of 1/rate; keep one of them", path
        )
    if "jitter" in checked:
        check_jitter(checked["jitter"], f"{path}['jitter']")
    if "backoff" in checked:
        checked["backoff"] = check_backoff(checked["backoff"], f"{path}['backoff']")
    if "rampup" in checked and not isinstance(checked["rampup"], bool):
        checked["rampup"] = check_rampup(checked["rampup"], f"{path}['rampup']")
    if checked.get("manager") is not None:
        load_manager(checked["manager"], f"{path}['manager']", "THROTTLING_SCOPE_MANAGER")
    return checked  # type: ignore[return-value]


def check_backoff(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return a ``backoff`` mapping with checked keys and values. With ``cls``, check only that class."""
    if "cls" in config:
        load_object(config["cls"], f"{path}['cls']")
        return config
    checked = _check_mapping(config, BackoffConfig, path)
    if "jitter" in checked:
        check_jitter(checked["jitter"], f"{path}['jitter']")
    low, high = checked.get("min_delay", 0.0), checked.get("max_delay", math.inf)
    if low > high:
        raise SettingsError(f"{path}['min_delay'] ({low:g} s) is above its 'max_delay' ({high:g} s)", path)
    for index, exception in enumerate(checked.get("exceptions", ())):
        load_exception(exception, f"{path}['exceptions'][{index}]")
    return checked


def check_rampup(config: object, path: str) -> Mapping[str, Any]:
    """Return a checked ``rampup`` mapping."""
    checked = _check_mapping(config, RampupConfig, path)
    if "backoff_target" in checked:
        check_target(checked["backoff_target"], f"{path}['backoff_target']")
    return checked


def check_target(value: object, path: str) -> tuple[float, float]:
    """Return the minimum and maximum number of triggers wanted in a window."""
    low, high = (value, value) if isinstance(value, int | float) else tuple(value)  # type: ignore[arg-type]
    if not 0 <= low <= high or high <= 0:
        raise SettingsError(f"{path} must be a number above 0 or a range in rising order, not {value!r}", path)
    return float(low), float(high)


def check_count(value: object, path: str) -> None:
    """Reject a number that is too large for arithmetic: beyond the largest float, or near it."""
    if isinstance(value, int | float) and value > MAX_NUMBER:
        raise SettingsError(f"{path} must be at most {MAX_NUMBER:g}", path)


def check_jitter(value: Any, path: str) -> None:
    """Reject a jitter whose factors are negative or in falling order."""
    try:
        jitter_factors(value)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}", path) from error


def load_object(value: object, path: str) -> Any:
    """Return the object that a setting names: the value itself, or the object at its import path.

    Raises:
        SettingsError: If there is nothing at that path.
        PartLoadError: If its module failed while it was imported.
    """
    if not isinstance(value, str):
        return value
    module, _, name = value.rpartition(".")
    if not module or not name:
        raise SettingsError(f"{path} names {value!r}, which is not an import path; write package.module.Name", path)
    try:
        with user_code(f"{path} names {value!r}, which can't be imported"):
            return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"{path} names {value!r}, which can't be imported: {error}", path) from error


def load_class(value: object, path: str) -> type:
    """Return the class that a setting names. Raises SettingsError if its value names none."""
    loaded = load_object(value, path)
    if not isinstance(loaded, type):
        raise SettingsError(f"{path} must be a class or its import path, not {value!r}", path)
    return loaded


_METHODS: Mapping[str, tuple[str, ...]] = {
    "THROTTLING_MANAGER": (
        "get_scopes",
        "get_initial_backoff",
        "get_response_backoff",
        "get_exception_backoff",
        "get_response_delay",
    ),
    "THROTTLING_SCOPE_MANAGER": ("is_trigger", "get_delay", "is_retry", "get_rampup"),
}
"""The methods that trawl calls on the classes of these settings. A class without any of them would have no effect."""

_ALIKE = 0.6  # minimum similarity of two names, from 0 to 1, at which a message suggests one for the other
_MISTYPED = 0.85  # ... and at which one counts as a misspelling of the other, in a class with methods that are called


def load_manager(value: object, path: str, setting: str) -> type:
    """Return the class of managers that a setting names. ``setting`` is the one that requires this kind of manager.

    Raises:
        SettingsError: If the value is neither a class nor the import path of one, or trawl calls none of its methods.
    """
    cls = load_class(value, path)
    own, known = _own_methods(cls), _METHODS[setting]
    if not own or any(name in known for name in own):
        return cls
    ratio, method, name = max((_likeness(method, name), method, name) for method in own for name in known)
    if ratio < _ALIKE and len(_own_bases(cls)) < len(cls.__mro__) - 1:
        return cls  # a subclass of our class, with helper methods
    hint = f"did you mean {name}() instead of {method}()? It" if ratio >= _ALIKE else "it"
    raise SettingsError(
        f"{path}: trawl calls none of the methods of {cls.__qualname__} ({', '.join(own)}); "
        f"{hint} calls {', '.join(known)}",
        path,
    )


def mistyped(cls: type, setting: str) -> Iterator[tuple[str, str]]:
    """Yield each misspelled method of a manager, which is never called, with the method that it resembles."""
    own, known = _own_methods(cls), _METHODS[setting]
    for method in own:
        for name in known:
            if method not in known and name not in own and _likeness(method, name) >= _MISTYPED:
                yield method, name


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _own_bases(cls: type) -> list[type]:
    """Return the classes in a manager's MRO, except ours and ``object``."""
    return [base for base in cls.__mro__ if base is not object and not base.__module__.startswith("trawl.throttling.")]


def _own_methods(cls: type) -> list[str]:
    """Return the public methods that a manager's author wrote, in their order, except ``from_crawler``."""
    found = {
        name: None
        for base in _own_bases(cls)
        for name, value in vars(base).items()
        if (callable(value) or isinstance(value, classmethod | staticmethod)) and not isinstance(value, type)
    }
    return [name for name in found if not name.startswith("_") and name != "from_crawler"]


def load_exception(value: object, path: str) -> type[BaseException]:
    """Return the exception class that a setting names."""
    loaded = load_object(value, path)
    if not (isinstance(loaded, type) and issubclass(loaded, BaseException)):
        raise SettingsError(f"{path} must be an exception class or its import path, not {value!r}", path)
    return loaded


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _check_mapping(config: object, kind: Any, path: str) -> dict[str, Any]:
    """Check a mapping against a typed definition, key by key, so that the error names the key. Return it converted."""
    if not isinstance(config, Mapping):
        raise SettingsError(f"{path} must be a mapping, not {config!r}", path)
    hints = _hints_of(kind)
    checked: dict[str, Any] = {}
    for key, value in config.items():
        if key not in hints:
            raise SettingsError(f"{path} has an unknown key {key!r}{_hint(str(key), hints)}", f"{path}[{key!r}]")
        entry = f"{path}[{key!r}]"
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingsError(f"{entry} must be a finite number, not {value}", entry)
        check_count(value, entry)
        try:
            checked[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise SettingsError(f"{entry} must be {_expected(str(error))}, not {value!r}", entry) from error
    return checked


def _expected(message: str) -> str:
    """Return what msgspec expected, in words: "a number > 1.0", "a whole number at [2]"."""
    expected = message.partition(", got ")[0].removeprefix("Expected ").partition(" - at ")[0]
    words = re.sub(r"`([^`]+)`", lambda kinds: " or ".join(_WORDS.get(k, k) for k in kinds[1].split(" | ")), expected)
    place = re.search(r"`\$([^`]+)`$", message)
    return f"{words} at {place[1]}" if place else words


def _hint(key: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = get_close_matches(key.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names)}"
