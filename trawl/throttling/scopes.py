"""Ids of scopes, and the small functions that managers build sets of scopes with.

A *host-like* id is written one way only, so that case, punycode, a root dot or brackets never make two scopes of one
host (E19, R6): an IP address, or DNS labels with a dot and nothing else, with or without a port; and ``localhost``.
Any other id is the user's own and stays as it is.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import ada_url

__all__ = [
    "ScopeAmounts",
    "ScopeBackoff",
    "Scopes",
    "add_scope",
    "host_part",
    "is_address",
    "is_host_like",
    "is_mistaken",
    "iter_scopes",
    "normal_id",
    "scope_amounts_of",
    "scope_cache",
    "update_scope_backoff",
]

Scopes = None | str | Iterable[str] | Mapping[str, float | None]
"""What ``get_scopes`` may return (E08)."""

ScopeBackoff = None | str | Iterable[str] | Mapping[str, Mapping[str, float] | None]
"""What the backoff methods may return (E09)."""

ScopeAmounts = tuple[tuple[str, float | None], ...]
"""The scopes of one request, sorted by id, each with its expected amount (None: not named, counts 1.0)."""

_LABELS = re.compile(r"(?P<host>[^\s/:@\[\]?#%\\]+)(?::(?P<port>\d{1,5}))?")
_BRACKETS = re.compile(r"\[(?P<host>[0-9A-Fa-f:.]+)\](?::(?P<port>\d{1,5}))?")
_NORMAL = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*")

_UNKNOWN: Any = object()
_LATEST = 1000  # answers kept for requests that can't be referred to weakly

_Seen = tuple[Any, dict[Any, Any]]  # a request's URL and meta when it was asked about

_Method = TypeVar("_Method", bound=Callable[..., Any])


def normal_id(id: str) -> str:
    """An id as it is kept: host-like ones in lower case, ASCII, no root dot, IPv6 in brackets; others unchanged."""
    if _NORMAL.fullmatch(id) and "xn--" not in id:  # the usual case, without a parser
        return id
    return _host_like(id) or id


def is_host_like(id: str) -> bool:
    """Return True if an id names a host and so inherits the per-domain defaults (E20)."""
    return bool(_NORMAL.fullmatch(id)) or _host_like(id) is not None


def is_mistaken(id: str, *, may_be_proxy: bool = False) -> bool:
    """Return True if an id looks like hosts but names none: a pattern, a leading dot, a URL.

    Args:
        id: The id.
        may_be_proxy: A URL of host and port alone may be the name that a manager gives to a proxy.
    """
    if "*" in id:
        return True
    scheme, separator, rest = id.partition("://")
    if not separator:
        return id.startswith(".") and is_host_like(id[1:]) and host_part(id[1:]) == id[1:]
    authority, slash, _ = rest.partition("/")
    authority = authority.rpartition("@")[2]
    is_site = bool(slash) or host_part(authority) == authority
    return scheme.lower() in {"http", "https"} and is_host_like(authority) and (is_site or not may_be_proxy)


def host_part(id: str) -> str:
    """A host-like id without its port: configuration is looked up by ``host:port``, then by ``host``."""
    host, colon, port = id.rpartition(":")
    return host if colon and port.isdigit() and not host.endswith(":") else id


def is_address(id: str) -> bool:
    """Return True if an id names an IP address, with or without a port."""
    try:
        ipaddress.ip_address(host_part(id).strip("[]"))
    except ValueError:
        return False
    return True


def _host_like(id: str) -> str | None:
    """The normal form of a host-like id; None for any other."""
    if id.count(":") > 1 and not id.startswith("["):
        return _address(id)
    match = _BRACKETS.fullmatch(id) or _LABELS.fullmatch(id)
    if match is None:
        return None
    host, port = match["host"].removesuffix("."), match["port"]
    tail = f":{int(port)}" if port else ""
    if id.startswith("["):
        return f"{address}{tail}" if (address := _address(host)) else None
    if host.lower() == "localhost":
        return f"localhost{tail}"
    name = _name(host)
    return f"{name}{tail}" if name else None


def _address(text: str) -> str | None:
    """The id of an IPv6 address; one that stands for an IPv4 address (RFC 4291, 2.5.5.2) is one with that."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return f"[{address.compressed}]" if address.ipv4_mapped is None else str(address.ipv4_mapped)


def _name(host: str) -> str | None:
    """A dotted name or IPv4 address as a browser writes it (WHATWG URL, 3.5); None if it is neither."""
    labels = host.split(".")
    if len(labels) < 2 or not all(labels):
        return None
    if labels[-1].isdigit():  # a browser would read "1.5" as an address; a person means neither
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            return None
    if not all(character.isalnum() or character in "-_." or ord(character) > 127 for character in host):
        return None
    try:
        return ada_url.URL(f"http://{host}/").hostname
    except ValueError:
        return None


def iter_scopes(scopes: Scopes) -> Iterator[str]:
    """The ids of a set of scopes in any of its forms (E16).

    Raises:
        TypeError: It is none of them.
    """
    if scopes is None:
        return
    if isinstance(scopes, str):
        yield scopes
        return
    if not isinstance(scopes, Iterable):
        raise TypeError(f"scopes must be a string, an iterable of strings, a mapping or None, not {scopes!r}")
    for id in scopes:
        yield _checked_id(id)


def add_scope(scopes: Scopes, id: str, amount: float | None = None) -> Scopes:
    """``scopes`` with one more (E14): None + a = a; a + a = a; a + b = {a, b}; an amount makes a mapping, which stays.

    Raises:
        TypeError: ``scopes`` is not a set of scopes, ``id`` is not a string, or ``amount`` is not a number.
    """
    _checked_id(id)
    _check_amount(amount, "an amount")
    if isinstance(scopes, Mapping):
        amounts = {_checked_id(key): value for key, value in scopes.items()}
        for key, value in amounts.items():
            _check_amount(value, f"the amount of scope {key!r}")
        return {**amounts, id: amounts.get(id) if amount is None else amount}
    ids = list(iter_scopes(scopes))
    if amount is not None:
        return {**dict.fromkeys(ids), id: amount}
    if scopes is None or ids == [id]:
        return id
    return {*ids, id}


def update_scope_backoff(
    backoff: ScopeBackoff,
    id: str,
    *,
    delay: float | None = None,
    consumed: float | None = None,
    remaining: float | None = None,
    consumed_quota: float | None = None,
) -> ScopeBackoff:
    """``backoff`` with one more scope in it, or with more known about one (E15).

    Args:
        backoff: What there is so far, in any form that a backoff method may return.
        id: The scope.
        delay: No send for this many seconds.
        consumed: What the request really used of the quota.
        remaining: What is left of the quota.
        consumed_quota: Another name of ``consumed``.

    Raises:
        TypeError: ``backoff`` is none of the forms, ``id`` is not a string, or a figure is not a number.
    """
    _checked_id(id)
    if consumed is None:
        consumed = consumed_quota
    figures = {"delay": delay, "consumed": consumed, "remaining": remaining}
    for name, number in figures.items():
        _check_amount(number, name)
    known = {name: float(number) for name, number in figures.items() if number is not None}
    if isinstance(backoff, Mapping):
        kept = {_checked_id(key): _checked_figures(key, value) for key, value in backoff.items()}
        return {**kept, id: {**kept.get(id, {}), **known}}
    ids = list(iter_scopes(backoff))
    if known:
        return {**{key: {} for key in ids}, id: known}
    if backoff is None or ids == [id]:
        return id
    return {*ids, id}


def scope_cache(method: _Method) -> _Method:
    """Decorate ``get_scopes``, sync or async: it is really called once per request object (E13).

    The answers are kept with the manager and end with their requests. A copy of a request is another object and is
    asked about again; so is one whose URL or meta has been changed since.
    """
    name = f"_scope_cache_{method.__qualname__}"

    def answers_of(manager: Any) -> _ScopeCache:
        kept: _ScopeCache = vars(manager).setdefault(name, _ScopeCache())
        return kept

    if iscoroutinefunction(method):

        @wraps(method)
        async def ask(self: Any, request: Any) -> Any:
            answers = answers_of(self)
            if (scopes := answers.get(request)) is _UNKNOWN:
                scopes = answers.keep(request, await method(self, request))
            return scopes

        return cast(_Method, ask)

    @wraps(method)
    def ask_nowait(self: Any, request: Any) -> Any:
        answers = answers_of(self)
        if (scopes := answers.get(request)) is _UNKNOWN:
            scopes = answers.keep(request, method(self, request))
        return scopes

    return cast(_Method, ask_nowait)


class _ScopeCache:
    """Answers of ``get_scopes`` by request object: weakly where a request can be, else the latest ones."""

    __slots__ = ("_latest", "_weak")

    def __init__(self) -> None:
        self._weak: WeakKeyDictionary[Any, tuple[Any, _Seen]] = WeakKeyDictionary()
        self._latest: dict[int, tuple[Any, Any, _Seen]] = {}  # the request is kept too: its id is not given to another

    def get(self, request: Any) -> Any:
        if (found := self._latest.get(id(request))) is not None:
            _, scopes, seen = found
        else:
            try:
                scopes, seen = self._weak[request]
            except (KeyError, TypeError):
                return _UNKNOWN
        return scopes if _is_unchanged(request, seen) else _UNKNOWN

    def keep(self, request: Any, scopes: Any) -> Any:
        if scopes is not None and not isinstance(scopes, str | Mapping):
            scopes = tuple(scopes)  # a generator is read once
        seen = _seen(request)
        try:
            self._weak[request] = scopes, seen
        except TypeError:
            self._latest[id(request)] = request, scopes, seen
            if len(self._latest) > _LATEST:
                del self._latest[next(iter(self._latest))]
        return scopes


def _seen(request: Any) -> _Seen:
    """A request's URL and meta, as they are now."""
    return getattr(request, "url", None), dict(request.meta) if getattr(request, "has_meta", False) else {}


def _is_unchanged(request: Any, seen: _Seen) -> bool:
    """Return True if a request has the URL and the very values in its meta that it had when it was asked about."""
    (url, meta), (former_url, before) = _seen(request), seen
    if url != former_url or len(meta) != len(before):
        return False
    return all(before.get(key, _UNKNOWN) is value for key, value in meta.items())


def scope_amounts_of(scopes: Scopes) -> ScopeAmounts:
    """A set of scopes in any form as sorted, normalised charges.

    Raises:
        TypeError: It is not a set of scopes, or an amount is not a number.
        ValueError: An id is empty, or an amount is negative or not finite.
    """
    if scopes is None:
        return ()
    if isinstance(scopes, str):
        return ((_normal(scopes), None),)
    amounts: dict[str, float | None] = {}
    if isinstance(scopes, Mapping):
        for id, amount in scopes.items():
            _check_amount(amount, f"the amount of scope {id!r}")
            if amount is not None and not 0 <= amount < float("inf"):
                raise ValueError(f"the amount of scope {id!r} must be a number from 0 up, not {amount!r}")
            amounts[_normal(_checked_id(id))] = None if amount is None else float(amount)
    else:
        amounts = {_normal(id): None for id in iter_scopes(scopes)}
    return tuple(sorted(amounts.items(), key=lambda charge: charge[0]))


def _normal(id: str) -> str:
    if not id:
        raise ValueError("the id of a scope must not be empty")
    return normal_id(id)


def _checked_id(id: object) -> str:
    if not isinstance(id, str):
        raise TypeError(f"the id of a scope must be a string, not {id!r}")
    return id


def _checked_figures(id: str, figures: object) -> dict[str, float]:
    """A copy of what a backoff says about one scope."""
    if figures is None:
        return {}
    if not isinstance(figures, Mapping):
        raise TypeError(f"the backoff of scope {id!r} must be a mapping, not {figures!r}")
    for name, number in figures.items():
        _check_amount(number, f"{name!r} of scope {id!r}")
    return dict(figures)


def _check_amount(amount: object, name: str) -> None:
    if amount is not None and (isinstance(amount, bool) or not isinstance(amount, int | float)):
        raise TypeError(f"{name} must be a number or None, not {amount!r}")
