"""A spider that follows links by rules. Only :mod:`trawl.spiders` imports this module and makes the spider public."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Self

import attrs

from trawl.errors import UsageError
from trawl.http import Request, Response, kind_of
from trawl.links import Link, LinkExtractor
from trawl.spiders.crawler import Crawler
from trawl.spiders.spider import ItemT, OutputIterable, Spider, is_async, iterate, iterate_async

__all__ = ["BoundRule", "CrawlSpider", "Named", "Rule", "bind_rules"]

Named = Callable[..., Any] | str | None  # a function, or the name of a method of the spider


@attrs.frozen
class Rule:
    """One rule of a :class:`CrawlSpider`.

    >>> to_items = trawl.Rule(trawl.LinkExtractor(allow="/item/"), callback="parse_item")
    >>> to_lists = trawl.Rule(trawl.LinkExtractor(restrict_css="nav"))  # no callback: searched for more links
    >>> to_items.follows, to_lists.follows
    (False, True)

    Attributes:
        link_extractor: Finds the links; None selects all links of a page.
        callback: Called with each page to which a link leads; None if these pages are only searched for more links.
        cb_kwargs: Keyword arguments for the callback.
        follow: Whether links on these pages are followed; None to follow them only if there is no callback.
        process_links: Called with the links that the rule finds on a page. Returns the links to follow.
        process_request: Called with each request and the page that links to it. Returns a request, or None to drop it.
        errback: Called with the error of a failed request.
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
        """True if the links on this rule's pages are followed."""
        return not self.callback if self.follow is None else self.follow


@attrs.frozen
class BoundRule:
    """A :class:`Rule` with names resolved to methods of a spider, and defaults filled in."""

    link_extractor: LinkExtractor
    callback: Callable[..., Any] | None
    cb_kwargs: Mapping[str, Any]
    follow: bool
    process_links: Callable[[list[Link]], Iterable[Link] | None] | None
    process_request: Callable[[Request, Response], Request | None] | None
    errback: Callable[..., Any] | None


def bind_rules(spider: Any, rules: Iterable[Rule]) -> tuple[BoundRule, ...]:
    """Resolve the names in a spider's rules; UsageError for an entry that is no rule or names no method."""
    bound = []
    for i, rule in enumerate(rules):
        if not isinstance(rule, Rule):
            raise UsageError(f"{spider.name}: rules[{i}] must be a Rule, not {rule!r}")
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


class CrawlSpider(Spider[ItemT]):
    """Follows the links that the rules select, from page to page.

    Responses to start URLs go to :meth:`parse_start_url`, and their links are followed. If a link matches several
    rules, the first rule applies. Callbacks may be of any kind. The links of a page are followed after its callback
    has ended.

    The requests of a rule have the number of the rule in ``meta["rule"]`` and the link's text in ``meta["link_text"]``.
    Their callback is a method of the spider, so that a job can store the requests.

    >>> class Shop(trawl.CrawlSpider):
    ...     name = "shop"
    ...     start_urls = ["http://a.example/"]
    ...     items = trawl.LinkExtractor(allow="/item/")
    ...     rules = [trawl.Rule(items, callback="parse_item")]
    ...
    ...     def parse_item(self, response):
    ...         yield {"url": response.url}

    Attributes:
        rules: The links to follow, and the callbacks of their pages.
    """

    rules: Iterable[Rule] = ()
    _follow_links: bool = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._compile_rules()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Create the spider for a crawl. ``CRAWLSPIDER_FOLLOW_LINKS`` can disable following."""
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider._follow_links = bool(crawler.settings.get("CRAWLSPIDER_FOLLOW_LINKS", True))
        return spider

    def parse_start_url(self, response: Response, **kwargs: Any) -> Any:
        """Default callback of start URLs and of requests without a callback.

        The links on these pages are followed too.
        """
        return ()

    def process_results(self, response: Response, results: Any) -> Any:
        """Return the outputs of a callback, by default the list ``results``. An override may change or drop outputs."""
        return results

    def parse_with_rules(
        self, response: Response, callback: Any, cb_kwargs: Mapping[str, Any] | None = None, follow: bool = True
    ) -> Any:
        """Return the outputs of ``callback`` for a page and then, if ``follow`` is true, the requests for its links.

        Read the result with ``for`` or ``async for``. If ``callback`` is async, only ``async for`` works.
        """
        outputs = self._outputs(response, callback, cb_kwargs or {}, follow)
        return outputs if isinstance(outputs, AsyncGenerator) else OutputIterable(outputs, iterate_async)

    def _outputs(
        self, response: Response, callback: Any, cb_kwargs: Mapping[str, Any], follow: bool
    ) -> Iterator[Any] | AsyncGenerator[Any, None]:
        result = callback(response, **cb_kwargs) if callback else None
        is_later = is_async(result)
        return self._later(response, result, follow) if is_later else self._at_once(response, result, follow)

    def _parsed(self, response: Response, callback: Any, cb_kwargs: Mapping[str, Any], follow: bool = True) -> Any:
        """Return the outputs for the engine, which reads a plain generator faster than an :class:`OutputIterable`."""
        is_own = type(self).parse_with_rules is CrawlSpider.parse_with_rules
        return (self._outputs if is_own else self.parse_with_rules)(response, callback, cb_kwargs, follow)

    def _parse_response(self, *given: Any, **named: Any) -> Any:
        """Call :meth:`parse_with_rules`. Spiders call it by this older name of Scrapy."""
        return self.parse_with_rules(*given, **named)

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        return self._parsed(response, self.parse_start_url, kwargs)

    def _compile_rules(self) -> None:
        """Resolve the names in the rules. If you change ``rules`` later, call this again."""
        self._rules: tuple[BoundRule, ...] = bind_rules(self, self.rules)

    def rule_of(self, request: Request) -> BoundRule | None:
        """Return the rule that created a request; None if no rule did."""
        is_rules = request.callback == self._callback and "rule" in request.meta
        return self._rules[request.meta["rule"]] if is_rules else None

    def _callback(self, response: Response, **cb_kwargs: Any) -> Any:
        rule = self._rules[response.meta["rule"]]
        return self._parsed(response, rule.callback, {**rule.cb_kwargs, **cb_kwargs}, rule.follow)

    def _errback(self, error: Any) -> Any:
        errback = self._rules[error.request.meta["rule"]].errback
        if errback is not None:
            return errback(error)
        self.logger.info("%s", error)  # log it once, like other errors without an errback
        return None

    def _build_request(self, rule_index: int, link: Link) -> Request:
        return Request(
            link.url,
            self._callback,
            errback=self._errback if self._rules[rule_index].errback else None,
            meta={"rule": rule_index, "link_text": link.text},
        )

    def _requests_to_follow(self, response: Response) -> Iterator[Request]:
        if kind_of(response) != "html":
            return
        seen: set[Link] = set()
        for index, rule in enumerate(self._rules):
            links: Iterable[Link] = [link for link in rule.link_extractor.extract_links(response) if link not in seen]
            if rule.process_links is not None:
                links = rule.process_links(list(links)) or ()
            for link in links:
                seen.add(link)
                built = self._build_request(index, link)
                request = built if rule.process_request is None else rule.process_request(built, response)
                if request is not None:
                    yield request

    @property
    def _sees_results(self) -> bool:
        return type(self).process_results is not CrawlSpider.process_results

    def _at_once(self, response: Response, result: Any, follow: bool) -> Iterator[Any]:
        if self._sees_results:
            result = self.process_results(response, list(iterate(result)))
        yield from iterate(result)
        if follow and self._follow_links:
            yield from self._requests_to_follow(response)

    async def _later(self, response: Response, result: Any, follow: bool) -> AsyncGenerator[Any, None]:
        if self._sees_results:
            result = [output async for output in iterate_async(result)]
        else:
            async with aclosing(iterate_async(result)) as outputs:
                async for output in outputs:
                    yield output  # noqa: ASYNC119 - the reader closes this
            result = None
        for output in self._at_once(response, result, follow):
            yield output
