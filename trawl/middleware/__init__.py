"""The middleware around each send. Each built-in middleware has its own module, and an entry in :data:`BUILT_IN`."""

from trawl.middleware.auth import auth
from trawl.middleware.cookies import Session, Sessions, cookies
from trawl.middleware.factory import MiddlewareCrawl, load_function
from trawl.middleware.proxies import ProxyCooldown, ProxyPool, proxies
from trawl.middleware.redirect import meta_refresh, redirect, redirected
from trawl.middleware.referrer import POLICIES, Referrer, load_referrer_policy
from trawl.middleware.retry import RetryBudget, RetryBudgets, SoftBlockTransport, get_retry_request, retry
from trawl.middleware.settings import MiddlewareSettings
from trawl.middleware.stack import (
    BUILT_IN,
    AdvisingTransport,
    BuiltInMiddleware,
    MiddlewareContext,
    MiddlewareEntry,
    MiddlewareStack,
    compose,
    default_headers,
    layers,
    open_middleware_stack,
)

__all__ = [
    "BUILT_IN",
    "POLICIES",
    "AdvisingTransport",
    "RetryBudget",
    "RetryBudgets",
    "BuiltInMiddleware",
    "MiddlewareContext",
    "MiddlewareEntry",
    "MiddlewareSettings",
    "MiddlewareStack",
    "Referrer",
    "ProxyCooldown",
    "ProxyPool",
    "Session",
    "Sessions",
    "SoftBlockTransport",
    "MiddlewareCrawl",
    "auth",
    "compose",
    "cookies",
    "default_headers",
    "load_function",
    "get_retry_request",
    "layers",
    "meta_refresh",
    "open_middleware_stack",
    "load_referrer_policy",
    "proxies",
    "redirect",
    "redirected",
    "retry",
]
