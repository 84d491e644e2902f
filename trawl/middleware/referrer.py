"""The ``Referer`` header of followed links (W3C Referrer Policy).

The header is set when a request from a callback is admitted. At that time, the page is known, and the header can be
stored with the request. For a redirect's target, :func:`~trawl.middleware.redirect.redirected` shortens the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trawl.errors import SettingsError
from trawl.http import Request, Response, SharedHeaders, origin_of, scheme_of
from trawl.throttling.configuration import load_object

__all__ = ["POLICIES", "Policy", "Referrer", "load_referrer_policy"]

Policy = Callable[[str, str], str | None]
"""Function of the URLs of a page and of a link's target. Returns the ``Referer`` to send; None to send none."""


def _stripped(url: str) -> str:
    """Return a URL without fragment and user info (Referrer Policy, 8.4)."""
    url = url.partition("#")[0]
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def _origin(url: str) -> str:
    return origin_of(url) + "/"


def _is_downgrade(page: str, target: str) -> bool:
    return scheme_of(page) == "https" and scheme_of(target) != "https"


def _when_downgrade(page: str, target: str) -> str | None:
    return None if _is_downgrade(page, target) else _stripped(page)


def _when_cross_origin(page: str, target: str) -> str | None:
    return _stripped(page) if origin_of(page) == origin_of(target) else _origin(page)


POLICIES: Mapping[str, Policy] = {
    "no-referrer": lambda page, target: None,
    "no-referrer-when-downgrade": _when_downgrade,
    "origin": lambda page, target: _origin(page),
    "origin-when-cross-origin": _when_cross_origin,
    "same-origin": lambda page, target: _stripped(page) if origin_of(page) == origin_of(target) else None,
    "scrapy-default": _when_downgrade,
    "strict-origin": lambda page, target: None if _is_downgrade(page, target) else _origin(page),
    "strict-origin-when-cross-origin": lambda page, target: (
        None if _is_downgrade(page, target) else _when_cross_origin(page, target)
    ),
    "unsafe-url": lambda page, target: _stripped(page),
}
"""The policies by name (Referrer Policy, 3), and Scrapy's default."""

_BY_ORIGIN = tuple(POLICIES.values())  # the results of these policies depend only on the target's origin
_SCRAPYS = "scrapy.spidermiddlewares.referer."


def load_referrer_policy(value: object, path: str = "REFERRER_POLICY", *, imports: bool = True) -> Policy:
    """Return the policy that a setting or meta key names. ``path`` is the setting or key, for messages.

    ``value`` is a name, Scrapy's class of a policy, a function, or, if ``imports`` is true, the path of a function. A
    stored request must not name code to import, because another person may have written the job.

    Raises:
        SettingsError: If the policy does not exist.
    """
    if isinstance(value, str):
        name = value.strip().lower()
        if name in POLICIES:
            return POLICIES[name]
        if value.startswith(_SCRAPYS):
            return _scrapys(value, path)
        if "." not in value or not imports:
            raise SettingsError(f"{path} must be one of {', '.join(sorted(POLICIES))}, or a function", path)
    found: Any = load_object(value, path)
    if not callable(found):
        raise SettingsError(f"{path} must be the name of a policy, or a function of two URLs, not {value!r}", path)
    policy: Policy = found
    return policy


def _scrapys(value: str, path: str) -> Policy:
    """Return the policy of a Scrapy class, for example ``strict-origin`` for ``StrictOriginPolicy``."""
    plain = value[len(_SCRAPYS) :].removesuffix("Policy").lower()
    if plain == "defaultreferrer":
        return POLICIES["scrapy-default"]
    for name, policy in POLICIES.items():
        if name.replace("-", "") == plain:
            return policy
    raise SettingsError(f"{path} names {value!r}, which is not one of Scrapy's policies", path)


class Referrer:
    """Sets the ``Referer`` of requests found on a page, by ``policy`` unless the meta or the page names another."""

    __slots__ = ("_key", "_policy", "_shared")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._key: tuple[Policy, str, str] | None = None
        self._shared: SharedHeaders | None = None

    def refer(self, request: Request, response: Response) -> None:
        """Set the header of a request found on a page, unless the request has the header or sets it to None."""
        named = request.meta_get("referrer_policy")
        if named is None:
            policy = self._said_by(response)
        else:
            policy = load_referrer_policy(named, "meta referrer_policy", imports=False)
        shared = self._field(policy, response.url, request.url)
        if shared is not None:
            request.share_headers(shared)

    def _field(self, policy: Policy, page: str, target: str) -> SharedHeaders | None:
        """Return the header as an object that all links of the page with the same header share; None for no header."""
        key = (policy, page, origin_of(target) if policy in _BY_ORIGIN else target)
        if key != self._key:
            told = policy(page, target) if scheme_of(page) in {"http", "https"} else None
            self._key, self._shared = key, None
            if told is not None:
                self._shared = SharedHeaders()
                self._shared["Referer"] = told
        return self._shared

    def _said_by(self, response: Response) -> Policy:
        """Return the page's policy: the last known policy in ``Referrer-Policy`` (Referrer Policy, section 8.1)."""
        said = response.headers.getlist("Referrer-Policy")
        if not said:
            return self._policy
        known = [name for token in ", ".join(said).lower().split(",") if (name := token.strip()) in POLICIES]
        return POLICIES[known[-1]] if known else self._policy
