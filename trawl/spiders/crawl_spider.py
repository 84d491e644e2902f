"""A spider that follows links by rules.

Which links a crawl spider follows, and what becomes of their pages: as a user writes it, and as a spider runs it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

import attrs

from trawl.errors import UsageError
from trawl.http import Request, Response, kind_of
from trawl.links import Link, LinkExtractor
from trawl.spiders.results import ItemT, is_async, iterate, iterate_async
from trawl.spiders.spider import Spider

if TYPE_CHECKING:
    from trawl.compat.crawler import Crawler

__all__ = ["BoundRule", "CrawlSpider", "Named", "Rule", "bind_rules"]

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


def bind_rules(spider: Any, rules: Iterable[Rule]) -> tuple[BoundRule, ...]:
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


class CrawlSpider(Spider[ItemT]):
    """Follows the links that its rules choose, from page to page.

    Start URLs go to :meth:`parse_start_url`, and are followed. A link that several rules want belongs to the first. The
    callback of a rule may be of any of the four kinds; the links of its page are followed when it has ended.

    The requests of a rule carry its number as ``meta["rule"]`` and the link's words as ``meta["link_text"]``; their
    callback is a method of the spider, so that they can be stored.

    Attributes:
        rules: Which links are followed, and what becomes of their pages.
    """

    rules: Iterable[Rule] = ()
    _follow_links: bool = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._compile_rules()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Make the spider for a crawl; ``CRAWLSPIDER_FOLLOW_LINKS`` says whether rules are followed at all."""
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider._follow_links = bool(crawler.settings.get("CRAWLSPIDER_FOLLOW_LINKS", True))
        return spider

    def parse_start_url(self, response: Response, **kwargs: Any) -> Any:
        """The callback of start URLs, and of whatever names no other; their links are followed too."""
        return ()

    def process_results(self, response: Response, results: Any) -> Any:
        """What a callback gave, on its way: override it to change or drop some. It gets them all as one list."""
        return results

    def parse_with_rules(
        self,
        response: Response,
        callback: Any,
        cb_kwargs: Mapping[str, Any] | None = None,
        follow: bool = True,
    ) -> Iterator[Any] | AsyncGenerator[Any, None]:
        """What ``callback`` gives for a page, and then, with ``follow``, the requests for its links."""
        result = callback(response, **(cb_kwargs or {})) if callback else None
        if is_async(result):
            return self._later(response, result, follow)
        return self._at_once(response, result, follow)

    def _parse(self, response: Response, **kwargs: Any) -> Any:
        return self.parse_with_rules(response, self.parse_start_url, kwargs)

    def _compile_rules(self) -> None:
        """Look up the names in the rules; again, if ``rules`` were changed after ``__init__``."""
        self._rules: tuple[BoundRule, ...] = bind_rules(self, self.rules)

    def rule_of(self, request: Request) -> BoundRule | None:
        """The rule that a request comes from; None for any other request."""
        is_rules = request.callback == self._callback and "rule" in request.meta
        return self._rules[request.meta["rule"]] if is_rules else None

    def _callback(self, response: Response, **cb_kwargs: Any) -> Any:
        rule = self._rules[response.meta["rule"]]
        return self.parse_with_rules(response, rule.callback, {**rule.cb_kwargs, **cb_kwargs}, rule.follow)

    def _errback(self, error: Any) -> Any:
        errback = self._rules[error.request.meta["rule"]].errback
        if errback is not None:
            return errback(error)
        self.logger.info("%s", error)  # where no rule handles it, it is told once, as for any other request
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
                request: Request | None = self._build_request(index, link)
                if rule.process_request is not None and request is not None:
                    request = rule.process_request(request, response)
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
                    yield output  # noqa: ASYNC119 - who reads this closes it
            result = None
        for output in self._at_once(response, result, follow):
            yield output
