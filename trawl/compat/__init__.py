"""Scrapy's behavior on trawl: its classes, signals and middleware, for projects that move from Scrapy.

The engine and the packages below it do not import this package. :mod:`trawl._run` passes its hooks to the engine. The
tables of Scrapy's names are in ``trawl.scrapy_names``. The classes are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trawl.compat.classes import (
        BaseDupeFilter,
        BaseRedirectMiddleware,
        HttpProxyMiddleware,
        MetaRefreshMiddleware,
        RedirectMiddleware,
        RetryMiddleware,
        RFPDupeFilter,
        UserAgentMiddleware,
    )
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("trawl.compat.classes"), name)


__all__ = [
    "BaseDupeFilter",
    "BaseRedirectMiddleware",
    "HttpProxyMiddleware",
    "MetaRefreshMiddleware",
    "RFPDupeFilter",
    "RedirectMiddleware",
    "RetryMiddleware",
    "UserAgentMiddleware",
]
