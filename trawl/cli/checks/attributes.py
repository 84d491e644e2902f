"""Checks of a spider's attributes: settings, start URLs, domains and rules."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import attrs

from trawl.cli.checks.source import PLACEHOLDER, CheckMessage, SpiderSource, placeholder_words
from trawl.errors import PartLoadError, SettingsError, UsageError
from trawl.scheduler import AdmissionRules, SchedulerSettings
from trawl.settings import Layer, ambient, load, of_spider
from trawl.settings.check import nearest
from trawl.spiders import CrawlSpider, Rule, SitemapSpider, Spider
from trawl.spiders.spider import check_urls

__all__ = ["check_attributes", "check_starts", "has_no_start", "ignore"]

_ATTRIBUTES = (
    *("allowed_domains", "custom_settings", "handle_httpstatus_list", "own_settings"),
    *("sitemap_urls", "start_urls"),
)

_ALIKE = 0.85
"""Minimum similarity (difflib's ratio) for an attribute to count as a misspelling of a known attribute."""


def has_no_start(spider: type[Spider]) -> bool:
    """Return True if a spider has no start URLs, no ``start()`` and no method that replaces them."""
    source = SpiderSource(spider)
    return _gives_no_start(spider) and _is_forgotten(spider, source, _used(source))


def check_starts(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    """Report errors that keep a spider from sending requests or from parsing start URLs."""
    used = _used(source)
    yield from _misspelled(spider, source, used)
    if _gives_no_start(spider):
        if _is_forgotten(spider, source, used):
            words = f"{spider.__name__} has neither {_urls_of(spider)} nor start(): no request will be sent"
            yield source.at(words)
    elif _reads_nothing(spider, source):
        words = "start() reads start_urls, which is never set: no request will be sent"
        yield source.at(words, "start")
    elif spider.start is Spider.start and spider.start_requests is Spider.start_requests:
        yield from _parse(spider, source, used)


def _urls_of(spider: type[Spider]) -> str:
    return "sitemap_urls" if issubclass(spider, SitemapSpider) else "start_urls"


def _gives_no_start(spider: type[Spider]) -> bool:
    is_of_sitemaps = issubclass(spider, SitemapSpider) and spider.start_requests is SitemapSpider.start_requests
    if spider.start is not Spider.start or (not is_of_sitemaps and spider.start_requests is not Spider.start_requests):
        return False
    return not getattr(spider, _urls_of(spider))


def _is_forgotten(spider: type[Spider], source: SpiderSource, used: set[str]) -> bool:
    """Return True if start URLs are missing by mistake: there is no empty list, and no method that may set them."""
    urls = _urls_of(spider)
    return not source.is_own(urls) and not used & {urls, "spider_idle", "setattr", "__dict__"}


def _reads_nothing(spider: type[Spider], source: SpiderSource) -> bool:
    """Return True if the spider's own ``start()`` reads start URLs that are never set."""
    uses = [
        (method.node.name, node.ctx)
        for method in source.methods()
        for node in ast.walk(method.node)
        if isinstance(node, ast.Attribute) and node.attr == "start_urls"
    ]
    is_set = any(isinstance(context, ast.Store) for _, context in uses)
    return "start" in dict(uses) and not is_set and not spider.start_urls and not source.is_own("start_urls")


def _parse(spider: type[Spider], source: SpiderSource, used: set[str]) -> Iterator[CheckMessage]:
    if spider.parse is not Spider.parse or spider._parse is not Spider._parse or "parse" in used:
        return
    own = [method.node.name for method in source.methods()]
    close = get_close_matches("parse", [name for name in own if name not in used], n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}()?" if close else ""
    where = source.location(close[0]) if close else source.home()
    yield CheckMessage(*where, f"{spider.__name__} has no parse(), the callback of start_urls{hint}")


def _misspelled(spider: type[Spider], source: SpiderSource, used: set[str]) -> Iterator[CheckMessage]:
    """Report unused attributes whose names are similar to an attribute that a crawl reads."""
    kinds = [kind for kind in (Spider, SitemapSpider, CrawlSpider) if issubclass(spider, kind)]
    for name in sorted(source.attributes()):
        if name in used or any(hasattr(kind, name) for kind in kinds) or inspect.isroutine(getattr(spider, name, None)):
            continue
        close = get_close_matches(name, [each for each in _ATTRIBUTES if not source.is_own(each)], n=1, cutoff=_ALIKE)
        if close:
            yield source.at(f"unknown attribute {name}; did you mean {close[0]}?", name)


def _used(source: SpiderSource) -> set[str]:
    """Return the attributes, names and strings in the spider's methods."""
    found: set[str] = set()
    for method in source.methods():
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.Name):
                found.add(node.id)
    return found


def check_attributes(spider: type[Spider], source: SpiderSource, *, is_moved: bool) -> Iterator[CheckMessage]:
    """Report errors in the attributes of a spider's class."""
    name: object = spider.name
    if name and not isinstance(name, str):
        yield source.at(f"{spider.__name__}.name must be a string, not {name!r}", "name")
    elif not name:
        yield source.at(f"{spider.__name__} has no name; add a class attribute `name`")
    yield from _settings(spider, source, is_moved=is_moved)
    yield from _urls(spider, source, "start_urls", is_used=spider.start is Spider.start)
    yield from _domains(spider, source)
    yield from _statuses(spider, source)
    yield from _start(spider, source)
    if issubclass(spider, CrawlSpider):
        yield from _rules(spider, source)
    if issubclass(spider, SitemapSpider):
        yield from _urls(spider, source, "sitemap_urls", is_used=spider.start is SitemapSpider.start)
        yield from _sitemap_rules(spider, source)


def ignore(warning: str) -> None:
    """Drop a warning, because another check reports it, or loading the crawl's settings logs it."""


def _settings(spider: type[Spider], source: SpiderSource, *, is_moved: bool) -> Iterator[CheckMessage]:
    attribute = "update_settings" if source.is_own("update_settings") else "custom_settings"
    try:
        given = of_spider(spider)
    except Exception as error:  # update_settings() is user code and may raise anything
        own = error.__cause__ if isinstance(error, PartLoadError) else error
        yield source.at(f"{attribute}: {own}", attribute)
        return
    wrong = 0
    around: list[Layer] = []  # the user's own settings that are declared outside the spider, which may set them too
    with suppress(SettingsError):  # another check reports an invalid file
        around = [Layer(layer.source, {}, own=layer.own) for layer in ambient(spider=spider)]
    for name, value in given.values.items():
        try:
            load(*around, attrs.evolve(given, values={name: value}, is_moved=is_moved), tell=ignore)
        except UsageError as error:
            wrong += 1
            yield source.at(str(error), attribute, name)
    if wrong:
        return
    try:
        load(*around, attrs.evolve(given, is_moved=is_moved), tell=ignore)
    except UsageError as error:
        yield source.at(str(error), attribute)


def _urls(spider: type[Spider], source: SpiderSource, attribute: str, *, is_used: bool) -> Iterator[CheckMessage]:
    urls = getattr(spider, attribute)
    if not is_used:
        return
    single = urls if isinstance(urls, list | tuple) else [urls]
    for i, url in enumerate(single):
        if isinstance(url, str) and (found := PLACEHOLDER.search(url)):
            yield source.at(placeholder_words(found[1]), attribute, i)
        try:
            check_urls(spider.__name__, attribute, urls if single is not urls else [url])
        except UsageError as error:
            message = str(error).replace(f"{attribute}[0]", f"{attribute}[{i}]", 1)
            yield source.at(message, attribute, i)


def _domains(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    domains: Any = spider.allowed_domains
    if isinstance(domains, str) or not isinstance(domains, Iterable):
        yield source.at(f"allowed_domains must be a list of domains, not {domains!r}", "allowed_domains")
        return
    for i, domain in enumerate(domains):
        try:
            AdmissionRules(SchedulerSettings(), [domain])
        except (ValueError, AttributeError, TypeError) as error:
            words = error if isinstance(error, ValueError) else f"allowed_domains takes strings, not {domain!r}"
            yield source.at(f"{words} (entry {i})", "allowed_domains", i)


def _statuses(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    statuses: Any = spider.handle_httpstatus_list
    if isinstance(statuses, str) or not isinstance(statuses, Iterable):
        yield source.at(f"handle_httpstatus_list must be a list, not {statuses!r}", "handle_httpstatus_list")


def _start(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    if not inspect.isasyncgenfunction(spider.start):
        yield source.at("start() must be an async generator: `async def` with a `yield` in it", "start")
    older: Any = getattr(spider, "start_requests", None)
    if older is not None and (inspect.iscoroutinefunction(older) or inspect.isasyncgenfunction(older)):
        yield source.at("start_requests() must not be async; name it start()", "start_requests")


def _rules(spider: type[CrawlSpider[Any]], source: SpiderSource) -> Iterator[CheckMessage]:
    rules: Iterable[object] = spider.rules
    for i, rule in enumerate(rules):
        if not isinstance(rule, Rule):
            yield source.at(f"rules[{i}] must be a Rule, not {rule!r}", "rules", i)
            continue
        calls: dict[str, tuple[Any, Mapping[str, Any], int]] = {
            "callback": (rule.callback, rule.cb_kwargs or {}, 1),
            "errback": (rule.errback, {}, 1),
            "process_links": (rule.process_links, {}, 1),
            "process_request": (rule.process_request, {}, 2),
        }
        for name, (given, by_name, count) in calls.items():
            if problem := _problem(spider, given, by_name, count):
                yield source.at(f"rules[{i}]: {name} {problem}", "rules", i)


def _sitemap_rules(spider: type[SitemapSpider[Any]], source: SpiderSource) -> Iterator[CheckMessage]:
    for i, (pattern, callback) in enumerate(spider.sitemap_rules):
        if problem := _problem(spider, callback, {}, 1):
            yield source.at(f"sitemap_rules[{i}]: its callback {problem}", "sitemap_rules", i)
        yield from _pattern(source, "sitemap_rules", i, pattern)
    for i, pattern in enumerate(spider.sitemap_follow):
        yield from _pattern(source, "sitemap_follow", i, pattern)


def _pattern(source: SpiderSource, attribute: str, i: int, pattern: str | re.Pattern[str]) -> Iterator[CheckMessage]:
    try:
        re.compile(pattern)
    except re.error as error:
        words = f"{attribute}[{i}]: {pattern!r} is not a regular expression: {error}"
        yield source.at(words, attribute, i)


def _problem(spider: type[Spider], given: Any, by_name: Mapping[str, Any], count: int) -> str:
    """Return the reason why a rule can't call a function or the named method; "" if the call works."""
    if not given:
        return ""
    if not isinstance(given, str):
        return _misfit(given, [None] * count, by_name)
    method = getattr(spider, given, None)
    if callable(method):
        is_static = isinstance(inspect.getattr_static(spider, given), staticmethod | classmethod)
        return _misfit(method, [None] * (count + (not is_static)), by_name, f"{given}()")
    close = nearest(given, [name for name in dir(spider) if callable(getattr(spider, name, None))])
    return f"is {given!r}, but {spider.__name__} has no such method{f'; did you mean {close}?' if close else ''}"


def _misfit(function: Callable[..., Any], given: list[None], by_name: Mapping[str, Any], shown: str = "") -> str:
    try:
        inspect.signature(function).bind(*given, **by_name)
    except TypeError as error:
        return f"{shown or repr(function)} can't be called: {error}"
    except ValueError:  # a C function may have no signature
        return ""
    return ""
