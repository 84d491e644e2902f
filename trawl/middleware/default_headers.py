"""The fields that every request has unless it says otherwise, ``User-Agent`` among them."""

from __future__ import annotations

from collections.abc import Awaitable

from trawl.http import Fetch, Headers, Middleware, Outcome, Request
from trawl.middleware.settings import MiddlewareSettings

__all__ = ["default_headers", "headers_of"]


def headers_of(settings: MiddlewareSettings) -> Headers:
    """``DEFAULT_REQUEST_HEADERS`` and ``USER_AGENT``; a ``User-Agent`` among the first goes before the second."""
    fields = {name: value for name, value in settings.default_request_headers.items() if value is not None}
    if "user-agent" not in {name.lower() for name in settings.default_request_headers} and settings.user_agent:
        fields["User-Agent"] = settings.user_agent
    return Headers(fields)


def default_headers(settings: MiddlewareSettings) -> Middleware:
    """Middleware that adds the fields of :func:`headers_of` where a request has no field of that name.

    A request refuses one by setting it to None.
    """
    defaults = headers_of(settings)

    def around(fetch: Fetch) -> Fetch:
        def send(request: Request) -> Awaitable[Outcome]:  # nothing to do afterwards: no coroutine of its own
            request.headers.fill(defaults)
            return fetch(request)

        return send

    return around
