"""Scrapy's habits on trawl: its classes, signals, settings and names, for projects that move over.

========================================  ==============================================================================
module                                    what it has
========================================  ==============================================================================
:mod:`~trawl.compat.names`                where Scrapy's names are found, and advice on those that are not here
:mod:`~trawl.compat.imports`              what to change in the imports of a file; moved spiders told from native ones
:mod:`~trawl.compat.settings`             Scrapy's settings: renamed, or ignored with advice; defaults of moved crawls
:mod:`~trawl.compat.crawler`              ``Crawler``, the argument of ``from_crawler``, its engine and its signals
:mod:`~trawl.compat.middleware`           downloader and spider middleware classes as trawl's middleware and hooks
:mod:`~trawl.compat.classes`              Scrapy's middleware classes and filters of duplicates, to derive from
:mod:`~trawl.compat.messages`             header values that pass for their bytes, and URLs as they are written
:mod:`~trawl.compat.hooks`                the engine's hooks: extensions, signals, ``spider_idle``
========================================  ==============================================================================

The engine and the packages below it do not import this package. :mod:`trawl._run` gives the engine its hooks, and
``trawl.lazy_compat`` asks it for advice. The modules whose names are exported here load no other part of trawl, so
that advice on a name costs little. The classes are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trawl.compat.imports import Change, Hint, changes, hint, hint_of_file, is_moved, project_files
from trawl.compat.names import GUIDE, MOVED, REPLACEMENTS, class_advice, name_advice, place, plugin_advice, submodule
from trawl.compat.settings import (
    MOVED_DEFAULTS,
    MOVED_UNUSED,
    disabled_by,
    is_disabled,
    is_foreign_setting,
    key_advice,
    renamed,
    setting_advice,
)

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
    "GUIDE",
    "MOVED",
    "MOVED_DEFAULTS",
    "MOVED_UNUSED",
    "REPLACEMENTS",
    "BaseDupeFilter",
    "BaseRedirectMiddleware",
    "Change",
    "Hint",
    "HttpProxyMiddleware",
    "MetaRefreshMiddleware",
    "RFPDupeFilter",
    "RedirectMiddleware",
    "RetryMiddleware",
    "UserAgentMiddleware",
    "changes",
    "class_advice",
    "disabled_by",
    "hint",
    "hint_of_file",
    "is_disabled",
    "is_foreign_setting",
    "is_moved",
    "key_advice",
    "name_advice",
    "place",
    "plugin_advice",
    "project_files",
    "renamed",
    "setting_advice",
    "submodule",
]
