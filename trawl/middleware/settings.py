"""What a user may set about what happens around each send."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct

__all__ = ["AuthConfig", "MiddlewareSettings", "SessionConfig"]


def _user_agent() -> str:
    try:
        number = version("trawl-crawler")
    except PackageNotFoundError:  # run from a checkout that nobody installed
        number = "0"
    return f"trawl/{number} (+https://pypi.org/project/trawl-crawler/)"


def _default_request_headers() -> dict[str, str | None]:
    return {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Language": "en"}


class AuthConfig(TypedDict, total=False):
    """What identifies us to one origin or domain: a name and password, or a token."""

    user: Annotated[str, Meta(description="The name for HTTP's basic authentication (RFC 7617).")]
    password: Annotated[str, Meta(description="Its password.", extra={"absent": "empty"})]
    token: Annotated[str, Meta(description="A bearer token (RFC 6750), in place of a name and password.")]


class SessionConfig(TypedDict, total=False):
    """What a session has of its own besides its cookies."""

    proxy: Annotated[str, Meta(description="The proxy of its requests, where they name none.")]
    headers: Annotated[dict[str, str], Meta(description="Fields of its requests that don't have them.")]
    throttling: Annotated[
        dict[str, Any], Meta(description="Limits of its scope `session:NAME`: the keys of `THROTTLING_SCOPES`.")
    ]


class MiddlewareSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """What happens around each send: headers, who we are, cookies, redirects, retries, and what users add."""

    downloader_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Middleware, or its import path or name, with a number that says where it is: low is outermost,"
            " as in Scrapy; null takes one out. trawl's own are in the list of the how-to on middleware.",
        ),
    ] = msgspec.field(default_factory=dict)
    spider_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Functions of a response and the outputs of its callback, or their import paths, with a number:"
            " low is next to the engine, high next to the spider; null takes one out.",
        ),
    ] = msgspec.field(default_factory=dict)
    user_agent: Annotated[
        str, Meta(description="Who we say we are. It should name a page or an address where a site's owner finds you.")
    ] = msgspec.field(default_factory=_user_agent)
    default_request_headers: Annotated[
        dict[str, str | None], Meta(description="Fields of requests that don't have them; None leaves one out.")
    ] = msgspec.field(default_factory=_default_request_headers)
    cookies_enabled: Annotated[
        bool, Meta(description="Keep what sites set and send it back; if False only a request's own cookies are sent.")
    ] = True
    cookies_debug: Annotated[bool, Meta(description="Log the cookies of every request and response.")] = False
    cookies_file: Annotated[
        str,
        Meta(
            description="Where cookies are read from before the crawl and written to after it; empty: nowhere. A name"
            " that ends in `.txt` is a cookies.txt, which has one jar; any other is JSON, which has all."
        ),
    ] = ""
    sessions: Annotated[
        dict[str, SessionConfig], Meta(description="Sessions by name; others are made when they are first named.")
    ] = msgspec.field(default_factory=dict)
    http_auth: Annotated[
        dict[str, AuthConfig],
        Meta(
            description="An origin (`https://a.example`), or a domain and all below it, to what identifies us there."
            " Never sent anywhere else."
        ),
    ] = msgspec.field(default_factory=dict)
    referer_enabled: Annotated[
        bool, Meta(description="Tell a page's address to the pages that it leads to, as `REFERRER_POLICY` allows.")
    ] = True
    referrer_policy: Annotated[
        object,
        Meta(
            description="How much of it is told: a policy of the W3C's Referrer Policy by its name, `scrapy-default`"
            " (`no-referrer-when-downgrade` among http and https), or a function of the two URLs that gives the field"
            " or None. A page's own `Referrer-Policy` goes before it, and meta `referrer_policy` before that."
        ),
    ] = "scrapy-default"
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
    metarefresh_enabled: Annotated[
        bool, Meta(description='Follow `<meta http-equiv="refresh">` like a redirect, after the time that it names.')
    ] = True
    metarefresh_maxdelay: Annotated[
        float, Meta(ge=0, title="s", description="A page that wants to be left later than this stays a page.")
    ] = 100.0
    metarefresh_ignore_tags: Annotated[
        tuple[str, ...], Meta(description="Elements inside which a refresh does not count.")
    ] = ("noscript",)
    soft_block_detector: Annotated[
        object,
        Meta(
            description="A function, or its import path, that says of a response whether it is a refusal though its"
            " status says otherwise: its scopes back off, and the request is sent again. None: no response is."
        ),
    ] = None
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
    retry_predicate: Annotated[
        object,
        Meta(
            description="A function of request, response and error (one of the two is None), or its import path: true"
            " sends the request again, false does not, None leaves it to the rules above."
        ),
    ] = None
    retry_budget: Annotated[
        float | None,
        Meta(
            ge=0,
            title="retries a request",
            description="Retries for each request that is sent the first time, 0.1 for one in ten; beyond that failures"
            " are final. null: no budget. What the throttle excuses costs nothing.",
        ),
    ] = None
    retry_budget_reserve: Annotated[
        int, Meta(ge=0, title="retries", description="Retries that a budget has before anything was sent.")
    ] = 10
    retry_budget_per: Annotated[
        Literal["crawl", "host"], Meta(description="Whether the crawl has one budget or each host its own.")
    ] = "crawl"
    httpproxy_enabled: Annotated[
        bool,
        Meta(
            description="Requests that name no proxy in their meta `proxy` get one: of `ROTATING_PROXY_LIST`, or that "
            "of the environment (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`). If False they go without."
        ),
    ] = True
    rotating_proxy_list: Annotated[
        tuple[str, ...],
        Meta(description="Proxies that take turns, in place of the environment's: `http://user:password@host:port`."),
    ] = ()
    rotating_proxy_backoff_base: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="How long a proxy of the list rests when it fails; twice as long each further time in a row.",
        ),
    ] = 300.0
    rotating_proxy_backoff_cap: Annotated[
        float, Meta(gt=0, title="s", description="The longest that a proxy of the list rests.")
    ] = 3600.0
    rotating_proxy_ban_codes: Annotated[
        tuple[int, ...],
        Meta(
            description="Statuses, besides 407, by which a proxy of the list is told to be banned: it rests, and the"
            " page is tried through another one."
        ),
    ] = ()
    rotating_proxy_page_retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="proxies",
            description="Through how many other proxies of the list a request goes that a proxy has failed; 0 means"
            " none. Not counted as retries. Meta `max_proxies_to_try` goes before it.",
        ),
    ] = 5
