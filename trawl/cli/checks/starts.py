"""Whether a spider has something to begin with, and a method for what comes of it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from difflib import get_close_matches

from trawl.cli.checks.finding import Finding
from trawl.cli.checks.source import SpiderSource
from trawl.spiders import SitemapSpider, Spider

__all__ = ["check_starts", "names_no_start"]

_ATTRIBUTES = (
    *("allowed_domains", "custom_settings", "handle_httpstatus_list", "own_settings"),
    *("sitemap_urls", "start_urls"),
)
_ALIKE = 0.85
"""From this likeness on (difflib's ratio) an attribute is taken for another one misspelled."""


def names_no_start(spider: type[Spider]) -> bool:
    """Whether a spider has nothing to begin with: no URLs, no ``start()``, and nothing in its methods that makes up."""
    source = SpiderSource(spider)
    return _gives_no_start(spider) and _is_forgotten(spider, source, _used(source))


def check_starts(spider: type[Spider], source: SpiderSource) -> Iterator[Finding]:
    """Say what keeps a spider from sending anything, or from doing something with what comes."""
    used = _used(source)
    yield from _misspelled(spider, source, used)
    if _gives_no_start(spider):
        if _is_forgotten(spider, source, used):
            words = f"{spider.__name__} has neither {_urls_of(spider)} nor start(): nothing will be sent"
            yield Finding(*source.home(), words)
    elif _reads_nothing(spider, source):
        words = "start() reads start_urls, which nothing sets: nothing will be sent"
        yield Finding(*source.place("start"), words)
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
    """Whether nobody speaks of where to begin: a list that is empty is meant; a method may fill it, or a signal."""
    urls = _urls_of(spider)
    return not source.is_own(urls) and not used & {urls, "spider_idle", "setattr", "__dict__"}


def _reads_nothing(spider: type[Spider], source: SpiderSource) -> bool:
    """Whether the spider's own ``start()`` goes by start URLs that there are not."""
    nodes = {method.node.name: [*ast.walk(method.node)] for method in source.methods()}
    is_set = any(
        isinstance(node, ast.Attribute) and node.attr == "start_urls" and isinstance(node.ctx, ast.Store)
        for each in nodes.values()
        for node in each
    )
    is_read = any(isinstance(node, ast.Attribute) and node.attr == "start_urls" for node in nodes.get("start", ()))
    return is_read and not is_set and not spider.start_urls and not source.is_own("start_urls")


def _parse(spider: type[Spider], source: SpiderSource, used: set[str]) -> Iterator[Finding]:
    if spider.parse is not Spider.parse or spider._parse is not Spider._parse or "parse" in used:
        return
    own = [method.node.name for method in source.methods()]
    close = get_close_matches("parse", [name for name in own if name not in used], n=1, cutoff=0.6)
    hint = f"; did you mean parse() by {close[0]}()?" if close else ""
    where = source.place(close[0]) if close else source.home()
    yield Finding(*where, f"{spider.__name__} has no parse(), which gets the pages of start_urls{hint}")


def _misspelled(spider: type[Spider], source: SpiderSource, used: set[str]) -> Iterator[Finding]:
    """Attributes that nobody reads and that are spelled like one that the spider does not have of its own."""
    for name in sorted(source.attributes()):
        if name in used or hasattr(Spider, name) or inspect.isroutine(getattr(spider, name, None)):
            continue
        close = get_close_matches(name, [each for each in _ATTRIBUTES if not source.is_own(each)], n=1, cutoff=_ALIKE)
        if close:
            yield Finding(*source.place(name), f"a crawl reads no attribute {name}; did you mean {close[0]}?")


def _used(source: SpiderSource) -> set[str]:
    """The attributes and names that the spider's methods speak of, and what their texts are."""
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
