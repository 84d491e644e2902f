"""What happens around each send: one module a middleware, and :func:`build` for the list of them."""

from trawl.middleware.cookies import cookies
from trawl.middleware.default_headers import default_headers
from trawl.middleware.redirect import redirect, redirected
from trawl.middleware.retry import retry
from trawl.middleware.settings import MiddlewareSettings
from trawl.middleware.stack import build, compose

__all__ = ["MiddlewareSettings", "build", "compose", "cookies", "default_headers", "redirect", "redirected", "retry"]
