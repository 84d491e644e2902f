"""The ``Authorization`` header, which is sent only to the origins and domains with configured credentials.

The header is set on a copy of the request, just before the request is sent. So the header is never stored in a frontier
and never copied to a retry or a redirect's target. A request that sets ``Authorization`` itself keeps its own header.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from trawl.errors import SettingsError
from trawl.http import Fetch, Middleware, Outcome, Request, host_of, normalize_url, origin_of, scheme_of
from trawl.middleware.settings import AuthConfig

__all__ = ["auth", "basic", "load_credentials"]

Credentials = Mapping[str, str]  # the ``Authorization`` value by origin, or by domain (which includes its subdomains)


def basic(user: str, password: str) -> str:
    """Return the ``Authorization`` value for a user name and a password, as UTF-8 (RFC 7617, section 2)."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def load_credentials(config: Mapping[str, AuthConfig], spider: object) -> Credentials:
    """Read ``HTTP_AUTH`` and the spider's ``http_user``, ``http_pass`` and ``http_auth_domain``."""
    found = {_place(key, f"HTTP_AUTH[{key!r}]"): _field(value, key) for key, value in config.items()}
    user, password = getattr(spider, "http_user", "") or "", getattr(spider, "http_pass", "") or ""
    if user or password:
        domain = getattr(spider, "http_auth_domain", None)
        if not domain:
            words = "http_user and http_pass need http_auth_domain: the domain or origin that they are for"
            raise SettingsError(words, "http_auth_domain")
        found[_place(domain, "http_auth_domain")] = basic(user, password)
    return found


def auth(credentials: Credentials) -> Middleware:
    """Return middleware that adds ``Authorization``, from the entry for the origin or the longest matching domain."""
    origins = {place: field for place, field in credentials.items() if "://" in place}
    domains = [(place, field) for place, field in credentials.items() if "://" not in place]
    domains.sort(key=lambda pair: -len(pair[0]))

    def field_of(url: str) -> str | None:
        field = origins.get(origin_of(url)) if origins else None
        if field is not None or not domains:
            return field
        host = host_of(url)
        return next((field for domain, field in domains if host == domain or host.endswith("." + domain)), None)

    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            field = field_of(request.url)
            if field is None or "authorization" in request.headers or "@" in request.url.split("/", 3)[2]:  # a user
                return await fetch(request)
            sent = request.replace()
            sent.headers["Authorization"] = field
            outcome = await fetch(sent)
            if outcome.response is not None:
                outcome.response.answer(request)
            return outcome

        return send

    return around


def _place(written: object, path: str) -> str:
    """Return an origin or a domain in normal form."""
    place = _origin_or_domain(written.strip()) if isinstance(written, str) else None
    if place is None:
        raise SettingsError(f"{path} must be an origin such as 'https://a.example' or a domain, not {written!r}", path)
    return place


def _origin_or_domain(text: str) -> str | None:
    """Return an origin or a domain in normal form; None if ``text`` is neither."""
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
        raise SettingsError(f"{path} must have either a token or a user and password", path)
    return f"Bearer {token}" if token is not None else basic(user or "", config.get("password", ""))
