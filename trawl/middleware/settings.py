"""The settings of middleware: headers, credentials, cookies, sessions, redirects, retries and proxies."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct

from trawl.errors import SettingsError

__all__ = ["AuthConfig", "MiddlewareSettings", "SessionConfig", "product"]

# Spaces, parentheses and backslashes are special in a comment of User-Agent (RFC 9110, section 5.6.5).
_CONTACT = re.compile(
    r"https?://[^\s()\\/?#@]+([/?#][^\s()\\]*)?|(mailto:)?[^\s()\\@:/]+@[^\s()\\@:/?#]+\.[^\s()\\@:/?#]+", re.IGNORECASE
)
_MAX_CONTACT = 500  # characters
_HEADERS: dict[str, str | None] = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
}


@cache  # reads a file
def product() -> str:
    """Return trawl's name and version, the default ``User-Agent`` without a contact (RFC 9110, section 10.1.5)."""
    try:
        number = version("trawl-crawler")
    except PackageNotFoundError:  # trawl runs from a checkout and is not installed
        number = "0"
    return f"trawl/{number}"


def _check_contact(contact: str) -> None:
    """Raise a SettingsError unless ``CONTACT`` is a URL or an e-mail address that a header can contain."""
    is_sent = contact.isascii() and contact.isprintable() and len(contact) <= _MAX_CONTACT
    if not is_sent or _CONTACT.fullmatch(contact) is None:
        raise SettingsError(
            "CONTACT must be a URL such as https://your.site/crawler, or an e-mail address, in ASCII without blanks, "
            f"parentheses and backslashes, not {contact[:_MAX_CONTACT]!r}",
            "CONTACT",
        )


class AuthConfig(TypedDict, total=False):
    """The credentials for one origin or domain: a user and password, or a token.

    Attributes:
        user: The user name for HTTP basic authentication (RFC 7617).
        password: The password for HTTP basic authentication.
        token: A bearer token (RFC 6750), instead of a user and password.
    """

    user: str
    password: Annotated[str, Meta(extra={"absent": "empty"})]
    token: str


class SessionConfig(TypedDict, total=False):
    """The options of a session, apart from its cookies.

    Attributes:
        proxy: Proxy of the session's requests, unless a request names its own.
        headers: Default headers of the session's requests.
        throttling: Limits of the session's scope ``session:NAME``, with the keys of ``THROTTLING_SCOPES``.
    """

    proxy: str
    headers: dict[str, str]
    throttling: dict[str, Any]


class MiddlewareSettings(Struct, frozen=True, kw_only=True, rename="upper"):
    """The settings of the built-in middleware, and the lists of user middleware.

    Attributes:
        downloader_middlewares: Middleware (or its import path or name) with its order. As in Scrapy, a low number is
            next to the engine, a high number next to the wire. null disables an entry. The how-to on middleware lists
            the built-in middleware.
        spider_middlewares: Functions of a response and its callback's outputs (or their import paths) with their order.
            A low number is next to the engine, a high number next to the spider. null disables an entry.
        user_agent: The User-Agent header. The default is trawl's name and version, with ``CONTACT`` if that is set:
            ``trawl/1.0 (+https://your.site/crawler)``.
        contact: URL or e-mail address at which site owners can reach you. It is sent in the default User-Agent, and has
            no effect if ``USER_AGENT`` is set. Empty: no contact.
        default_request_headers: Headers of requests that do not set them; null removes a default.
        cookies_enabled: Store cookies and send them back. False sends only a request's own cookies.
        cookies_like_scrapy: Treat cookies like Scrapy. A request's own cookies are treated as if its response had set
            them, so they are only sent to the request's site and directory. The stored cookies replace a Cookie header.
            With meta dont_merge_cookies, or if COOKIES_ENABLED is false, only that header is sent. Cookies without
            Domain are also sent to subdomains. A Secure cookie may be set over http, and name prefixes have no rules.
            True for moved spiders.
        cookies_debug: Log the cookies of every request and response.
        cookies_file: File from which cookies are read before the crawl, and to which they are written after it. Empty:
            no file. A name that ends in ``.txt`` means cookies.txt, which contains one jar. Any other name means JSON,
            which contains all jars.
        sessions: Sessions by name. Other sessions are created on first use.
        http_auth: Credentials by origin (``https://a.example``), or by domain with its subdomains. They are never sent
            anywhere else.
        referer_enabled: Send the Referer header with followed links, as ``REFERRER_POLICY`` allows.
        referrer_policy: Policy for the Referer header: the name of a policy in the W3C's Referrer Policy,
            ``scrapy-default`` (``no-referrer-when-downgrade`` for http and https), or a function of the two URLs that
            returns the header or None. A page's own ``Referrer-Policy`` overrides it, and meta ``referrer_policy``
            overrides both.
        redirect_enabled: Follow redirects. False treats them like other responses.
        redirect_max_times: Maximum number of redirects in a row. 0 allows none.
        redirect_priority_adjust: Number added to the priority of a redirected request.
        redirect_max_delay: Maximum delay for the ``Retry-After`` of a redirect. 0 ignores the header.
        metarefresh_enabled: Follow ``Refresh`` and ``<meta http-equiv="refresh">`` like a redirect, after the delay.
        metarefresh_maxdelay: Maximum delay of a refresh. A refresh with a longer delay is not followed.
        metarefresh_ignore_tags: Elements in which a refresh is ignored.
        soft_block_detector: Function (or its import path) that returns true for a response that is a refusal despite
            its status code. The scopes of its request then back off, and the request is sent again. null disables the
            detection.
        retry_enabled: Retry requests that failed temporarily.
        retry_times: Maximum number of retries of one request. With 0, nothing is sent twice, not even after a 429 or a
            503, which otherwise do not count. Meta ``max_retry_times`` overrides it.
        retry_http_codes: Status codes of responses to retry.
        retry_priority_adjust: Number added to the priority of a retry.
        retry_delay: Delay before the first retry. It doubles for each further retry, with a jitter of ±50 %.
        retry_max_delay: Maximum delay before a retry, without the jitter.
        retry_predicate: Function (or its import path) of request, response and error (one of the last two is None).
            True retries, False does not, None applies the default rules.
        retry_budget: Number of retries allowed per first attempt: 0.1 allows one retry in ten requests. If the budget
            is used up, failures are final. Retries that the throttle excuses do not count. null disables the budget.
        retry_budget_reserve: Number of retries in a new budget.
        retry_budget_per: Whether there is one budget for the crawl, or one per host.
        httpproxy_enabled: Send requests without meta ``proxy`` through a proxy of ``ROTATING_PROXY_LIST`` or of the
            environment (``http_proxy``, ``https_proxy``, ``all_proxy``, ``no_proxy``). False sends them directly.
        rotating_proxy_list: Rotating proxies, which replace the environment's proxies:
            ``http://user:password@host:port``.
        rotating_proxy_backoff_base: Cooldown of a proxy of the list after a failure. It doubles for each further
            failure in a row.
        rotating_proxy_backoff_cap: Maximum cooldown of a proxy of the list.
        rotating_proxy_ban_codes: Status codes, in addition to 407, that mean that a proxy of the list is banned. The
            proxy cools down, and the request is sent through another one.
        rotating_proxy_page_retry_times: Maximum number of further proxies for a request whose proxy failed. These
            attempts do not count as retries. Meta ``max_proxies_to_try`` overrides it.
    """

    downloader_middlewares: dict[Any, float | None] = msgspec.field(default_factory=dict)
    spider_middlewares: dict[Any, float | None] = msgspec.field(default_factory=dict)
    user_agent: str = msgspec.field(default_factory=product)
    contact: str = ""
    default_request_headers: dict[str, str | None] = msgspec.field(default_factory=_HEADERS.copy)
    cookies_enabled: bool = True
    cookies_like_scrapy: bool = False
    cookies_debug: bool = False
    cookies_file: str = ""
    sessions: dict[str, SessionConfig] = msgspec.field(default_factory=dict)
    http_auth: dict[str, AuthConfig] = msgspec.field(default_factory=dict)
    referer_enabled: bool = True
    referrer_policy: object = "scrapy-default"
    redirect_enabled: bool = True
    redirect_max_times: Annotated[int, Meta(ge=0, title="redirects")] = 20
    redirect_priority_adjust: int = 2
    redirect_max_delay: Annotated[float, Meta(ge=0, title="s")] = 120.0
    metarefresh_enabled: bool = True
    metarefresh_maxdelay: Annotated[float, Meta(ge=0, title="s")] = 100.0
    metarefresh_ignore_tags: tuple[str, ...] = ("noscript",)
    soft_block_detector: object = None
    retry_enabled: bool = True
    retry_times: Annotated[int, Meta(ge=0, title="times")] = 2
    retry_http_codes: tuple[int, ...] = (500, 502, 503, 504, 522, 524, 408, 429)
    retry_priority_adjust: int = -1
    retry_delay: Annotated[float, Meta(ge=0, title="s")] = 1.0
    retry_max_delay: Annotated[float, Meta(ge=0, title="s")] = 60.0
    retry_predicate: object = None
    retry_budget: Annotated[float | None, Meta(ge=0, title="retries a request")] = None
    retry_budget_reserve: Annotated[int, Meta(ge=0, title="retries")] = 10
    retry_budget_per: Literal["crawl", "host"] = "crawl"
    httpproxy_enabled: bool = True
    rotating_proxy_list: tuple[str, ...] = ()
    rotating_proxy_backoff_base: Annotated[float, Meta(gt=0, title="s")] = 300.0
    rotating_proxy_backoff_cap: Annotated[float, Meta(gt=0, title="s")] = 3600.0
    rotating_proxy_ban_codes: tuple[int, ...] = ()
    rotating_proxy_page_retry_times: Annotated[int, Meta(ge=0, title="proxies")] = 5

    def __post_init__(self) -> None:
        """Check ``contact``, and put it into the default ``user_agent``."""
        if self.contact:
            _check_contact(self.contact)
            if self.user_agent == product():
                msgspec.structs.force_setattr(self, "user_agent", f"{product()} (+{self.contact})")
