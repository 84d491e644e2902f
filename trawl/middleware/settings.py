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
    password: Annotated[str, Meta(description="The password for HTTP basic authentication.", extra={"absent": "empty"})]
    token: Annotated[str, Meta(description="A bearer token (RFC 6750), instead of a user and password.")]


class SessionConfig(TypedDict, total=False):
    """The options of a session, apart from its cookies."""

    proxy: Annotated[str, Meta(description="Proxy of the session's requests, unless a request names its own.")]
    headers: Annotated[dict[str, str], Meta(description="Default headers of the session's requests.")]
    throttling: Annotated[
        dict[str, Any],
        Meta(description="Limits of the session's scope `session:NAME`, with the keys of `THROTTLING_SCOPES`."),
    ]


class MiddlewareSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the built-in middleware, and the lists of user middleware."""

    downloader_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Middleware (or its import path or name) with its order. As in Scrapy, a low number is next "
            "to the engine, a high number next to the wire. null disables an entry. The how-to on middleware lists "
            "the built-in middleware.",
        ),
    ] = msgspec.field(default_factory=dict)
    spider_middlewares: Annotated[
        dict[Any, float | None],
        Meta(
            description="Functions of a response and its callback's outputs (or their import paths) with their order. "
            "A low number is next to the engine, a high number next to the spider. null disables an entry.",
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
            description="URL or e-mail address at which site owners can reach you. It is sent in the default "
            "User-Agent, and has no effect if `USER_AGENT` is set. Empty: no contact."
        ),
    ] = ""
    default_request_headers: Annotated[
        dict[str, str | None], Meta(description="Headers of requests that do not set them; null removes a default.")
    ] = msgspec.field(default_factory=_default_request_headers)
    cookies_enabled: Annotated[
        bool, Meta(description="Store cookies and send them back. False sends only a request's own cookies.")
    ] = True
    cookies_like_scrapy: Annotated[
        bool,
        Meta(
            description="Treat cookies like Scrapy. A request's own cookies are treated as if its response had set "
            "them, so they are only sent to the request's site and directory. The stored cookies replace a Cookie "
            "header. With meta dont_merge_cookies, or if COOKIES_ENABLED is false, only that header is sent. Cookies "
            "without Domain are also sent to subdomains. A Secure cookie may be set over http, and name prefixes have "
            "no rules. True for moved spiders."
        ),
    ] = False
    cookies_debug: Annotated[bool, Meta(description="Log the cookies of every request and response.")] = False
    cookies_file: Annotated[
        str,
        Meta(
            description="File from which cookies are read before the crawl, and to which they are written after it. "
            "Empty: no file. A name that ends in `.txt` means cookies.txt, which contains one jar. Any other name "
            "means JSON, which contains all jars."
        ),
    ] = ""
    sessions: Annotated[
        dict[str, SessionConfig], Meta(description="Sessions by name. Other sessions are created on first use.")
    ] = msgspec.field(default_factory=dict)
    http_auth: Annotated[
        dict[str, AuthConfig],
        Meta(
            description="Credentials by origin (`https://a.example`), or by domain with its subdomains. They are never"
            " sent anywhere else."
        ),
    ] = msgspec.field(default_factory=dict)
    referer_enabled: Annotated[
        bool, Meta(description="Send the Referer header with followed links, as `REFERRER_POLICY` allows.")
    ] = True
    referrer_policy: Annotated[
        object,
        Meta(
            description="Policy for the Referer header: the name of a policy in the W3C's Referrer Policy, "
            "`scrapy-default` (`no-referrer-when-downgrade` for http and https), or a function of the two URLs that "
            "returns the header or None. A page's own `Referrer-Policy` overrides it, and meta `referrer_policy` "
            "overrides both."
        ),
    ] = "scrapy-default"
    redirect_enabled: Annotated[bool, Meta(description="Follow redirects. False treats them like other responses.")] = (
        True
    )
    redirect_max_times: Annotated[
        int, Meta(ge=0, title="redirects", description="Maximum number of redirects in a row. 0 allows none.")
    ] = 20
    redirect_priority_adjust: Annotated[
        int, Meta(description="Number added to the priority of a redirected request.")
    ] = 2
    redirect_max_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Maximum delay for the `Retry-After` of a redirect. 0 ignores the header.",
        ),
    ] = 120.0
    metarefresh_enabled: Annotated[
        bool, Meta(description='Follow `Refresh` and `<meta http-equiv="refresh">` like a redirect, after the delay.')
    ] = True
    metarefresh_maxdelay: Annotated[
        float,
        Meta(ge=0, title="s", description="Maximum delay of a refresh. A refresh with a longer delay is not followed."),
    ] = 100.0
    metarefresh_ignore_tags: Annotated[tuple[str, ...], Meta(description="Elements in which a refresh is ignored.")] = (
        "noscript",
    )
    soft_block_detector: Annotated[
        object,
        Meta(
            description="Function (or its import path) that returns true for a response that is a refusal despite its "
            "status code. The scopes of its request then back off, and the request is sent again. null disables the "
            "detection."
        ),
    ] = None
    retry_enabled: Annotated[bool, Meta(description="Retry requests that failed temporarily.")] = True
    retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="times",
            description="Maximum number of retries of one request. With 0, nothing is sent twice, not even after a "
            "429 or a 503, which otherwise do not count. Meta `max_retry_times` overrides it.",
        ),
    ] = 2
    retry_http_codes: Annotated[tuple[int, ...], Meta(description="Status codes of responses to retry.")] = (
        500,
        502,
        503,
        504,
        522,
        524,
        408,
        429,
    )
    retry_priority_adjust: Annotated[int, Meta(description="Number added to the priority of a retry.")] = -1
    retry_delay: Annotated[
        float,
        Meta(
            ge=0,
            title="s",
            description="Delay before the first retry. It doubles for each further retry, with a jitter of ±50 %.",
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
            description="Number of retries allowed per first attempt: 0.1 allows one retry in ten requests. If the "
            "budget is used up, failures are final. Retries that the throttle excuses do not count. null disables the "
            "budget.",
        ),
    ] = None
    retry_budget_reserve: Annotated[
        int, Meta(ge=0, title="retries", description="Number of retries in a new budget.")
    ] = 10
    retry_budget_per: Annotated[
        Literal["crawl", "host"], Meta(description="Whether there is one budget for the crawl, or one per host.")
    ] = "crawl"
    httpproxy_enabled: Annotated[
        bool,
        Meta(
            description="Send requests without meta `proxy` through a proxy of `ROTATING_PROXY_LIST` or of the "
            "environment (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`). False sends them directly."
        ),
    ] = True
    rotating_proxy_list: Annotated[
        tuple[str, ...],
        Meta(
            description="Rotating proxies, which replace the environment's proxies: `http://user:password@host:port`."
        ),
    ] = ()
    rotating_proxy_backoff_base: Annotated[
        float,
        Meta(
            gt=0,
            title="s",
            description="Cooldown of a proxy of the list after a failure. It doubles for each further failure in a "
            "row.",
        ),
    ] = 300.0
    rotating_proxy_backoff_cap: Annotated[
        float, Meta(gt=0, title="s", description="Maximum cooldown of a proxy of the list.")
    ] = 3600.0
    rotating_proxy_ban_codes: Annotated[
        tuple[int, ...],
        Meta(
            description="Status codes, in addition to 407, that mean that a proxy of the list is banned. The proxy "
            "cools down, and the request is sent through another one."
        ),
    ] = ()
    rotating_proxy_page_retry_times: Annotated[
        int,
        Meta(
            ge=0,
            title="proxies",
            description="Maximum number of further proxies for a request whose proxy failed. These attempts do not "
            "count as retries. Meta `max_proxies_to_try` overrides it.",
        ),
    ] = 5

    def __post_init__(self) -> None:
        """Check ``contact``, and put it into the default ``user_agent``."""
        if self.contact:
            check_contact(self.contact)
            if self.user_agent == product():
                msgspec.structs.force_setattr(self, "user_agent", f"{product()} (+{self.contact})")
