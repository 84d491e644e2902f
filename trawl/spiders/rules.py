"""Which links a crawl spider follows, and what becomes of their pages: as a user writes it, and as a spider runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.links import Link, LinkExtractor

__all__ = ["BoundRule", "Named", "Rule", "bound_rules"]

Named = Callable[..., Any] | str | None
"""A function, or the name of the spider's method."""


@attrs.frozen
class Rule:
    """One rule of a :class:`CrawlSpider`.

    Attributes:
        link_extractor: Finds the links; None: all of a page.
        callback: Gets their pages; None: they are only looked through for more links.
        cb_kwargs: Given to the callback by name.
        follow: Whether links are followed from their pages; None: only where there is no callback.
        process_links: Gets a page's links of this rule and returns those to follow.
        process_request: Gets each request and the page it was found on; returns it, another, or None to drop it.
        errback: Gets the error of a request that failed.
    """

    link_extractor: LinkExtractor | None = None
    callback: Named = None
    cb_kwargs: Mapping[str, Any] | None = None
    follow: bool | None = None
    process_links: Named = None
    process_request: Named = None
    errback: Named = None

    @property
    def follows(self) -> bool:
        """Whether links are followed from the pages of this rule."""
        return not self.callback if self.follow is None else self.follow


@attrs.frozen
class BoundRule:
    """A rule whose names have been looked up on a spider.

    Attributes:
        link_extractor: Finds the links.
        callback: Gets their pages.
        cb_kwargs: Given to the callback by name.
        follow: Whether links are followed from their pages.
        process_links: Chooses among the links; None: all are followed.
        process_request: Changes or drops requests; None: they stay.
        errback: Gets errors.
    """

    link_extractor: LinkExtractor
    callback: Callable[..., Any] | None
    cb_kwargs: Mapping[str, Any]
    follow: bool
    process_links: Callable[[list[Link]], Iterable[Link] | None] | None
    process_request: Callable[[Request, Response], Request | None] | None
    errback: Callable[..., Any] | None


def bound_rules(spider: Any, rules: Iterable[Rule]) -> tuple[BoundRule, ...]:
    """Look up the names in a spider's rules.

    Raises:
        UsageError: Something in ``rules`` is no rule, or the spider has no method of a name; the sentence says which.
    """
    bound = []
    for i, rule in enumerate(rules):
        if not isinstance(rule, Rule):
            raise UsageError(f"{spider.name}: rules[{i}] is a Rule, not {rule!r}")
        found = {
            name: _method(spider, f"rules[{i}]: {name}", getattr(rule, name))
            for name in ("callback", "process_links", "process_request", "errback")
        }
        links, given = rule.link_extractor or LinkExtractor(), dict(rule.cb_kwargs or {})
        bound.append(BoundRule(links, cb_kwargs=given, follow=rule.follows, **found))
    return tuple(bound)


def _method(spider: Any, what: str, named: Named) -> Callable[..., Any] | None:
    if named is None or named == "":
        return None
    method = getattr(spider, named, None) if isinstance(named, str) else named
    if not callable(method):
        raise UsageError(f"{spider.name}: {what} is {named!r}, but {type(spider).__name__} has no such method")
    return method
