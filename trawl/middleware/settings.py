"""What a user may set about what happens around each send."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

__all__ = ["MiddlewareSettings"]


def _user_agent() -> str:
    try:
        number = version("trawl-crawler")
    except PackageNotFoundError:  # run from a checkout that nobody installed
        number = "0"
    return f"trawl/{number} (+https://pypi.org/project/trawl-crawler/)"


def _default_request_headers() -> dict[str, str | None]:
    return {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Language": "en"}


class MiddlewareSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """Headers, cookies, redirects, retries."""

    user_agent: Annotated[
        str, Meta(description="Who we say we are. It should name a page or an address where a site's owner finds you.")
    ] = msgspec.field(default_factory=_user_agent)
    default_request_headers: Annotated[
        dict[str, str | None], Meta(description="Fields of requests that don't have them; None leaves one out.")
    ] = msgspec.field(default_factory=_default_request_headers)
    cookies_enabled: Annotated[
        bool, Meta(description="Keep what sites set and send it back; if False only a request's own cookies are sent.")
    ] = True
    redirect_enabled: Annotated[
        bool, Meta(description="Follow redirects; if False they are responses like others.")
    ] = True
    redirect_max_times: Annotated[
        int, Meta(ge=0, title="redirects", description="Redirects in a row after which a request is given up.")
    ] = 20
    redirect_priority_adjust: Annotated[
        int, Meta(description="Added to the priority of a request that is redirected.")
    ] = 2
    redirect_max_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="The longest that a redirect's `Retry-After` delays its target; 0 means it is not heeded.",
        ),
    ] = 120.0
    retry_enabled: Annotated[bool, Meta(description="Send a request again that failed in a way that may pass.")] = True
    retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="times",
            description="How often one request is sent again; meta `max_retry_times` goes before it.",
        ),
    ] = 2
    retry_http_codes: Annotated[tuple[int, ...], Meta(description="Statuses for which a request is sent again.")] = (
        500,
        502,
        503,
        504,
        522,
        524,
        408,
        429,
    )
    retry_priority_adjust: Annotated[
        int, Meta(description="Added to the priority of a request that is sent again.")
    ] = -1
    retry_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Before a request is sent again the first time; twice as long each further time, with a "
            "jitter of half either way.",
        ),
    ] = 1.0
    retry_max_delay: Annotated[
        float, Meta(ge=0, title="s", description="The longest delay before a request is sent again, jitter left out.")
    ] = 60.0
