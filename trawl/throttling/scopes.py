"""Ids of scopes, and small functions for managers to build sets of scopes.

A *host-like* id is always written in one form, so that case, punycode, a root dot or brackets never make two scopes of
one host. It is an IP address, or DNS labels with a dot and nothing else, with or without a port; or ``localhost``. Any
other id is the user's own and stays unchanged.
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
    "BROWSER",
    "ScopeAmounts",
    "ScopeBackoff",
    "Scopes",
    "add_scope",
    "checked_figures",
    "checked_id",
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

BROWSER = "browser"
"""The id of the scope of pages that a browser renders. A place in it is kept until the page is closed."""

Scopes = None | str | Iterable[str] | Mapping[str, float | None]
"""Types that ``get_scopes`` may return."""

ScopeBackoff = None | str | Iterable[str] | Mapping[str, Mapping[str, float] | None]
"""Types that the backoff methods may return."""

ScopeAmounts = tuple[tuple[str, float | None], ...]
"""The scopes of one request, sorted by id, with expected amounts (None if not named; counts as 1.0)."""

_LABELS = re.compile(r"(?P<host>[^\s/:@\[\]?#%\\]+)(?::(?P<port>\d{1,5}))?")
_BRACKETS = re.compile(r"\[(?P<host>[0-9A-Fa-f:.]+)\](?::(?P<port>\d{1,5}))?")
_NORMAL = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*")

_UNKNOWN: Any = object()
_LATEST = 1000  # maximum number of results kept for requests without weak references

_Seen = tuple[Any, dict[Any, Any]]  # a request's URL and meta at the call

_Method = TypeVar("_Method", bound=Callable[..., Any])


def normal_id(id: str) -> str:
    """Return the stored form of an id. Host-like ids get lower case, ASCII, no root dot, IPv6 in brackets."""
    if _NORMAL.fullmatch(id) and "xn--" not in id:  # the usual case, without a parser
        return id
    return _host_like(id) or id


def is_host_like(id: str) -> bool:
    """Return True if an id names a host, so that it inherits the per-domain defaults."""
    return bool(_NORMAL.fullmatch(id)) or _host_like(id) is not None


def is_mistaken(id: str, *, may_be_proxy: bool = False) -> bool:
    """Return True if an id looks like hosts but names none: a pattern, a leading dot, a URL.

    With ``may_be_proxy``, a URL of only host and port is accepted, because a manager may name a proxy like this.
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
    """Return a host-like id without its port. Configuration is looked up by ``host:port``, then by ``host``."""
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
    """Return the normal form of a host-like id; None for any other id."""
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
    """Return the id of an IPv6 address; an IPv4-mapped one (RFC 4291, section 2.5.5.2) gets the IPv4 address's id."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return f"[{address.compressed}]" if address.ipv4_mapped is None else str(address.ipv4_mapped)


def _name(host: str) -> str | None:
    """Return a dotted name or IPv4 address as browsers write it (WHATWG URL, section 3.5); None if it is neither."""
    labels = host.split(".")
    if len(labels) < 2 or not all(labels):
        return None
    if labels[-1].isdigit():  # a browser would read "1.5" as an address, but no user means one
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
    """Yield the ids of a set of scopes in any of its forms.

    Raises:
        TypeError: If it has none of the forms.
    """
    if scopes is None:
        return
    if isinstance(scopes, str):
        yield scopes
        return
    if not isinstance(scopes, Iterable):
        raise TypeError(f"scopes must be a string, an iterable of strings, a mapping or None, not {scopes!r}")
    for id in scopes:
        yield checked_id(id)


def add_scope(scopes: Scopes, id: str, amount: float | None = None) -> Scopes:
    """Return ``scopes`` with one more: None + a = a; a + a = a; a + b = {a, b}; an amount makes it a mapping.

    Raises:
        TypeError: If ``scopes`` is not a set of scopes, ``id`` is not a string, or ``amount`` is not a number.
    """
    checked_id(id)
    _check_amount(amount, "an amount")
    if isinstance(scopes, Mapping):
        amounts = {checked_id(key): value for key, value in scopes.items()}
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
    """Return ``backoff`` with one more scope, or with more values for a scope.

    Args:
        backoff: The current value, in any form that a backoff method may return.
        id: The scope.
        delay: Seconds without a send.
        consumed: The amount of the quota that the request really used.
        remaining: The remaining amount of the quota.
        consumed_quota: Another name of ``consumed``.

    Raises:
        TypeError: If ``backoff`` has none of the forms, ``id`` is not a string, or an amount is not a number.
    """
    checked_id(id)
    if consumed is None:
        consumed = consumed_quota
    figures = {"delay": delay, "consumed": consumed, "remaining": remaining}
    for name, number in figures.items():
        _check_amount(number, name)
    known = {name: float(number) for name, number in figures.items() if number is not None}
    if isinstance(backoff, Mapping):
        kept = {checked_id(key): checked_figures(key, value) for key, value in backoff.items()}
        return {**kept, id: {**kept.get(id, {}), **known}}
    ids = list(iter_scopes(backoff))
    if known:
        return {**{key: {} for key in ids}, id: known}
    if backoff is None or ids == [id]:
        return id
    return {*ids, id}


def scope_cache(method: _Method) -> _Method:
    """Decorate ``get_scopes``, sync or async, so that it is really called only once per request object.

    The results are stored with the manager until their requests are deleted. For a copy of a request, which is another
    object, the method is called again, and also after the request's URL or meta changed.
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
    """Results of ``get_scopes`` by request object: in weak references if possible, else the latest results."""

    __slots__ = ("_latest", "_weak")

    def __init__(self) -> None:
        self._weak: WeakKeyDictionary[Any, tuple[Any, _Seen]] = WeakKeyDictionary()
        self._latest: dict[int, tuple[Any, Any, _Seen]] = {}  # keeps the request, so that no other object gets its id()

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
    """Return a request's current URL and meta."""
    return getattr(request, "url", None), dict(request.meta) if getattr(request, "has_meta", False) else {}


def _is_unchanged(request: Any, seen: _Seen) -> bool:
    """Return True if a request still has the same URL and the same objects in its meta as at the call."""
    (url, meta), (former_url, before) = _seen(request), seen
    if url != former_url or len(meta) != len(before):
        return False
    return all(before.get(key, _UNKNOWN) is value for key, value in meta.items())


def scope_amounts_of(scopes: Scopes) -> ScopeAmounts:
    """Return a set of scopes in any form as sorted, normal amounts. Raises TypeError or ValueError if it is none."""
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
            amounts[_normal(checked_id(id))] = None if amount is None else float(amount)
    else:
        amounts = {_normal(id): None for id in iter_scopes(scopes)}
    return tuple(sorted(amounts.items(), key=lambda charge: charge[0]))


def _normal(id: str) -> str:
    if not id:
        raise ValueError("the id of a scope must not be empty")
    return normal_id(id)


def checked_id(id: object) -> str:
    """Return an id if it is a string; otherwise raise TypeError."""
    if not isinstance(id, str):
        raise TypeError(f"the id of a scope must be a string, not {id!r}")
    return id


def checked_figures(id: str, figures: object) -> dict[str, float]:
    """Return a copy of a backoff's values for one scope, or raise TypeError if they have another type."""
    if figures is None:
        return {}
    if not isinstance(figures, Mapping):
        raise TypeError(
            f"the backoff of scope {id!r} must be a mapping of delay, consumed or remaining, not {figures!r}"
        )
    for name, number in figures.items():
        _check_amount(number, f"{name!r} of scope {id!r}")
    return dict(figures)


def _check_amount(amount: object, name: str) -> None:
    if amount is not None and (isinstance(amount, bool) or not isinstance(amount, int | float)):
        raise TypeError(f"{name} must be a number or None, not {amount!r}")
