"""Who we are: a name and password, or a token, for the origins that they were given for and for no other.

The field is put on a copy, innermost: it is in no frontier, no retry and no redirect's target, which gets its own where
it is for that target too. A request that brings an ``Authorization`` of its own keeps it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping

from trawl.errors import SettingsError, UsageError
from trawl.http import Fetch, Middleware, Outcome, Request, host_of, normalize_url, origin_of, scheme_of
from trawl.middleware.settings import AuthConfig

__all__ = ["auth", "basic", "load_credentials"]

Credentials = Mapping[str, str]
"""An origin, or a domain that stands for itself and all below it, to what ``Authorization`` says there."""


def basic(user: str, password: str) -> str:
    """The value of ``Authorization`` for a name and a password, as UTF-8 (RFC 7617, 2)."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def load_credentials(config: Mapping[str, AuthConfig], spider: object) -> Credentials:
    """What ``HTTP_AUTH`` and the spider's ``http_user``, ``http_pass`` and ``http_auth_domain`` give.

    Raises:
        SettingsError: An entry is for no origin or domain, or gives neither a name nor a token.
        UsageError: The spider has a name or password, and no ``http_auth_domain`` that they are for.
    """
    found = {_place(key, f"HTTP_AUTH[{key!r}]"): _field(value, key) for key, value in config.items()}
    user, password = getattr(spider, "http_user", "") or "", getattr(spider, "http_pass", "") or ""
    if user or password:
        domain = getattr(spider, "http_auth_domain", None)
        if not domain:
            raise UsageError(
                "http_user and http_pass need http_auth_domain: the domain, or the origin, that they are for"
            )
        try:
            found[_place(domain, "http_auth_domain")] = basic(user, password)
        except SettingsError as error:
            raise UsageError(str(error)) from error
    return found


def auth(credentials: Credentials) -> Middleware:
    """Middleware that adds ``Authorization`` to requests to the origins and domains of ``credentials``.

    An origin goes before a domain, and a longer domain before a shorter one.
    """
    field_of = _lookup(credentials)

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            field = field_of(request.url)
            if field is None or "authorization" in request.headers or _names_a_user(request.url):
                return await fetch(request)
            sent = request.replace()
            sent.headers["Authorization"] = field
            outcome = await fetch(sent)
            if outcome.response is not None:
                outcome.response.answer(request)
            return outcome

        return send

    return around


def _lookup(credentials: Credentials) -> Callable[[str], str | None]:
    origins = {place: field for place, field in credentials.items() if "://" in place}
    domains = sorted(((place, field) for place, field in credentials.items() if "://" not in place), key=_by_length)

    def field_of(url: str) -> str | None:
        field = origins.get(origin_of(url)) if origins else None
        if field is not None or not domains:
            return field
        host = host_of(url)
        return next((field for domain, field in domains if host == domain or host.endswith("." + domain)), None)

    return field_of


def _names_a_user(url: str) -> bool:
    return "@" in url.split("/", 3)[2]


def _by_length(pair: tuple[str, str]) -> int:
    return -len(pair[0])


def _place(written: object, path: str) -> str:
    """An origin or a domain in normal form."""
    place = _origin_or_domain(written.strip()) if isinstance(written, str) else None
    if place is None:
        raise SettingsError(f"{path} must be an origin such as 'https://a.example' or a domain, not {written!r}", path)
    return place


def _origin_or_domain(text: str) -> str | None:
    """``text`` in normal form; None if it is neither."""
    try:
        if "://" not in text:
            is_domain = text and not set("/:@ ") & set(text)
            return host_of(normalize_url(f"http://{text.lstrip('.')}/")) if is_domain else None
        url = normalize_url(text)
    except ValueError:
        return None
    is_origin = scheme_of(url) in {"http", "https"} and url.partition("://")[2].rstrip("/") == url.split("/")[2]
    return origin_of(url) if is_origin else None


def _field(config: AuthConfig, key: str) -> str:
    path = f"HTTP_AUTH[{key!r}]"
    token, user = config.get("token"), config.get("user")
    if (token is None) == (user is None) or (token is not None and "password" in config):
        raise SettingsError(f"{path} must have either a token, or a user and a password", path)
    return f"Bearer {token}" if token is not None else basic(user or "", config.get("password", ""))
