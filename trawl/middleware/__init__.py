"""What happens around each send: one module a middleware, and :data:`BUILT_IN` for the list of them."""

from trawl.middleware.auth import auth
from trawl.middleware.cookies import cookies
from trawl.middleware.loading import Surroundings, function
from trawl.middleware.proxies import Rest, Rotation, proxies
from trawl.middleware.redirect import meta_refresh, redirect, redirected
from trawl.middleware.referrer import POLICIES, Referrer, policy_of
from trawl.middleware.retry import Budget, Budgets, get_retry_request, retry
from trawl.middleware.session import Session, Sessions
from trawl.middleware.settings import MiddlewareSettings
from trawl.middleware.soft_block import SoftBlocks
from trawl.middleware.stack import BUILT_IN, BuiltIn, Kit, Layer, Outfit, compose, default_headers, layers, open_outfit

__all__ = [
    "BUILT_IN",
    "POLICIES",
    "Budget",
    "Budgets",
    "BuiltIn",
    "Kit",
    "Layer",
    "MiddlewareSettings",
    "Outfit",
    "Referrer",
    "Rest",
    "Rotation",
    "Session",
    "Sessions",
    "SoftBlocks",
    "Surroundings",
    "auth",
    "compose",
    "cookies",
    "default_headers",
    "function",
    "get_retry_request",
    "layers",
    "meta_refresh",
    "open_outfit",
    "policy_of",
    "proxies",
    "redirect",
    "redirected",
    "retry",
]
