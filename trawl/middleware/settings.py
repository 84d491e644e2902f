"""The settings of middleware: headers, credentials, cookies, sessions, redirects, retries and proxies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct

from trawl.middleware.contact import check_contact, product

__all__ = ["AuthConfig", "MiddlewareSettings", "SessionConfig"]


def _default_request_headers() -> dict[str, str | None]:
    return {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Language": "en"}


class AuthConfig(TypedDict, total=False):
    """The credentials for one origin or domain: a user and password, or a token."""

    user: Annotated[str, Meta(description="The user name for HTTP basic authentication (RFC 7617).")]
    password: Annotated[str, Meta(description="Its password.", extra={"absent": "empty"})]
    token: Annotated[str, Meta(description="A bearer token (RFC 6750), instead of a user and password.")]


class SessionConfig(TypedDict, total=False):
    """The options of a session, apart from its cookies."""

    proxy: Annotated[str, Meta(description="The proxy of its requests unless they name one.")]
    headers: Annotated[dict[str, str], Meta(description="Default headers of its requests.")]
    throttling: Annotated[
        dict[str, Any], Meta(description="Limits of its scope `session:NAME`, with the keys of `THROTTLING_SCOPES`.")
    ]


class MiddlewareSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the built-in middleware, and the lists of user middleware."""

    downloader_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Middleware (or its import path or name) and its order: low is next to the engine, high next to"
            " the wire, as in Scrapy; null disables it. The how-to on middleware lists the built-in ones.",
        ),
    ] = msgspec.field(default_factory=dict)
    spider_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Functions of a response and its callback's outputs (or their import paths) and their order:"
            " low is next to the engine, high next to the spider; null disables one.",
        ),
    ] = msgspec.field(default_factory=dict)
    user_agent: Annotated[
        str,
        Meta(
            description="The User-Agent header. The default is trawl's name and version, with `CONTACT` if that is set:"
            " `trawl/1.0 (+https://your.site/crawler)`."
        ),
    ] = msgspec.field(default_factory=product)
    contact: Annotated[
        str,
        Meta(
            description="URL or e-mail address where a site owner finds you. It is sent in the default User-Agent, and"
            " has no effect beside a `USER_AGENT`. Empty: none."
        ),
    ] = ""
    default_request_headers: Annotated[
        dict[str, str | None], Meta(description="Headers of requests that do not set them; null removes a default.")
    ] = msgspec.field(default_factory=_default_request_headers)
    cookies_enabled: Annotated[
        bool, Meta(description="Store cookies and send them back. If false, send only a request's own cookies.")
    ] = True
    cookies_like_scrapy: Annotated[
        bool,
        Meta(
            description="Treat a request's own cookies as if its answer had set them: they are sent below the request's"
            " directory only, and to its site alone. A Cookie header is replaced by the stored cookies; with meta"
            " dont_merge_cookies, or if COOKIES_ENABLED is false, it alone is sent. Cookies without Domain go to"
            " subdomains too. A Secure cookie may come over http, and a name's prefix has no rules. This is Scrapy's"
            " way, and true for moved spiders."
        ),
    ] = False
    cookies_debug: Annotated[bool, Meta(description="Log the cookies of every request and response.")] = False
    cookies_file: Annotated[
        str,
        Meta(
            description="File to read cookies from before the crawl, and to write them to after it; empty: none. A name"
            " ending in `.txt` means cookies.txt, which holds one jar; any other means JSON, which holds all."
        ),
    ] = ""
    sessions: Annotated[
        dict[str, SessionConfig], Meta(description="Sessions by name; others are made when first used.")
    ] = msgspec.field(default_factory=dict)
    http_auth: Annotated[
        dict[str, AuthConfig],
        Meta(
            description="Credentials by origin (`https://a.example`), or by domain with its subdomains. They are never"
            " sent anywhere else."
        ),
    ] = msgspec.field(default_factory=dict)
    referer_enabled: Annotated[
        bool, Meta(description="Send the Referer header with links that are followed, as `REFERRER_POLICY` allows.")
    ] = True
    referrer_policy: Annotated[
        object,
        Meta(
            description="The content of Referer: a policy of the W3C's Referrer Policy by name, `scrapy-default`"
            " (`no-referrer-when-downgrade` for http and https), or a function of the two URLs that returns the header"
            " or None. A page's own `Referrer-Policy` overrides it, and meta `referrer_policy` overrides both."
        ),
    ] = "scrapy-default"
    redirect_enabled: Annotated[
        bool, Meta(description="Follow redirects. If false, they are passed on like other responses.")
    ] = True
    redirect_max_times: Annotated[
        int, Meta(ge=0, title="redirects", description="Maximum of redirects in a row; 0 allows none.")
    ] = 20
    redirect_priority_adjust: Annotated[int, Meta(description="Added to the priority of a redirected request.")] = 2
    redirect_max_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Maximum delay for the `Retry-After` of a redirect; 0 ignores it.",
        ),
    ] = 120.0
    metarefresh_enabled: Annotated[
        bool, Meta(description='Follow `Refresh` and `<meta http-equiv="refresh">` like a redirect, after the delay.')
    ] = True
    metarefresh_maxdelay: Annotated[
        float, Meta(ge=0, title="s", description="Do not follow a refresh with a longer delay than this.")
    ] = 100.0
    metarefresh_ignore_tags: Annotated[tuple[str, ...], Meta(description="Elements in which a refresh is ignored.")] = (
        "noscript",
    )
    soft_block_detector: Annotated[
        object,
        Meta(
            description="Function (or its import path) that returns true for a response that is a refusal despite its"
            " status: its scopes back off, and the request is sent again. null: no detection."
        ),
    ] = None
    retry_enabled: Annotated[bool, Meta(description="Retry requests that failed in a way that may pass.")] = True
    retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="times",
            description="Maximum of retries for one request; 0: nothing is sent twice, also not after a 429 or a 503,"
            " which are not counted otherwise. Meta `max_retry_times` overrides it.",
        ),
    ] = 2
    retry_http_codes: Annotated[tuple[int, ...], Meta(description="Response statuses to retry.")] = (
        500,
        502,
        503,
        504,
        522,
        524,
        408,
        429,
    )
    retry_priority_adjust: Annotated[int, Meta(description="Added to the priority of a retry.")] = -1
    retry_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Delay before the first retry, doubled for each further one, with a jitter of ±50 %.",
        ),
    ] = 1.0
    retry_max_delay: Annotated[
        float, Meta(ge=0, title="s", description="Maximum delay before a retry, without the jitter.")
    ] = 60.0
    retry_predicate: Annotated[
        object,
        Meta(
            description="Function (or its import path) of request, response and error (one of the last two is None)."
            " True retries, False does not, None applies the default rules."
        ),
    ] = None
    retry_budget: Annotated[
        float | None,
        Meta(
            ge=0,
            title="retries a request",
            description="Retries allowed for each first try: 0.1 is one in ten. Without budget, failures are final."
            " Retries that the throttle excuses are free. null: no budget.",
        ),
    ] = None
    retry_budget_reserve: Annotated[int, Meta(ge=0, title="retries", description="Initial retries of a budget.")] = 10
    retry_budget_per: Annotated[
        Literal["crawl", "host"], Meta(description="One budget for the crawl, or one for each host.")
    ] = "crawl"
    httpproxy_enabled: Annotated[
        bool,
        Meta(
            description="Send requests without meta `proxy` through a proxy of `ROTATING_PROXY_LIST`, or of the"
            " environment (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`). If false, send them directly."
        ),
    ] = True
    rotating_proxy_list: Annotated[
        tuple[str, ...],
        Meta(description="Proxies that take turns, instead of the environment's: `http://user:password@host:port`."),
    ] = ()
    rotating_proxy_backoff_base: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="Cooldown of a proxy of the list after a failure, doubled for each further one in a row.",
        ),
    ] = 300.0
    rotating_proxy_backoff_cap: Annotated[
        float, Meta(gt=0, title="s", description="Maximum cooldown of a proxy of the list.")
    ] = 3600.0
    rotating_proxy_ban_codes: Annotated[
        tuple[int, ...],
        Meta(
            description="Statuses besides 407 that mean a proxy of the list is banned: it cools down, and the request"
            " goes through another one."
        ),
    ] = ()
    rotating_proxy_page_retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="proxies",
            description="Maximum of further proxies to try for a request whose proxy failed; 0: none. These are not"
            " counted as retries. Meta `max_proxies_to_try` overrides it.",
        ),
    ] = 5

    def __post_init__(self) -> None:
        """Check ``contact``, and put it into the default ``user_agent``."""
        if self.contact:
            check_contact(self.contact)
            if self.user_agent == product():
                msgspec.structs.force_setattr(self, "user_agent", f"{product()} (+{self.contact})")
